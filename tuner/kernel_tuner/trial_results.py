"""Trials as Kernel Tuner's results: answers judged, objectives, metrics, and cache files."""

import errno
import fcntl
import hashlib
import inspect
import json
import math
import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import numpy as np

from tuner.devices.base import Check
from tuner.devices.worker import WorkerDevice
from tuner.kernel_tuner.accuracy import AccuracyObserver
from tuner.kernel_tuner.call_arguments import (
    PLACEHOLDER,
    Given,
    GivenArray,
    NotComputed,
    Parameters,
    UserValue,
    called,
    evaluated,
    number,
    on_host,
    parsed,
    restored,
)
from tuner.kernel_tuner.observers import Observed
from tuner.model.errors import ExpressionError, InputError, UnsupportedError
from tuner.model.expressions.callables import function_digest
from tuner.model.jobs import DeviceIdentity
from tuner.model.plan import Configuration, Plan, TunableValue
from tuner.model.trial import Measurement, Status
from tuner.python.arguments import HostArray
from tuner.recordings.other_tuners import FAILURES, closed_json, entry_measurement, packed_text
from tuner.system.ownership import open_result

# --- ``answer``, ``atol`` and ``verify``: outputs judged as Kernel Tuner does, in the caller's process.

RELATIVE = 1e-5  # of numpy.allclose, which Kernel Tuner leaves as it is


@dataclass(frozen=True)
class Judge:
    """Criteria of the caller for right answers.

    Attributes:
        arguments: of the kernel.
        answer: as many as there are arguments, None for those that are not checked; None for no answer.
        atol: largest absolute error of an element, beside a relative one of 1e-5.
        verify: the caller's own judgement of (answer, outputs); None for ``numpy.allclose``.
        observers: that tell errors; without ``verify``, no answer is wrong beside them.
        errors: what they told, by configuration.
    """

    arguments: tuple[Given, ...]
    answer: Sequence[Any] | None
    atol: float
    verify: Callable[..., Any] | None
    observers: tuple[AccuracyObserver, ...] = ()
    errors: dict[Configuration, dict[str, float]] = field(default_factory=dict, compare=False)

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
        return function_digest((answer, self.atol, self.verify, *(one.metric for one in self.observers)))

    def check(self, device: WorkerDevice, plan: Plan, seed: int) -> Check:
        """Run a plan once and judge what it leaves."""
        check, arrays = device.outputs(plan, seed, self.wanted)
        if check.status is not Status.OK:
            return check
        outputs = self.outputs(arrays, plan.configuration)
        if self.observers:
            self.errors[plan.configuration] = {
                one.key: one.error(self.answer or (), outputs) for one in self.observers
            }
        wrong = self.wrong(outputs)
        return Check(Status.WRONG_ANSWER if wrong else Status.OK, wrong, check.seconds)

    def outputs(self, arrays: Mapping[str, HostArray], params: Parameters) -> list[HostArray | None]:
        """The arrays that a run of a configuration has left, as many as there are arguments."""
        return [
            restored(argument.of(params), arrays[argument.name])
            if isinstance(argument, GivenArray) and argument.name in arrays
            else None
            for argument in self.arguments
        ]

    def wrong(self, outputs: Sequence[HostArray | None]) -> str:
        """Return a description of the error in the outputs; empty if they are right."""
        if self.verify is not None:
            keywords = {"atol": self.atol} if _takes_atol(self.verify) else {}
            return "" if self.verify(self.answer, outputs, **keywords) else "verify returned False"
        if self.observers:
            return ""
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
    arguments: tuple[Given, ...],
    answer: UserValue,
    atol: UserValue,
    verify: UserValue,
    observers: Sequence[object] = (),
) -> Judge | None:
    """The judge of a call; None where nothing is said of answers.

    Raises:
        InputError: the answers are not those of the arguments, or ``verify`` is no function.
    """
    if verify is not None and not callable(verify):
        raise InputError(f"verify: must be a function of (answer, outputs), not {verify!r}")
    if not isinstance(atol, int | float) or not atol >= 0:
        raise InputError(f"atol: must be a number of at least 0, not {atol!r}")
    accuracies = tuple(one for one in observers if isinstance(one, AccuracyObserver))
    if accuracies and not any(one is not None for one in answer or ()):
        raise InputError("answer: AccuracyObserver needs one, to tell errors against")
    if answer is None:
        return None if verify is None else Judge(arguments, None, atol, verify)
    if not isinstance(answer, list | tuple) or len(answer) != len(arguments):
        raise InputError(f"answer: must be a list of {len(arguments)}, one for each of arguments, or None")
    answer = [None if isinstance(one, NotComputed) else one for one in answer]
    if verify is None:
        for i, (expected, given) in enumerate(zip(answer, arguments, strict=True)):
            if expected is not None:
                _check_answer(i, on_host(expected), given)
    return Judge(arguments, answer, atol, verify, accuracies)


