"""The page's server in a thread of the test, in front of a daemon's socket."""

import contextlib
import http.client
import socket
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from served_service import PATIENCE_S, Answer, ask

from tuner.cli.page.app import HOST, listen, page_server
from tuner.cli.page.upstream import Session
from tuner.client import Client


@dataclass
class Page:
    """A page that is served, and the headers of the browser that has opened its link."""

    port: int
    session: Session
    cookie: dict[str, str] = field(default_factory=dict)

    @property
    def origin(self) -> str:
        return f"http://{HOST}:{self.port}"

    @property
    def link(self) -> str:
        return f"{self.origin}/open/{self.session.link}"

    def ask(
        self, method: str, target: str, document: Any = None, headers: Mapping[str, str] | None = None
    ) -> Answer:
        """One request with these headers only."""
        with contextlib.closing(http.client.HTTPConnection(HOST, self.port, PATIENCE_S)) as connection:
            return ask(connection, method, target, document, headers)

    def enter(self) -> Answer:
        """Open the link, and keep the cookie."""
        answer = self.ask("GET", f"/open/{self.session.link}")
        self.cookie = {"Cookie": answer.headers.get("set-cookie", "").partition(";")[0]}
        return answer

    @property
    def writing(self) -> dict[str, str]:
        """The headers that the page sends with a change."""
        return {**self.cookie, "Origin": self.origin, "X-Tuner-CSRF": self.session.csrf}


@contextlib.contextmanager
def served_page(
    daemon: Path | str,
    token_file: Path | None = None,
    *,
    request_timeout_s: float = PATIENCE_S,
    listening: tuple[socket.socket, Session] | None = None,
) -> Iterator[Page]:
    """The page of the daemon at a socket or a port, until the block ends."""
    if listening is None:
        free = listen(None)
        listening = free, Session(free.getsockname()[1])
    listener, session = listening
    port = listener.getsockname()[1]
    transport = Client(daemon, token_file=token_file).transport
    server = page_server(transport, session, request_timeout_s)
    thread = threading.Thread(target=server.run, args=([listener],))
    thread.start()
    try:
        yield Page(port, session)
    finally:
        server.should_exit = True
        thread.join(PATIENCE_S)
        listener.close()
        assert not thread.is_alive()
