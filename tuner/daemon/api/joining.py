"""A transport that sends what belongs together at once."""

import asyncio
from typing import Any


class JoiningTransport(asyncio.Transport):
    """Sends the head of a response together with the first piece of its body.

    Each send wakes the client. On a busy machine, a client that wakes for the head alone takes the
    processor from the server, and the body waits.
    """

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__()
        self._transport = transport
        self._loop = loop
        self._pieces: list[bytes] = []

    def write(self, data: bytes) -> None:  # type: ignore[override]  # uvicorn writes bytes only
        """Hold the first piece until the second, or the end of this step; send with the second."""
        self._pieces.append(data)
        if len(self._pieces) == 1:
            self._loop.call_soon(self.flush)
        else:
            self.flush()

    def flush(self) -> None:
        """Send what is held."""
        if self._pieces:
            data = b"".join(self._pieces)
            self._pieces.clear()
            self._transport.write(data)

    def write_eof(self) -> None:
        """Send, and end this direction."""
        self.flush()
        self._transport.write_eof()

    def close(self) -> None:
        """Send, and close."""
        self.flush()
        self._transport.close()

    def abort(self) -> None:
        """Close at once."""
        self._pieces.clear()
        self._transport.abort()

    def is_closing(self) -> bool:
        """As the transport has it."""
        return self._transport.is_closing()

    def get_extra_info(self, name: str, default: Any = None) -> Any:  # noqa: ANN401 - as asyncio has it
        """As the transport has it."""
        return self._transport.get_extra_info(name, default)

    def pause_reading(self) -> None:
        """As the transport has it."""
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        """As the transport has it."""
        self._transport.resume_reading()