def _check_answer(position: int, expected: UserValue, given: Given) -> None:
    if not isinstance(given, GivenArray):
        raise InputError(
            f"answer[{position}]: arguments[{position}] is a scalar, which no kernel changes; say None"
        )
    if not isinstance(expected, np.ndarray | np.generic):
        raise InputError(f"answer[{position}]: {type(expected).__name__} is no array")
    for array in (form.array for form in given.forms):
        if expected.size != array.size:
            raise InputError(
                f"answer[{position}]: {expected.size} elements, and arguments[{position}] has {array.size}"
            )
        if not np.can_cast(array.dtype, expected.dtype):
            raise InputError(
                f"answer[{position}]: {expected.dtype}, and arguments[{position}] is {array.dtype}"
            )


def _takes_atol(verify: Callable[..., Any]) -> bool:
    try:
        return "atol" in inspect.signature(verify).parameters
    except (TypeError, ValueError):  # of no Python code
        return True


# --- Objectives and metrics: what is searched for, and what is computed from every result.

HIGHER_IS_BETTER: Mapping[str, bool] = {
    "time": False,
    "energy": False,
    "fitness": True,
    "cost": False,
    "loss": False,
    "GFLOP/s": True,
    "TFLOP/s": True,
    "GB/s": True,
    "TB/s": True,
    "GFLOPS/W": True,
    "TFLOPS/W": True,
    "GFLOP/J": True,
    "TFLOP/J": True,
}
"""Kernel Tuner's defaults of ``objective_higher_is_better``."""

_NATIVE = ("time", "energy", "edp", "ed2p")  # what this tuner minimises by itself
_JOULES = ("energy", "power", "edp", "ed2p")  # of a result, beside the time

Metrics = Mapping[str, str | Callable[..., Any]]
RowValue = bool | int | float | str | list[float] | None
Row = dict[str, RowValue]
"""A result by Kernel Tuner's keys: parameters, quantities, metrics, and what failed."""


@dataclass(frozen=True)
class Aim:
    """Objective by which a configuration is the best.

    Attributes:
        key: of a result.
        higher: whether more is better.
        objective: of the search: time or energy where the key is a metric.
        joules: whether joules are measured.
    """

    key: str
    higher: bool
    objective: str
    joules: bool

    @property
    def is_metric(self) -> bool:
        """True where the search cannot minimise the key itself: every trial is then measured to its end."""
        return self.key != self.objective

    def cost(self, row: Mapping[str, RowValue]) -> float:
        """Return the cost of a result; infinity if it failed."""
        value = row.get(self.key)
        if "__error__" in row or not isinstance(value, int | float) or not math.isfinite(value):
            return math.inf
        return -value if self.higher else value


def aim_of(
    objective: UserValue,
    higher_is_better: UserValue,
    objectives: UserValue,
    metrics: Metrics | None,
) -> Aim:
    """The aim of ``objective``, ``objective_higher_is_better`` and ``objectives``.

    Raises:
        InputError: it is neither measured nor a metric, or nobody says whether more is better.
        UnsupportedError: there are several.
    """
    check_metrics(metrics)
    if objectives is not None:
        if not isinstance(objectives, Mapping):
            raise InputError("objectives: must be a dict of objective -> whether higher is better")
        objective, higher_is_better = list(objectives), list(objectives.values())
    key = _only(objective or "time", "objectives" if objectives is not None else "objective")
    higher = _only(higher_is_better, "objective_higher_is_better")
    joules = key in _JOULES or any(map(_needs_joules, (metrics or {}).values()))
    if key in _NATIVE:
        if higher:
            raise InputError(f"objective_higher_is_better: less {key} is better")
        return Aim(key, higher=False, objective=key, joules=joules)
    if key not in (metrics or {}):
        raise InputError(
            f"objective: {key!r} is not measured; choose from {', '.join(_NATIVE)} or one of metrics,"
            " or what one of observers adds"
        )
    if higher is None and key not in HIGHER_IS_BETTER:
        raise InputError(f"objective_higher_is_better: say whether more is better for the objective {key!r}")
    better = HIGHER_IS_BETTER[key] if higher is None else bool(higher)
    return Aim(key, better, "energy" if joules else "time", joules)


