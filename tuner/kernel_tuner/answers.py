"""``answer``, ``atol`` and ``verify``: outputs judged as Kernel Tuner does, in the caller's process."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from tuner.devices.base import Check
from tuner.expressions.function_digest import function_digest
from tuner.kernel_tuner.arguments import Given, GivenArray, on_host, restored
from tuner.kernel_tuner.parameters import UserValue
from tuner.model.errors import InputError
from tuner.model.plan import Plan
from tuner.model.trial import Status
from tuner.python.host_arrays import HostArray

RELATIVE = 1e-5  # of numpy.allclose, which Kernel Tuner leaves as it is


class OutputSource(Protocol):
    """A device that tells what a run leaves in its arrays (``WorkerDevice``)."""

    def outputs(self, plan: Plan, seed: int, names: Sequence[str]) -> tuple[Check, dict[str, HostArray]]:
        """Run a plan once on its inputs."""


@dataclass(frozen=True)
class Judge:
    """What the caller says of right answers.

    Attributes:
        arguments: of the kernel.
        answer: as many as there are arguments, None for those that are not checked; None for no answer.
        atol: largest absolute error of an element, beside a relative one of 1e-5.
        verify: the caller's own judgement of (answer, outputs); None for ``numpy.allclose``.
    """

    arguments: tuple[Given, ...]
    answer: Sequence[Any] | None
    atol: float
    verify: Callable[..., Any] | None

    @property
    def wanted(self) -> tuple[str, ...]:
        """Names of the arrays that are looked at."""
        return tuple(
            one.name
            for i, one in enumerate(self.arguments)
            if isinstance(one, GivenArray) and (self.answer is None or self.answer[i] is not None)
        )

    @property
    def digest(self) -> str:
        """Of all that decides which answers are right."""
        answer = [None if one is None else on_host(one) for one in self.answer or ()]
        return function_digest((answer, self.atol, self.verify))

    def check(self, device: OutputSource, plan: Plan, seed: int) -> Check:
        """Run a plan once and judge what it leaves."""
        check, arrays = device.outputs(plan, seed, self.wanted)
        if check.status is not Status.OK:
            return check
        wrong = self.wrong(arrays)
        return Check(Status.WRONG_ANSWER if wrong else Status.OK, wrong, check.seconds)

    def wrong(self, arrays: Mapping[str, HostArray]) -> str:
        """What is wrong with the outputs; empty where nothing is."""
        outputs = [
            restored(one, arrays[one.name]) if isinstance(one, GivenArray) and one.name in arrays else None
            for one in self.arguments
        ]
        if self.verify is not None:
            keywords = {"atol": self.atol} if _takes_atol(self.verify) else {}
            return "" if self.verify(self.answer, outputs, **keywords) else "verify returned False"
        found = (self._difference(i, output) for i, output in enumerate(outputs) if output is not None)
        return next((words for words in found if words), "")

    def _difference(self, position: int, output: HostArray) -> str:
        expected = on_host((self.answer or ())[position])
        right, given = np.asarray(expected).reshape(-1), output.reshape(-1)
        if np.allclose(right, given, rtol=RELATIVE, atol=self.atol):
            return ""
        with np.errstate(all="ignore"):
            errors = np.abs(right.astype(np.result_type(right, np.float64)) - given)
            worst = int(np.argmax(np.where(np.isnan(errors), np.inf, errors)))
        return (
            f"answer[{position}]: element {worst} of {self.arguments[position].name} is {given[worst]},"
            f" not {right[worst]} (atol {self.atol:g}, rtol {RELATIVE:g})"
        )


def judge_of(
    arguments: tuple[Given, ...], answer: UserValue, atol: UserValue, verify: UserValue
) -> Judge | None:
    """The judge of a call; None where nothing is said of answers.

    Raises:
        InputError: the answers are not those of the arguments, or ``verify`` is no function.
    """
    if verify is not None and not callable(verify):
        raise InputError(f"verify: must be a function of (answer, outputs), not {verify!r}")
    if not isinstance(atol, int | float) or not atol >= 0:
        raise InputError(f"atol: must be a number of at least 0, not {atol!r}")
    if answer is None:
        return None if verify is None else Judge(arguments, None, atol, verify)
    if not isinstance(answer, list | tuple) or len(answer) != len(arguments):
        raise InputError(f"answer: must be a list of {len(arguments)}, one for each of arguments, or None")
    if verify is None:
        for i, (expected, given) in enumerate(zip(answer, arguments, strict=True)):
            if expected is not None:
                _check_answer(i, on_host(expected), given)
    return Judge(arguments, answer, atol, verify)


def _check_answer(position: int, expected: UserValue, given: Given) -> None:
    if not isinstance(given, GivenArray):
        raise InputError(
            f"answer[{position}]: arguments[{position}] is a scalar, which no kernel changes; say None"
        )
    if not isinstance(expected, np.ndarray | np.generic):
        raise InputError(f"answer[{position}]: {type(expected).__name__} is no array")
    if expected.size != given.array.size:
        raise InputError(
            f"answer[{position}]: {expected.size} elements, and arguments[{position}] has {given.array.size}"
        )
    if not np.can_cast(given.array.dtype, expected.dtype):
        raise InputError(
            f"answer[{position}]: {expected.dtype}, and arguments[{position}] is {given.array.dtype}"
        )


def _takes_atol(verify: Callable[..., Any]) -> bool:
    try:
        return "atol" in inspect.signature(verify).parameters
    except (TypeError, ValueError):  # of no Python code
        return True
