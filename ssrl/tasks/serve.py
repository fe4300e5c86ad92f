"""`task=serve`: a retriever behind the Search-R1 API, for runs of our own and for other programs."""

from __future__ import annotations

import contextlib
import signal
import socket

from rich.console import Console

from ssrl.config import Config
from ssrl.retrieval.listen import bind, serve
from ssrl.retrieval.server import make_app

EVERYWHERE = ("0.0.0.0", "::", "")


def main(config: Config, overrides: list[str]) -> None:
    """Serve `retriever` until Ctrl-C or SIGTERM, which are its normal end."""
    c = config.serve
    with bind(c.host, c.port) as listener:  # before the index is built, which may take long: a port that is taken is said at once
        from ssrl.tasks.engines import build_retriever

        retriever = build_retriever(config.retriever, config.calls)
        app = make_app(retriever, max_queries=c.max_queries, max_body_kb=c.max_body_kb, max_topk=c.max_topk)
        url = url_of(c.host, listener.getsockname()[1])
        line = f"serving {retriever.identity} at {url}/retrieve; use it with engine=fullreal retriever=http 'retriever.urls=[{url}]'; Ctrl-C ends it"
        Console().print(line, highlight=False, markup=False, soft_wrap=True)
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        with contextlib.suppress(KeyboardInterrupt):
            serve(app, listener, c.timeout_s)


def url_of(host: str, port: int) -> str:
    """The address that others type: this machine's name where the server listens on all of its addresses."""
    name = socket.gethostname() if host in EVERYWHERE else host
    return f"http://[{name}]:{port}" if ":" in name else f"http://{name}:{port}"
