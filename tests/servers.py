"""Real HTTP servers in threads that answer, or misbehave, as a test says."""

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit


@dataclass
class Received:
    """One request as it came in, and the means to answer it."""

    handler: BaseHTTPRequestHandler
    method: str
    path: str
    params: dict[str, str]
    headers: dict[str, str]  # names in lower case
    body: Any  # parsed JSON; None without a body
    index: int  # requests that this server had had before
    at: float = field(default_factory=time.monotonic)

    def json(self, value: Any, status: int = 200, **headers: str) -> None:
        self.raw(json.dumps(value).encode(), status, **headers)

    def raw(self, body: bytes, status: int = 200, **headers: str) -> None:
        self.handler.send_response(status)
        for name, value in headers.items():
            self.handler.send_header(name.replace("_", "-"), value)
        self.handler.send_header("Content-Length", str(len(body)))
        self.handler.end_headers()
        self.handler.wfile.write(body)

    def drip(self, data: bytes, every_s: float) -> None:
        """One byte at a time, as the connection's very first words."""
        for byte in data:
            self.handler.wfile.write(bytes([byte]))
            time.sleep(every_s)

    def drop(self, after: bytes = b"") -> None:
        """Resets the connection, after some bytes where they are given."""
        self.handler.wfile.write(after)
        self.handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
        self.handler.connection.close()
        self.handler.close_connection = True


@contextmanager
def serving(answer: Callable[[Received], None], port: int = 0) -> Iterator[tuple[str, list[Received]]]:
    """The base URL of a loopback server, and the list of what it has received so far."""
    received: list[Received] = []
    lock = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do(self) -> None:
            parts = urlsplit(self.path)
            length = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(length)) if length else None
            params = {name: values[0] for name, values in parse_qs(parts.query).items()}
            headers = {name.lower(): value for name, value in self.headers.items()}
            with lock:
                request = Received(self, self.command, parts.path, params, headers, body, len(received))
                received.append(request)
            try:
                answer(request)
            except OSError:  # the client gave up
                self.close_connection = True

        do_GET = do_POST = do

        def log_message(self, *args: object) -> None:
            pass

        def finish(self) -> None:
            try:
                super().finish()
            except (OSError, ValueError):  # a dropped connection
                pass

    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    server.daemon_threads = True
    server.handle_error = lambda *_: None
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", received
    finally:
        server.shutdown()
        server.server_close()


def free_port() -> int:
    """A port on which nobody listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
