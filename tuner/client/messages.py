"""Messages of an event stream (WHATWG HTML, server-sent events)."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class Message:
    """One message of a stream; empty fields are those that were not sent."""

    id: str
    event: str
    data: str


def messages(lines: Iterable[bytes]) -> Iterator[Message | None]:
    """Messages of a stream, and None for each comment: a sign of life.

    A message that the end of the stream cuts off is dropped, as the standard has it.

    Args:
        lines: with their ends, which are LF or CRLF.
    """
    fields: dict[str, list[str]] = {}
    for line in lines:
        text = line.decode(errors="replace").rstrip("\r\n")
        if not line.endswith(b"\n"):
            return
        if text.startswith(":"):
            yield None
        elif text:
            name, _, value = text.partition(":")
            fields.setdefault(name, []).append(value.removeprefix(" "))
        elif fields:
            last = {name: values[-1] for name, values in fields.items()}
            if "data" in fields:
                yield Message(last.get("id", ""), last.get("event", ""), "\n".join(fields["data"]))
            fields = {}