def check_metrics(metrics: UserValue) -> None:
    """See that metrics are texts or functions by name.

    Raises:
        InputError: they are not.
    """
    if metrics is None:
        return
    if not isinstance(metrics, Mapping):
        raise InputError("metrics: must be a dict, whose order is that of computing them")
    for name, metric in metrics.items():
        if not isinstance(metric, str) and not callable(metric):
            raise InputError(f"metrics[{name!r}]: must be a text or a function, not {metric!r}")
        if isinstance(metric, str):
            try:
                parsed(metric)
            except ExpressionError as error:
                raise InputError(
                    f"metrics[{name!r}]: {error}; a function of the result may stand there"
                ) from error


def with_metrics(row: Row, metrics: Metrics | None) -> Row:
    """A result with its metrics, each of which may use those before it.

    What observers would add is left out where the device does not tell it.

    Raises:
        InputError: one has no value; the message names it.
    """
    for name, metric in (metrics or {}).items():
        if isinstance(metric, Observed) and not parsed(metric).names <= row.keys():
            continue
        argument = f"metrics[{name!r}]"
        value = called(metric, argument, row) if callable(metric) else evaluated(metric, row, argument)
        row[name] = number(value, argument)
    return row


def _only(given: UserValue, argument: str) -> UserValue:
    if not isinstance(given, list | tuple):
        return given
    if len(given) != 1:
        raise UnsupportedError(f"{argument}: {len(given)} objectives are not supported; a run has one here")
    return given[0]


def _needs_joules(metric: UserValue) -> bool:
    if isinstance(metric, str):
        return not parsed(metric).names.isdisjoint(_JOULES)
    return not set(_JOULES).isdisjoint(getattr(getattr(metric, "__code__", None), "co_consts", ()))


# --- Cache files of Kernel Tuner, version 1: results by configuration, to go on from.
#
# A file is one JSON object that is written on; while a run is on, or was killed, its last two braces are
# missing. Kernel Tuner binds results to the names of device and kernel, the problem size and the names of the
# parameters. What else decides them is added here: under ``tuner`` in the object, and its digest in results.
#
# Several processes may write one file. Each change is made under a lock of the file, by a new one in its
# place or by a line at its end, and results of others stay.

_MARK = "tuner"  # key of the object, and of results that this tuner has measured
_SHARED = ("device_name", "kernel_name", "problem_size", "tune_params_keys")  # what Kernel Tuner compares
_END = "}\n}"
_MS = 1e-3
_NAMED = 3  # entries that a warning names


@dataclass(frozen=True)
class Wanted:
    """Requirements of a call for results of a cache file.

    Attributes:
        made_with: what decides results, beside what Kernel Tuner compares: name -> digest or text.
        aim: the objective; results without joules are measured again where it needs them.
        metrics: computed anew of every result.
        is_allowed: True for the values of a configuration of the call.
    """

    made_with: Mapping[str, str]
    aim: Aim
    metrics: Metrics | None
    is_allowed: Callable[[Row], bool]

    @property
    def digest(self) -> str:
        """Of ``made_with``, short enough for every result."""
        return hashlib.sha256(json.dumps(dict(self.made_with), sort_keys=True).encode()).hexdigest()[:16]


