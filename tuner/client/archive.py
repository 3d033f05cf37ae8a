"""Stored runs, trials and answers of the daemon, as JSON has them (docs/daemon-api.md)."""

from collections.abc import Iterator
from typing import Any, TypedDict

from tuner.client.targets import target
from tuner.client.transport import Transport
from tuner.client.values import ServedAnswer
from tuner.model.run_document import RunDocument, TrialDocument, run_document
from tuner.model.typed import UnfitError

_PAGE = 500  # trials in one answer of the daemon

Document = dict[str, Any]


class _TrialPage(TypedDict):
    trials: list[TrialDocument]
    next: int | None


class _Answers(TypedDict):
    answers: list[ServedAnswer]


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

    def run(self, number: int) -> RunDocument:
        """The document of a run, without its trials."""
        try:
            return run_document(self._transport.ask("GET", f"/v1/runs/{number:d}"))
        except UnfitError as error:
            raise self._transport.misunderstood(str(error)) from error

    def trials(self, number: int) -> Iterator[TrialDocument]:
        """Trials of a run in their order, read as they are needed."""
        after: int | None = 0
        while after is not None:
            query = {"after": after, "limit": _PAGE}
            page = self._transport.asked(_TrialPage, target(f"/v1/runs/{number:d}/trials", query))
            yield from page["trials"]
            after = page["next"]

    def samples(self, number: int) -> list[Document]:
        """What measuring the answer of a run again has given, oldest first."""
        return self._rows(f"/v1/runs/{number:d}/samples", "samples")

    def answers(self, *, stale: bool | None = None) -> list[ServedAnswer]:
        """Answers that are served; with ``stale``, only those that are, or are not."""
        query = {"stale": None if stale is None else str(stale).lower()}
        return self._transport.asked(_Answers, target("/v1/answers", query))["answers"]

    def history(self, *workloads: str, limit: int = 100, before: int | None = None) -> list[Document]:
        """Answers over time, newest first; arguments as of ``runs``."""
        return self._listed("history", {"workload": workloads, "limit": limit, "before": before})

    def _listed(self, name: str, query: Document) -> list[Document]:
        return self._rows(target(f"/v1/{name}", query), name)

    def _rows(self, path: str, name: str) -> list[Document]:
        answer = self._transport.ask("GET", path) or {}
        rows = answer.get(name)
        if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
            raise self._transport.misunderstood(f"{answer!r:.120}")
        return rows
