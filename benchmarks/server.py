"""Requests a second and latency of the retrieval server under concurrent clients that each keep one connection and ask again at once.

    python benchmarks/server.py                                          # BM25 over the bundled corpus, 32 clients, 1 query a request
    python benchmarks/server.py --corpus FILE --queries 1 64             # another corpus; a row for each number of queries a request
    python benchmarks/server.py retriever=dense --seconds 10             # another retriever, or any other words of the command line

The server is a process of its own (`python -m ssrl task=serve`), on the same machine as the clients, whose cost is therefore part of the
figures. Queries are the bundled test questions in turn. Prints a Markdown table, latency in milliseconds.
"""

from __future__ import annotations

import argparse
import itertools
import json
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from statistics import quantiles
from threading import Barrier

ROOT = Path(__file__).resolve().parents[1]
QUESTIONS = ROOT / "ssrl/data/bundled/test.jsonl"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("words", nargs="*", default=["retriever=bm25"], help="what to serve, as on the command line of ssrl")
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--queries", type=int, nargs="+", default=[1], help="queries a request")
    parser.add_argument("--topk", type=int, default=3)
    parser.add_argument("--corpus", type=Path, help="JSONL file of {id, title, contents} or {id, contents}")
    arguments = parser.parse_intermixed_args()
    corpus = [f"retriever.corpus={json.dumps(str(arguments.corpus.resolve()))}"] if arguments.corpus else []
    with server([*arguments.words, *corpus]) as (port, identity):
        print(f"{identity}\n\n| clients | queries a request | requests/s | queries/s | p50 ms | p95 ms | failed |\n|---|---|---|---|---|---|---|")
        for queries in arguments.queries:
            latencies, failed, seconds = measure(port, arguments.clients, arguments.seconds, queries, arguments.topk)
            rate, cuts = len(latencies) / seconds, quantiles([1000 * latency for latency in latencies], n=20)
            cells = [arguments.clients, queries, f"{rate:.0f}", f"{rate * queries:.0f}", f"{cuts[9]:.1f}", f"{cuts[18]:.1f}", failed]
            print(f"| {' | '.join(map(str, cells))} |", flush=True)


@contextmanager
def server(words: list[str]) -> Iterator[tuple[int, str]]:
    """Its port and the line that it prints when it is ready."""
    command = [sys.executable, "-m", "ssrl", "task=serve", "serve.port=0", *words]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        line = next((line for line in process.stdout if line.startswith("serving ")), None)
        if line is None:
            sys.exit(process.wait() or 1)  # it has said why
        try:
            yield int(re.search(r"http://127\.0\.0\.1:(\d+)/retrieve", line)[1]), line.split(";")[0]
        finally:
            process.terminate()


def measure(port: int, clients: int, seconds: float, queries: int, topk: int) -> tuple[list[float], int, float]:
    """Seconds of each answered request, the number of those that failed, and the seconds that all of it took."""
    questions = [json.loads(line)["question"] for line in QUESTIONS.read_text().splitlines()]
    start = Barrier(clients + 1)

    def client(first: int) -> tuple[list[float], int]:
        turn = itertools.islice(itertools.cycle(questions), first * queries, None)
        connection, latencies, failed = HTTPConnection("127.0.0.1", port, timeout=60), [], 0
        connection.connect()
        start.wait()
        end = time.perf_counter() + seconds
        while (began := time.perf_counter()) < end:
            body = json.dumps({"queries": list(itertools.islice(turn, queries)), "topk": topk, "return_scores": True})
            connection.request("POST", "/retrieve", body, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            found = answer.read()
            latencies.append(time.perf_counter() - began)
            failed += answer.status != 200 or len(json.loads(found)["result"]) != queries
        connection.close()
        return latencies, failed

    with ThreadPoolExecutor(clients) as pool:
        futures = [pool.submit(client, i) for i in range(clients)]
        start.wait()
        began = time.perf_counter()
        done = [future.result() for future in futures]
    return [latency for latencies, _ in done for latency in latencies], sum(failed for _, failed in done), time.perf_counter() - began


if __name__ == "__main__":
    main()