@dataclass
class CacheFile:
    """A cache file that results are appended to.

    Attributes:
        path: the file.
        header: what the results belong to.
        wanted: what the call takes of it.
        rows: results of configurations of the call, by key, with all that it needs.
    """

    path: Path
    header: Mapping[str, Any]
    wanted: Wanted
    rows: dict[str, Row] = field(default_factory=dict)
    _taken: dict[str, Row] = field(default_factory=dict)  # what the file had of them

    def key(self, values: Mapping[str, RowValue]) -> str:
        """The key of a configuration: its values joined by commas."""
        return ",".join(str(values[name]) for name in self.header["tune_params_keys"])

    def begin(self) -> list[str]:
        """Take what the file has, and open it for more; one that is not there is made.

        Returns:
            What is not taken and why, and what is not known of the rest.

        Raises:
            InputError: the file cannot be used, or its results were made with something else.
        """
        with self._locked():
            found = self._entries()
            told = self._take(found)
            self._replace(found, end="")
        return told

    def add(self, row: Row) -> None:
        """Append a result at once, so that a killed run keeps it.

        Raises:
            InputError: the file cannot be written.
        """
        self.rows[self.key(row)] = row
        with self._locked() as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - len(_END)))
            end = file.read()
            if end.endswith((b",", b"{")):
                file.write(_line_of(self.key(row), self._marked(row)).encode())
            else:  # another process has closed it, or was killed within a line
                self._replace(self._entries() | {self.key(row): self._marked(row)}, end="")

    def close(self, rows: Sequence[Row]) -> None:
        """Write the final results in place of those at the time, and close the object.

        Raises:
            InputError: the file cannot be written.
        """
        self.rows = {self.key(row): row for row in rows}
        with self._locked():
            own = {key: self._taken.get(key) or self._marked(row) for key, row in self.rows.items()}
            others = {key: row for key, row in self._entries().items() if key not in own}
            self._replace(own | others, end=_END)

    # --- what is in it ---------------------------------------------------------------------------

    def _entries(self) -> dict[str, Row]:
        """Return the entries of the file, whoever wrote it."""
        if not self.path.stat().st_size:
            return {}
        found = read_cache(self.path)
        for key in _SHARED:
            if key in found and _listed(found[key]) != _listed(self.header[key]):
                raise InputError(
                    f"cache: {self.path} is of another {key}: {found[key]!r}, and this call has"
                    f" {self.header[key]!r}; name another file"
                )
        made, wanted = found.get(_MARK), self.wanted.made_with
        if isinstance(made, Mapping):
            other = [name for name, digest in wanted.items() if made.get(name) != digest]
            if other:
                raise InputError(
                    f"cache: the results of {self.path} were made with other {', '.join(other)} than this"
                    " call has; name another file, or delete it"
                )
        return dict(found["cache"])

    def _take(self, entries: Mapping[str, Row]) -> list[str]:
        """Take the rows that a call can use, and say what it cannot, and what is not known."""
        wrong, foreign, lacking = [], 0, 0
        for key, entry in entries.items():
            try:
                row = self._checked(key, entry)
            except ValueError as error:
                wrong.append(str(error))
                continue
            if not self.wanted.is_allowed(row):
                continue
            if row.pop(_MARK, None) is None:
                foreign += 1
            if self._complete(row):
                self.rows[key] = row
                self._taken[key] = entry
            else:
                lacking += 1
        return list(self._words(wrong, foreign, lacking))

    def _checked(self, key: str, entry: Row) -> Row:
        """An entry with the values that its key says, and the numbers that a measurement can have.

        Raises:
            ValueError: it is none; the message names the key.
        """
        at = f"cache[{key!r}]"
        measured = entry_measurement(entry, at)
        missing = [name for name in self.header["tune_params_keys"] if name not in entry]
        if missing or self.key(entry) != key:
            raise ValueError(f"{at}: is not the result of these values")
        if entry.get(_MARK, self.wanted.digest) != self.wanted.digest:
            raise ValueError(f"{at}: was made with something else than this call has")
        if measured.makespan_s is None:
            return dict(entry)
        return {**entry, "time": entry.get("time") or measured.makespan_s / _MS}

    def _complete(self, row: Row) -> bool:
        """Compute the metrics; False where the row lacks a quantity that the call needs."""
        failure = next((one for one in row.values() if isinstance(one, str) and one in FAILURES), None)
        if failure is not None:
            row.setdefault("__error__", failure)
            return True
        if self.wanted.aim.joules and not _is_amount(row.get("energy")):
            return False
        try:
            with_metrics(row, self.wanted.metrics)
        except InputError:  # a metric needs what nobody has measured
            return False
        return True

    def _words(self, wrong: Sequence[str], foreign: int, lacking: int) -> Iterator[str]:
        if wrong:
            more = f" and {len(wrong) - _NAMED:,} more" if len(wrong) > _NAMED else ""
            yield f"{'; '.join(wrong[:_NAMED])}{more}: not used, and measured again where it is asked for"
        if lacking:
            needs = f"what {self.wanted.aim.key} or a metric needs"
            yield f"{lacking:,} results lack {needs}: they are measured again"
        if foreign:
            known = ", ".join(self.wanted.made_with)
            yield (
                f"{foreign:,} results do not say what they were made with ({known}): they are taken as if it"
                " were what this call has; delete the file to measure them anew"
            )

    # --- how it is written -----------------------------------------------------------------------

    @contextmanager
    def _locked(self) -> Iterator[Any]:
        """The file, which nobody else changes meanwhile."""
        try:
            while True:
                with open_result(self.path, "ab+", buffering=0) as file:
                    fcntl.flock(file, fcntl.LOCK_EX)
                    if self._is_in_place(file.fileno()):
                        yield file
                        return
        except OSError as error:
            verb = "locked" if error.errno == errno.ENOLCK else "written"
            raise InputError(f"cache: {self.path}: cannot be {verb}: {error.strerror or error}") from error

    def _is_in_place(self, file: int) -> bool:
        """False where another process has put a new file in its place before this one had the lock."""
        try:
            return os.path.samestat(os.fstat(file), self.path.stat())
        except FileNotFoundError:
            return False

    def _replace(self, rows: Mapping[str, Row], end: str) -> None:
        """Put a file with these rows in place, so that a killed process leaves a whole one."""
        header = {**self.header, _MARK: dict(self.wanted.made_with)}
        head = json.dumps({**header, "cache": {}}, default=plain, indent="")[: -len(_END)]
        text = head + "".join(_line_of(key, row) for key, row in rows.items())
        written = self.path.with_name(f".{self.path.name}.{os.getpid()}")
        try:
            written.write_text(f"{text.removesuffix(',')}{end}" if end else text, encoding="utf-8")
            written.chmod(self.path.stat().st_mode)
            written.replace(self.path)
        except OSError:
            written.unlink(missing_ok=True)
            raise

    def _marked(self, row: Row) -> Row:
        return {**row, _MARK: self.wanted.digest}


