"""`task=serve` as a process of its own: the line it prints, an answer over the line's own address, its ends, and a port that is taken."""

import json
import re
import signal
import socket
import subprocess
import sys
import urllib.request

import pytest

from ssrl.tasks.serve import url_of


def start(port):
    command = [sys.executable, "-m", "ssrl", "task=serve", "retriever=bm25", f"serve.port={port}"]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGTERM])
def test_it_says_what_to_type_answers_there_and_ends_cleanly(end):
    process = start(0)
    try:
        line = process.stdout.readline()
        url = re.search(r"engine=fullreal retriever=http 'retriever\.urls=\[(http://127\.0\.0\.1:\d+)\]'", line)[1]
        assert line.startswith("serving bm25 ") and f" at {url}/retrieve" in line
        request = urllib.request.Request(f"{url}/retrieve", json.dumps({"queries": ["capital of Peru"]}).encode())
        with urllib.request.urlopen(request, timeout=60) as answer:
            (documents,) = json.load(answer)["result"]
        assert len(documents) == 3 and any("Lima" in document["contents"] for document in documents)
        process.send_signal(end)
        more, errors = process.communicate(timeout=60)
        assert (process.returncode, more, errors) == (0, "", "")
    finally:
        process.kill()


def test_a_port_that_is_taken_is_one_sentence():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        process = start(port)
        said, errors = process.communicate(timeout=60)
    assert process.returncode == 2 and said == ""
    assert errors.startswith(f"serve.port={port} is taken") and len(errors.splitlines()) == 1


@pytest.mark.parametrize(
    ("host", "url"),
    [("127.0.0.1", "http://127.0.0.1:8000"), ("::1", "http://[::1]:8000"), ("0.0.0.0", f"http://{socket.gethostname()}:8000")],
)
def test_the_address_is_one_that_others_can_type(host, url):
    assert url_of(host, 8000) == url
