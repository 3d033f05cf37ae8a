"""Answers what is best from memory, counts what is used, and knows what should be measured next."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from tuner.catalog import Catalog
from tuner.daemon.answering.known import Index, Known, known_from
from tuner.daemon.answering.questions import asked
from tuner.daemon.answering.replies import Present, make
from tuner.daemon.answering.uses import LONGEST_KEY, Uses
from tuner.daemon.desk import Question, Reply
from tuner.daemon.settings import Settings
from tuner.database import Store
from tuner.model import DeviceIdentity

MOST_REPLIES = 2048
"""Replies that are kept: some 2 KiB each. The one that was asked for longest ago makes room."""

Analyse = Callable[[str, DeviceIdentity], None]
"""Is told of a workload without an analytical answer, every time it is asked for."""


class Answerer:
    """The answers of the daemon, in memory.

    Every method but ``read`` belongs to the event loop; ``read`` may be called from the thread of the
    database.

    Args:
        catalog: the kernels.
        identities: device -> who it is; the first is meant where a question names none.
        settings: of the daemon.
        analyse: told of workloads without an analytical answer.
        monotonic: seconds, for fading counts.
    """

    def __init__(
        self,
        catalog: Catalog,
        identities: Mapping[str, DeviceIdentity],
        settings: Settings | None = None,
        *,
        analyse: Analyse = lambda _workload, _device: None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._uses = Uses(monotonic=monotonic)
        self._analyse = analyse
        self._present = Present(
            catalog, dict(identities), settings or Settings(), Index(), sources_of(catalog), {}
        )

    def reply(self, question: Question) -> Reply:
        """The best known now; the question counts as ``question.count`` uses.

        Raises:
            InputError: the question is wrong, or a kernel file is at this size.
            NotNowError: a kernel that names no default was never worked out.
        """
        present = self._present
        form = (
            *(question.workloads, question.objective, question.device),
            *(question.max_slowdown, question.clocks_as_found),
        )
        kept = present.replies.pop(form, None)
        if kept is None:
            kept = make(asked(question, present.catalog, present.identities), present)
        if sum(map(len, question.workloads)) <= LONGEST_KEY:
            present.replies[form] = kept  # asked for last
            if len(present.replies) > MOST_REPLIES:
                del present.replies[next(iter(present.replies))]
        self._uses.add(kept.key, question.count)
        for name in kept.unknown:
            self._analyse(name, kept.device)
        return kept.reply

    def used(self, question: Question) -> None:
        """Count uses of an answer without giving one.

        Raises:
            InputError: the question is wrong.
        """
        found = asked(question, self._present.catalog, self._present.identities)
        self._uses.add(found.key, question.count)

    def refresh(self, store: Store, names: Sequence[str] | None = None) -> None:
        """Read stored answers again.

        Args:
            store: the database.
            names: a co-running set whose answers have changed; None for all.
        """
        self.take(self.read(store, names), names)

    def read(self, store: Store, names: Sequence[str] | None = None) -> list[Known]:
        """What ``refresh`` reads; for the thread of the database."""
        runs = store.history() if names is None else store.answered(names, None)
        return [known for known in map(known_from, runs) if known is not None]

    def take(self, read: Iterable[Known], names: Sequence[str] | None = None) -> None:
        """Answer with what was read from now on."""
        answers = list(read)
        if names is not None:
            gone = tuple(sorted(names))
            answers += [one for one in self._present.index.runs.values() if tuple(sorted(one.names)) != gone]
        self._replace(index=Index.of(answers, self._present.stale))

    def adopt(
        self,
        *,
        catalog: Catalog | None = None,
        identities: Mapping[str, DeviceIdentity] | None = None,
        settings: Settings | None = None,
    ) -> None:
        """Answer under what is true now; ``refresh`` then finds older answers that have become true again."""
        now = self._present
        catalog = catalog or now.catalog
        self._replace(
            catalog=catalog,
            sources=sources_of(catalog),
            identities=dict(now.identities if identities is None else identities),
            settings=settings or now.settings,
        )

    def remember(self, analytical: Mapping[str, Mapping[str, Any]]) -> None:
        """Answer with analytical answers, beside those known, from now on."""
        self._replace(analytical={**self._present.analytical, **analytical})

    def restore_uses(self, known: Mapping[str, float]) -> None:
        """Add what was counted before this process began."""
        self._uses.restore(known)

    def take_uses(self) -> dict[str, float]:
        """What to add to the counts of the database; a count that fades is negative."""
        return self._uses.take()

    def put_back_uses(self, changes: Mapping[str, float]) -> None:
        """Keep what ``take_uses`` gave: the database did not take it."""
        self._uses.put_back(changes)

    def _replace(self, **changes: Any) -> None:  # noqa: ANN401 - fields of Present
        self._present = replace(self._present, **changes, replies={})


def sources_of(catalog: Catalog) -> dict[str, str]:
    """Kernel -> hash of its sources."""
    return {name: kernel.fingerprint for name, kernel in catalog.kernels.items()}
