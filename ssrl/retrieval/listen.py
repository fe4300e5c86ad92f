"""From an application to a port, with bounds on slow, stalled and vanished clients."""

from __future__ import annotations

import asyncio
import errno
import json
import math
import socket
from functools import partial
from typing import Any

import h11
import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from ssrl.errors import UserError

MAX_CONNECTIONS = 512  # further ones get 503; below the usual limit of 1,024 open files
BACKLOG = 1024
GRACE_S = 5  # for answers under way when the server ends


def bind(host: str, port: int) -> socket.socket:
    """A socket that listens on this address; who connects before `serve` waits. Port 0 takes a free one.

    Raises:
        UserError: the address is not to be had; it says which override to type.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
    except (OSError, UnicodeError) as error:
        raise UserError(f"serve.host={host} is not an address: type serve.host=127.0.0.1, or serve.host=0.0.0.0 for the network") from error
    listener = socket.socket(family, kind, protocol)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # a server that has just ended does not block its port
    try:
        listener.bind(address)
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise UserError(refusal(host, port, error)) from error
    return listener


def refusal(host: str, port: int, error: OSError) -> str:
    """Why an address cannot be taken, and what to type."""
    if error.errno == errno.EADDRINUSE:
        return f"serve.port={port} is taken by another program on {host}: type serve.port={port + 1 if port < 65535 else 8000}, or end that program"
    if error.errno == errno.EADDRNOTAVAIL:
        return f"serve.host={host} is not an address of this machine: type serve.host=127.0.0.1, or serve.host=0.0.0.0 for the network"
    if isinstance(error, PermissionError):
        return f"serve.port={port} is not allowed for this user: type serve.port=8000"
    return f"serve.host={host} serve.port={port} cannot be listened on ({error}): type serve.host=127.0.0.1 serve.port=8000"


def serve(app: ASGIApp, listener: socket.socket, timeout_s: float) -> None:
    """Serve until SIGINT or SIGTERM (in the main thread); their own handlers, which raise KeyboardInterrupt or end the process, come last."""
    build_server(app, timeout_s).run(sockets=[listener])


def build_server(app: ASGIApp, timeout_s: float) -> uvicorn.Server:
    """uvicorn with every bound set: `timeout_s` seconds to send a request, as many to take the answer, as many idle between two."""
    return uvicorn.Server(uvicorn.Config(
        app, http=partial(BoundedProtocol, timeout_s=timeout_s), ws="none", lifespan="on", backlog=BACKLOG,
        limit_concurrency=MAX_CONNECTIONS, timeout_keep_alive=math.ceil(timeout_s), timeout_graceful_shutdown=GRACE_S,
        log_config=None, log_level="error", access_log=False, server_header=False, proxy_headers=False))  # fmt: skip


class BoundedProtocol(H11Protocol):
    """uvicorn bounds only the idle time between two requests. This adds a deadline for sending a request, headers and body together, which
    no byte prolongs, and one for taking the answer. It lets the application work as long as it will."""

    def __init__(self, *args: Any, timeout_s: float, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.timeout_s = timeout_s
        self.deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:
        super().connection_made(transport)
        self._restart()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._idle():
            self._restart()  # a request begins
        super().data_received(data)

    def on_response_complete(self) -> None:
        self._restart()
        super().on_response_complete()

    def shutdown(self) -> None:
        super().shutdown()
        if not self._working() and not self.transport.get_write_buffer_size():
            self.transport.close()  # uvicorn would wait for the rest of a request

    def _idle(self) -> bool:
        return self.conn.their_state is h11.IDLE and not self.conn.trailing_data[0]

    def _working(self) -> bool:
        return self.conn.their_state in (h11.DONE, h11.MUST_CLOSE) and self.conn.our_state in (h11.SEND_RESPONSE, h11.SEND_BODY)

    def _restart(self) -> None:
        self._stop()
        self.deadline = self.loop.call_later(self.timeout_s, self._expired)

    def _stop(self) -> None:
        if self.deadline is not None:
            self.deadline.cancel()
            self.deadline = None

    def _expired(self) -> None:
        if self.transport.is_closing() or self.transport.get_write_buffer_size():
            self.transport.abort()  # it does not take its answer
        elif not self._working():  # where the application works, its answer restarts the clock
            if not self._idle() and self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
                self._say(408, f"the request was not complete after {self.timeout_s:g} seconds")
            self.transport.close()
            self._restart()  # in case it does not take this either

    def _say(self, status: int, sentence: str) -> None:
        headers = [("content-type", "application/json"), ("connection", "close")]
        body = json.dumps({"detail": sentence}).encode()
        for event in (h11.Response(status_code=status, headers=headers), h11.Data(data=body), h11.EndOfMessage()):
            self.transport.write(self.conn.send(event) or b"")
