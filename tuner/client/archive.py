"""Stored runs, trials and answers of the daemon, as JSON has them (docs/daemon-api.md)."""

from collections.abc import Iterator
from typing import Any

from tuner.client.targets import target
from tuner.client.transport import Transport

_PAGE = 500  # trials in one answer of the daemon

Document = dict[str, Any]


class Archive:
    """What is stored; the errors are those of ``Client``.

    Args:
        transport: to the daemon.
    """

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def runs(self, *workloads: str, limit: int = 100, before: int | None = None) -> list[Document]:
        """Runs, newest first.

        Args:
            workloads: only runs of exactly these together; none for any.
            limit: so many at most.
            before: only runs of a lower number.
        """
        return self._listed("runs", {"workload": workloads, "limit": limit, "before": before})

    def run(self, number: int) -> Document:
        """The document of a run, without its trials."""
        return self._asked(f"/v1/runs/{number:d}")

    def trials(self, number: int) -> Iterator[Document]:
        """Trials of a run in their order, read as they are needed."""
        after: int | None = 0
        while after is not None:
            page = self._asked(target(f"/v1/runs/{number:d}/trials", {"after": after, "limit": _PAGE}))
            yield from page.get("trials", [])
            after = page.get("next")

    def samples(self, number: int) -> list[Document]:
        """What measuring the answer of a run again has given, oldest first."""
        return self._rows(self._asked(f"/v1/runs/{number:d}/samples"), "samples")

    def answers(self, *, stale: bool | None = None) -> list[Document]:
        """Answers that are served; with ``stale``, only those that are, or are not."""
        return self._listed("answers", {"stale": None if stale is None else str(stale).lower()})

    def history(self, *workloads: str, limit: int = 100, before: int | None = None) -> list[Document]:
        """Answers over time, newest first; arguments as of ``runs``."""
        return self._listed("history", {"workload": workloads, "limit": limit, "before": before})

    def _listed(self, name: str, query: Document) -> list[Document]:
        return self._rows(self._asked(target(f"/v1/{name}", query)), name)

    def _rows(self, document: Document, name: str) -> list[Document]:
        rows = document.get(name)
        if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
            raise self._transport.misunderstood(f"{document!r:.120}")
        return rows

    def _asked(self, path: str) -> Document:
        document = self._transport.ask("GET", path)
        if not isinstance(document, dict):
            raise self._transport.misunderstood(f"{document!r:.120}")
        return document