def _line_of(key: str, row: Row) -> str:
    return f"\n{json.dumps({key: row}, default=plain)[1:-1]},"


def _is_amount(value: UserValue) -> bool:
    return isinstance(value, int | float) and 0.0 < value < float("inf")


def open_cache(
    given: UserValue,
    *,
    device_name: str,
    kernel_name: str,
    problem_size: UserValue,
    tunables: Mapping[str, Sequence[UserValue]],
    wanted: Wanted,
) -> CacheFile:
    """The cache file of a call, with the results in it; a warning says what is not known of them.

    Raises:
        InputError: it cannot be read, or belongs to another device, kernel, problem size, space or call.
    """
    if not isinstance(given, str | Path):
        raise InputError(f"cache: must be the name of a file, not {given!r}")
    path = Path(given)
    path = path if path.suffix == ".json" else path.with_name(f"{path.name}.json")
    header = {
        "device_name": device_name,
        "kernel_name": kernel_name,
        "problem_size": "callable" if callable(problem_size) else _listed(problem_size),
        "tune_params_keys": list(tunables),
        "tune_params": {name: list(values) for name, values in tunables.items()},
        "objective": wanted.aim.key,
    }
    cache = CacheFile(path.resolve(), header, wanted)
    for sentence in cache.begin():
        warnings.warn(f"cache: {path}: {sentence}", stacklevel=2)
    return cache


def read_cache(path: Path) -> dict[str, Any]:
    """A cache file as an object, also where its last braces are missing.

    Raises:
        InputError: it cannot be read, or is no cache file.
    """
    try:
        result = closed_json(packed_text(path))
    except (ValueError, RecursionError) as error:
        raise InputError(f"cache: {path} is no cache file of Kernel Tuner (version 1): {error}") from error
    if not isinstance(result, dict) or not isinstance(result.get("cache"), dict):
        raise InputError(f"cache: {path} is no cache file of Kernel Tuner (version 1)")
    return result


def plain(value: UserValue) -> UserValue:
    """NumPy's numbers and arrays as JSON has them."""
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    return str(value)


def _listed(value: UserValue) -> UserValue:
    """Numbers and lists in one form: 4 is [4]."""
    if isinstance(value, list | tuple | np.ndarray):
        return [plain(one) if isinstance(one, np.generic) else one for one in value]
    return [value.item() if isinstance(value, np.generic) else value]


# --- Trials as results, the environment, and what was left out.

MS = 1e3  # milliseconds of a second

