"""Requests of clients to the daemon: the one interface between its API and its parts."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from pydantic_core import PydanticSerializationError, to_json

from tuner.model.errors import TunerError
from tuner.model.objective import COVERAGE
from tuner.model.run_document import AnswerDocument, Best, RunDocument

MOST_WORKLOADS = 16
"""The most that run together in a question or a job: more than a GPU has room for."""

MOST_LETTERS = 200
"""The longest name of a workload, or of anything else, that is read."""

User = int | str
"""A user id, or ``token:NAME`` of who shows a token."""

OF_TOKEN = "token:"  # noqa: S105 - no secret
"""Begin of the user that holds a token; no account has a colon in its name."""


class RefusedError(TunerError):
    """The daemon does not do what was asked for."""


class NoSuchJobError(RefusedError):
    """No job has this number."""


class NoSuchRunError(RefusedError):
    """No run has this number."""


class NotYoursError(RefusedError):
    """The job is another's, and this client may not change it."""


class NotNowError(RefusedError):
    """The present state does not allow it: the job has ended, or the queue is full."""


@dataclass(frozen=True)
class Peer:
    """The process of a client.

    Attributes:
        uid: user id, as the socket reports it; None over TCP.
        pid: process id; None over TCP.
        token: over TCP, name of the token that was shown; empty where none was.
    """

    uid: int | None = None
    pid: int | None = None
    token: str = ""

    @property
    def user(self) -> User:
        """The user who asks."""
        return f"{OF_TOKEN}{self.token}" if self.uid is None else self.uid


@dataclass(frozen=True)
class Question:
    """A request for the best configurations of workloads that run together.

    Equal questions have equal replies.

    Attributes:
        device: empty for the daemon's first.
        max_slowdown: as a fraction; None for no limit.
        timing: of the answer; empty for the default, of which others stand in while there is no such answer.
        count: uses of the answer that the client reports; None where it reports none.
    """

    workloads: tuple[str, ...]
    objective: str = "time"
    device: str = ""
    max_slowdown: float | None = None
    clocks_as_found: bool = False
    timing: str = ""
    count: float | None = field(default=None, compare=False)

    @property
    def demand(self) -> float:
        """Uses that decide what is tuned first; a question without a count is one use."""
        return 1.0 if self.count is None else self.count


@dataclass(frozen=True, kw_only=True)
class Reply(Best):
    """The answer to a question, encoded once however many ask it."""

    @cached_property
    def json(self) -> bytes:
        """The body of the response; only workloads of a stored answer have ``fresh`` and ``source``."""
        workloads = {
            name: vars(part)
            if part.source
            else {"configuration": part.configuration, "origin": part.origin, "details": part.details}
            for name, part in self.workloads.items()
        }
        # the fields: what is cached here is not among them yet
        return encode({**vars(self), "workloads": workloads})


class Saving(NamedTuple):
    """Of one use; the uncertainty is half of the 95 % interval."""

    joules: float
    uncertainty_j: float


def measured_saving(answer: RunDocument | AnswerDocument | None) -> Saving | None:
    """Return the saving of one use against the default; None unless the joules of both were measured.

    Args:
        answer: ``Reply.answer``.
    """
    best, default = (None, None) if answer is None else (answer["best"], answer.get("default"))
    if best is None or default is None:
        return None
    best_j, default_j = best.get("energy_j"), default.get("energy_j")
    if best_j is None or default_j is None:
        return None
    uncertainties_j = [trial.get("energy_j_uncertainty") or 0.0 for trial in (best, default)]
    return Saving(default_j - best_j, COVERAGE * math.hypot(*uncertainties_j))


def encode(document: object) -> bytes:
    """JSON of a document; infinity and not-a-number become null, which JSON has instead."""
    try:
        return to_json(document, inf_nan_mode="null", fallback=_plain)
    except (PydanticSerializationError, UnicodeError):
        return to_json(_clean(document), inf_nan_mode="null", fallback=_plain)


def stream_text(kind: str, document: object, position: object = "") -> bytes:
    """An event as a stream sends it; one without a place to go on from has no id."""
    # JSON escapes line ends, so that data is one line.
    number = "" if position == "" else f"id: {position}\n"
    return b"%sevent: %s\ndata: %s\n\n" % (number.encode(), kind.encode(), encode(document))


def _plain(value: object) -> object:
    """A value that JSON has in place of another."""
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, Iterable):
        return list(value)
    return str(value)


def _clean(value: object) -> Any:  # noqa: ANN401 - whatever was in the document
    """The same without lone surrogates, which file names may hold."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, Enum):
        return _clean(value.value)
    if isinstance(value, Path):
        return _clean(str(value))
    if isinstance(value, Mapping):
        return {_clean(str(key)): _clean(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_clean(item) for item in value]
    return value
