"""One form of a peer: a library's routine with all its settings chosen, ready to time."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Peer:
    """One contender.

    Attributes:
        name: of the routine, as tables name it. The fastest form of each name is reported.
        form: the settings that set this form apart from the others of the same name.
        run: solves the whole batch once, on the current stream.
        answer: where the solution is afterwards, in the layout of ``Data.output``.
        prepare: restores what a run destroys; not timed.
        keep: what has to live as long as this.
    """

    name: str
    form: str
    run: Callable[[], None]
    answer: Callable[[], Any]
    prepare: Callable[[], None] | None = None
    keep: Any = None

    @property
    def key(self) -> str:
        """Name and form."""
        return f"{self.name}, {self.form}" if self.form else self.name


@dataclass(frozen=True)
class Calls:
    """How the batch is dealt to calls.

    Attributes:
        chunks: calls in one graph; 0 for a plain call of the whole batch.
        streams: chains of the graph.
    """

    chunks: int = 0
    streams: int = 1

    def __str__(self) -> str:
        if not self.chunks:
            return "one call"
        return f"{self.chunks} calls in a graph, {self.streams} streams"