ERROR_OF: Mapping[Status, str] = {
    Status.COMPILE_ERROR: "CompilationFailedConfig",
    Status.LAUNCH_ERROR: "RuntimeFailedConfig",
    Status.TIMEOUT: "RuntimeFailedConfig",
    Status.CRASHED: "RuntimeFailedConfig",
    Status.WRONG_ANSWER: "ErrorConfig",
    Status.PRUNED: "InvalidConfig",
}
"""Status of a failed trial -> Kernel Tuner's text; it has none for wrong answers, which end its runs."""


def row_of(
    configuration: Configuration, measurement: Measurement, metrics: Metrics | None, judge: Judge | None
) -> Row:
    """The result of a trial.

    ``time`` is the median time of a run in ms, and the only one of ``times``; ``time_uncertainty`` is its
    standard uncertainty in ms; ``energy`` joules of a run and ``power`` watts, where they were measured;
    ``clock_mhz`` and ``temperature_c`` what the window saw of the GPU, where it tells them.

    Raises:
        InputError: a metric has no value.
    """
    row = params_of(configuration)
    if not measurement.ok or measurement.makespan_s is None:
        result = measurement.results[0]
        return failed_row(configuration, ERROR_OF.get(result.status, "RuntimeFailedConfig"), result.detail)
    time_ms = measurement.makespan_s * MS
    row |= {
        "time": time_ms,
        "times": [time_ms],
        "time_uncertainty": measurement.makespan_uncertainty_s * MS,
    }
    energy = measurement.energy
    if energy is not None:
        seconds = measurement.makespan_s
        row |= {
            "energy": energy.joules,
            "energy_uncertainty": energy.uncertainty_j,
            "power": energy.watts,
            "edp": energy.joules * seconds,
            "ed2p": energy.joules * seconds**2,
        }
    seen = {"clock_mhz": measurement.clock_mhz, "temperature_c": measurement.temperature_c}
    row |= {key: value for key, value in seen.items() if value is not None}
    row |= {} if judge is None else judge.errors.get(configuration, {})
    with_metrics(row, metrics)
    return row | _spent(measurement)


def failed_row(configuration: Mapping[str, TunableValue], error: str, detail: str = "") -> Row:
    """The result of a configuration that failed: no ``time``, Kernel Tuner's text under ``__error__``."""
    row = params_of(configuration) | {"__error__": error}
    if detail:
        row["error_detail"] = detail
    return row | _spent(None)


def params_of(configuration: Mapping[str, RowValue]) -> Row:
    """The parameters of a configuration, without what stands for none."""
    return {name: value for name, value in configuration.items() if name != PLACEHOLDER}


def dropped_rows(
    space: Iterable[Configuration], known: Iterable[Mapping[str, RowValue]], errors: Sequence[str]
) -> list[Row]:
    """Results of the configurations that were ruled out before they ran.

    Args:
        space: all that the restrictions allow.
        known: configurations that are no such: those measured, and candidates.
        errors: messages of the compiler, which name the configuration they are of.
    """
    seen = {frozenset(params_of(one).items()) for one in known}
    rows = []
    for configuration in space:
        if frozenset(params_of(configuration).items()) not in seen:
            message = next((text for text in errors if f"[{configuration}]" in text), "")
            rows.append(
                failed_row(configuration, "CompilationFailedConfig" if message else "InvalidConfig", message)
            )
    return rows


def best_of(rows: Sequence[Row], aim: Aim) -> Row | None:
    """The result that is best in the objective; None where all failed."""
    row = min(rows, key=aim.cost, default=None)
    return None if row is None or aim.cost(row) == float("inf") else row


def environment(device: DeviceIdentity, options: Sequence[str], wall_s: float) -> dict[str, Any]:
    """Return the tuning environment: names, versions, and the wall-clock time of the run in ms."""
    return {
        "device_name": device.name,
        "device": device.spec,
        "uuid": device.uuid,
        "driver_version": device.driver,
        "nvrtc_version": device.runtime,
        "modelled": device.modelled,
        "compiler_options": list(options),
        "wall_time": wall_s * MS,
    }


def _spent(measurement: Measurement | None) -> Row:
    """Milliseconds spent on one configuration. Compiling goes on beside the measuring: none is its own."""
    return {
        "compile_time": 0.0,
        "verification_time": 0.0 if measurement is None else measurement.check_s * MS,
        "benchmark_time": 0.0 if measurement is None else measurement.window_s * MS,
        "strategy_time": 0.0,
        "framework_time": 0.0,
        "timestamp": str(datetime.now(timezone.utc)),
    }
