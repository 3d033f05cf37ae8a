"""Lock files: tuned answers that a repository commits, as TOML; read before any database."""

import json
import math
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields
from decimal import Decimal
from itertools import combinations
from pathlib import Path
from typing import Annotated, Any, TypedDict, TypeVar

from tuner.database.answers import StoredAnswer
from tuner.database.ranking import NEAR_BATCH, AnswerQuery, ServedAnswer, misfit, served_answer
from tuner.model.errors import InputError, suggestion
from tuner.model.jobs import DeviceIdentity
from tuner.model.objective import COVERAGE, TIME_EXPONENT, timing_of
from tuner.model.plan import TunableValue
from tuner.model.records import PROTOCOL, RunStatus, WorkloadName
from tuner.model.run_document import AnswerTrial, device_document
from tuner.model.typed import UnfitError, typed
from tuner.system.untrusted.reading import TEXT_BYTES, load_toml, read_text

FORM = 1
"""Of the file; a change that older versions cannot read raises it."""

_HEAD = "# Written by `tuner lock`; `tuner lock --check` measures every answer again.\n"
_CONFLICT = re.compile(r"^(<<<<<<<|=======|>>>>>>>|\|\|\|\|\|\|\|)( .*)?$", re.MULTILINE)
_PREFIXES = {"": 0, "m": -3, "µ": -6, "n": -9, "p": -12}
_QUANTITY = re.compile(
    r"(?P<value>\d+(?:\.\d+)?)(?: ± (?P<half>\d+(?:\.\d+)?))? (?P<prefix>[mµunp]?)(?P<unit>s|J)"
)
_BETWEEN = " to "
_DIGITS = 6


# --- The values.


@dataclass(frozen=True)
class Quantity:
    """A time or an energy of one round, rounded as the file has it.

    Attributes:
        value: in s or J; six digits at most, and no more than its interval tells.
        half: half of its 95 % interval; two digits, 0 where none is known.
    """

    value: float
    half: float = 0.0

    @classmethod
    def of(cls, value: float, half: float) -> "Quantity":
        """The same, rounded."""
        known = math.floor(math.log10(value)) - math.floor(math.log10(half)) + 2 if half else _DIGITS
        return cls(float(f"{value:.{min(max(known, 2), _DIGITS)}g}"), float(f"{half:.2g}"))

    @classmethod
    def parse(cls, text: str, where: str, unit: str) -> "Quantity":
        """The quantity of a text such as ``12.3 ± 0.1 µs``.

        Raises:
            UnfitError: it is none, or of another unit.
        """
        match = _QUANTITY.fullmatch(text)
        if match is None or match["unit"] != unit:
            raise UnfitError(
                f"{where}is {text!r}; write a number above 0 with its unit, as '12.3 ± 0.1 µ{unit}'"
            )
        power = _PREFIXES[match["prefix"].replace("u", "µ")]
        value, half = (float(Decimal(match[name] or 0).scaleb(power)) for name in ("value", "half"))
        if not 0.0 < value < float("inf"):
            raise UnfitError(f"{where}is {text!r}; it must be above 0")
        return cls(value, half)

    def text(self, unit: str) -> str:
        """The quantity with a prefix of its unit."""
        prefix = next((one for one, power in _PREFIXES.items() if self.value >= 10.0**power), "p")
        shown = [
            f"{Decimal(repr(one)).scaleb(-_PREFIXES[prefix]).normalize():f}"
            for one in (self.value, self.half)
        ]
        return f"{' ± '.join(shown if self.half else shown[:1])} {prefix}{unit}"


@dataclass(frozen=True)
class LockedWorkload:
    """One workload of a locked answer.

    Attributes:
        name: kernel and sizes, without the batch: ``scan-lf:N=1024``.
        batch: that was measured.
        kernel: content key of the kernel, ``KernelFile.fingerprint``.
        configuration: values of its tunables.
    """

    name: str
    batch: Annotated[int, 1]
    kernel: str
    configuration: dict[str, TunableValue]


@dataclass(frozen=True)
class LockedAnswer:
    """A tuned answer as a lock file holds it.

    Attributes:
        workload: those that run together; one, mostly.
        gpu: product name, which is the kind of GPU.
        driver: version, or the first parts of one, which all that begin so are in: ``580``; or a range
            ``575.51 to 580``, both ends included.
        objective: as stored answers name it, with scope, timing and slowdown limit.
        time: of one round.
        energy: of one round; None where no joules were measured.
        clock_mhz: that it sets; None for as found.
        power_limit_w: that it sets; None for as found.
        modelled: of a simulated GPU.
        measured: day of the measurement, UTC.
        tuner: version of the program that wrote it.
    """

    workload: tuple[LockedWorkload, ...]
    gpu: str
    driver: str
    objective: str
    time: Quantity
    measured: str
    tuner: str
    energy: Quantity | None = None
    clock_mhz: Annotated[int, 1] | None = None
    power_limit_w: Annotated[int, 1] | None = None
    modelled: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        """The workloads, sorted."""
        return tuple(sorted(one.name for one in self.workload))

    @property
    def kernels(self) -> tuple[str, ...]:
        """The kernels of the workloads, in the order of the file."""
        return tuple(WorkloadName.parse(one.name).kernel for one in self.workload)

    @property
    def specs(self) -> tuple[str, ...]:
        """The workloads with their batches, in the order of the file."""
        return tuple(str(WorkloadName.parse(one.name).with_batch(one.batch)) for one in self.workload)

    @property
    def sets_clocks(self) -> bool:
        """True where it sets a clock or a power limit."""
        return not (self.clock_mhz is None and self.power_limit_w is None)

    @property
    def timing(self) -> str:
        """Timing of its time: ``back-to-back`` or ``single``."""
        return timing_of(self.objective)

    def __str__(self) -> str:
        batched = ", ".join(f"{one.name} at a batch of {one.batch}" for one in self.workload)
        return f"{batched} on {self.gpu} for {self.objective}"

    def is_of(self, device: DeviceIdentity) -> bool:
        """True for a GPU of the kind that it is for."""
        return (self.gpu, self.modelled) == (device.name, device.modelled)

    def excludes(self, other: "LockedAnswer") -> bool:
        """True where both are answers to one question."""
        questions = [
            ({one.name: one.batch for one in each.workload}, each.gpu, each.objective, each.clock_mhz is None)
            for each in (self, other)
        ]
        return questions[0] == questions[1] and covers(self.driver, other.driver)


@dataclass(frozen=True)
class AnswerLock:
    """A lock file.

    Attributes:
        path: of the file.
        answers: in its order.
    """

    path: Path
    answers: tuple[LockedAnswer, ...]


# --- Ranges of drivers.


def driver_range(version: str) -> str:
    """The range that an answer of a driver is written for: its branch; a version that is no number itself."""
    return version.partition(".")[0] if _parts(version) else version


def covers(driver: str, other: str) -> bool:
    """True for a version that a range holds, or a range that has versions in common with it."""
    (low, high), (least, most) = _ends(driver), _ends(other)
    if not all(map(_parts, (low, high, least, most))):
        return driver == other
    return _not_above(low, most) and _not_above(least, high)


def _ends(driver: str) -> tuple[str, str]:
    low, between, high = driver.partition(_BETWEEN)
    return low, high if between else low


def _parts(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split("."))) if re.fullmatch(r"\d{1,9}(\.\d{1,9})*", version) else ()


def _not_above(low: str, high: str) -> bool:
    """True unless all versions that begin as the one are above all that begin as the other."""
    first, last = _parts(low), _parts(high)
    shared = min(len(first), len(last))
    return first[:shared] <= last[:shared]


# --- Reading and writing.


def read(path: Path) -> AnswerLock:
    """The answers of a lock file.

    Raises:
        InputError: it cannot be read, is damaged, has a conflict of a merge, two answers to one question or
            unknown keys, or is of a newer form; the message names the file and what would be right.
    """
    try:
        return AnswerLock(path, _answers(_document(read_text(path, TEXT_BYTES))))
    except FileNotFoundError as error:
        raise InputError(f"{path}: there is no such lock file; `tuner lock` writes one") from error
    except (OSError, ValueError) as error:  # an UnfitError, too
        raise InputError(f"{path}: {getattr(error, 'strerror', None) or error}") from error


def _document(text: str) -> dict[str, Any]:
    conflict = _CONFLICT.search(text)
    if conflict is not None:
        line = text.count("\n", 0, conflict.start()) + 1
        raise ValueError(
            f"line {line} has a conflict of a merge ({conflict[0]!r}): keep one of the two answers"
        )
    try:
        return load_toml(text)
    except ValueError as error:
        raise ValueError(f"is damaged: {error}; mend it, or take it from git") from error


def _answers(document: Mapping[str, Any]) -> tuple[LockedAnswer, ...]:
    form = document.get("form")
    if type(form) is not int or form < 1:
        raise ValueError(f"is no lock file: it has no `form = {FORM}`; `tuner lock` writes one")
    if form > FORM:
        raise ValueError(f"is of form {form}, and this version reads up to {FORM}: update gpu-tuner")
    _check_keys(document, ("form", "answer"))
    tables = document.get("answer", [])
    numbered = enumerate(tables if isinstance(tables, list) else [tables], 1)
    answers = tuple(_answer(table, number) for number, table in numbered)
    for (first, one), (second, other) in combinations(enumerate(answers, 1), 2):
        if one.excludes(other):
            raise ValueError(f"[[answer]] {first} and {second} are both of {one}: remove one of them")
    return answers


def _answer(table: object, number: int) -> LockedAnswer:
    try:
        return _checked(table)
    except UnfitError as error:
        raise UnfitError(f"[[answer]] {number}: {error}") from error


def _checked(table: Any) -> LockedAnswer:  # noqa: ANN401 - whatever TOML has
    if not isinstance(table, dict):
        raise UnfitError("is no table")
    _check_keys(table, [field.name for field in fields(LockedAnswer)])
    for part in table["workload"] if isinstance(table.get("workload"), list) else ():
        if isinstance(part, dict):
            _check_keys(part, [field.name for field in fields(LockedWorkload)], "workload: ")
    quantities = {
        key: vars(Quantity.parse(str(table[key]), f"{key} ", unit))
        for key, unit in (("time", "s"), ("energy", "J"))
        if key in table
    }
    answer: LockedAnswer = typed(LockedAnswer, table | quantities)
    if (name := answer.objective.partition(" ")[0]) not in TIME_EXPONENT:
        raise UnfitError(f"objective is {name!r}; known are {', '.join(TIME_EXPONENT)}")
    if not answer.workload or len(set(answer.names)) < len(answer.workload):
        raise UnfitError("workload: name each workload once, and one at least")
    low, high = _ends(answer.driver)
    if not (low and high) or (low != high and not (_parts(low) and _parts(high) and _not_above(low, high))):
        raise UnfitError(f"driver is {answer.driver!r}; write a version, as '580', or '575 to 580.65'")
    return answer


def _check_keys(table: Mapping[str, Any], known: Sequence[str], where: str = "") -> None:
    for key in table:
        if key not in known:
            raise UnfitError(
                f"{where}{key!r} is no key{suggestion(key, known)}; known are {', '.join(known)}"
            )


def written(answers: Iterable[LockedAnswer]) -> str:
    """The text of a lock file, in an order that does not depend on that of the answers."""

    def order(answer: LockedAnswer) -> tuple[object, ...]:
        batches = [one.batch for one in answer.workload]
        return answer.names, batches, answer.gpu, answer.driver, answer.objective, answer.clock_mhz or 0

    return f"{_HEAD}form = {FORM}\n" + "".join(map(_table, sorted(answers, key=order)))


def _table(answer: LockedAnswer) -> str:
    values: dict[str, TunableValue | None] = {
        "gpu": answer.gpu,
        "driver": answer.driver,
        "objective": answer.objective,
        "clock_mhz": answer.clock_mhz,
        "power_limit_w": answer.power_limit_w,
        "time": answer.time.text("s"),
        "energy": None if answer.energy is None else answer.energy.text("J"),
        "modelled": answer.modelled or None,
        "measured": answer.measured,
        "tuner": answer.tuner,
    }
    lines = ["", "[[answer]]", *_lines(values)]
    for one in answer.workload:
        lines += [
            "",
            "[[answer.workload]]",
            *_lines({"name": one.name, "batch": one.batch, "kernel": one.kernel}),
        ]
        lines += ["[answer.workload.configuration]", *_lines(one.configuration)]
    return "\n".join(lines) + "\n"


def _lines(values: Mapping[str, TunableValue | None]) -> list[str]:
    return [f"{_key(name)} = {_value(value)}" for name, value in values.items() if value is not None]


def _key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else _value(name)


def _value(value: TunableValue) -> str:
    """A value as TOML has it: a text as JSON has it, but for DEL, and each number as Python writes it."""
    if isinstance(value, float):
        return repr(value)
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


# --- The lock that is in force, and what it answers.

VARIABLE = "TUNER_LOCK"
FROZEN = "TUNER_LOCK_FROZEN"
_PROJECT = "pyproject.toml"


@dataclass(frozen=True)
class LockInForce:
    """A lock file that is read before the daemon and any database.

    Attributes:
        lock: the file.
        frozen: an answer that cannot be served is an error, not a notice.
    """

    lock: AnswerLock
    frozen: bool = False

    def of_set(self, names: Iterable[str]) -> list[LockedAnswer]:
        """The answers of exactly these workloads together."""
        wanted = tuple(sorted(names))
        return [one for one in self.lock.answers if one.names == wanted]

    def served(self, query: AnswerQuery) -> tuple[ServedAnswer | None, tuple[str, ...]]:
        """The locked answer to a question, and why others to it are not served.

        Raises:
            InputError: one is not served, or the kernel has only other sizes, and the lock is frozen.
        """
        device, where = query.device, self.lock.path
        of_set = self.of_set(query.batches)
        asked = [one for one in of_set if query.asks(one.objective)]
        judged = [(one, unfit(one, query)) for one in of_gpu(asked, device, as_found=query.clocks_as_found)]
        fit = [one for one, why in judged if not why]
        served = served_answer(query, [as_stored(one, device, str(where)) for one in fit], fresh=True)
        if served is None:
            batches = ", ".join(map(str, query.batches.values()))
            far = f"a batch of {batches} is beyond a factor of {NEAR_BATCH:g}, or fills the GPU less"
            judged += [(one, far) for one in fit]
        reasons = [f"{where}: {one}: {why}" for one, why in judged if why]
        if self.frozen and not of_set:
            kernels = sorted(workload.kernel for workload in query.workloads)
            others = (one for one in self.lock.answers if sorted(one.kernels) == kernels)
            reasons += [f"{where}: {one}: it is of other sizes" for one in others][:1]
        if reasons and self.frozen:
            raise InputError(f"{reasons[0]}; the lock is frozen: write it again with `tuner lock`")
        return served, tuple(reasons)


def of_gpu(
    answers: Sequence[LockedAnswer], device: DeviceIdentity, *, as_found: bool = False
) -> list[LockedAnswer]:
    """Those for a GPU and its driver; without one those for its kind, else the first, to say why not.

    Where clocks stay as found, those that set one are among them only if they are all there are.
    """
    of_kind = [one for one in answers if one.is_of(device)]
    of_kind = [one for one in of_kind if not (as_found and one.sets_clocks)] or of_kind
    return [one for one in of_kind if covers(one.driver, device.driver)] or of_kind or [*answers[:1]]


def unfit(locked: LockedAnswer, query: AnswerQuery) -> str:
    """The reason that a locked answer does not serve a question, whatever its batch; empty where it does."""
    return elsewhere(locked, query) or misfit(query.kernels, as_stored(locked, query.device))


def elsewhere(locked: LockedAnswer, query: AnswerQuery) -> str:
    """The GPU, driver or kernel of a question that a locked answer is not for, in words; empty for none."""
    device = query.device
    if not locked.is_of(device):
        return f"it is not for {device.name}"
    if query.clocks_as_found and locked.sets_clocks:
        return "it sets a clock or a power limit, and here they stay as found"
    if not covers(locked.driver, device.driver):
        return f"it is for driver {locked.driver}, and this is {device.driver}"
    kernels = {WorkloadName.parse(one.name).kernel: one.kernel for one in locked.workload}
    changed = [name for name, key in kernels.items() if query.sources.get(name) != key]
    if changed:
        return f"the kernel {', '.join(changed)} has changed since it was locked"
    return ""


def as_stored(locked: LockedAnswer, device: DeviceIdentity, path: str = "the lock") -> StoredAnswer:
    """A locked answer as a stored one of a device whose kind and driver it is for."""
    clocks = "off" if locked.clock_mhz is None else str(locked.clock_mhz)
    best: AnswerTrial = {
        "time_s": locked.time.value,
        "time_s_uncertainty": locked.time.half / COVERAGE,
        "energy_j": None if locked.energy is None else locked.energy.value,
        "energy_j_uncertainty": None if locked.energy is None else locked.energy.half / COVERAGE,
    }
    batches = {one.name: one.batch for one in locked.workload}
    return StoredAnswer(
        run=0,
        status=RunStatus.FINISHED,
        at=locked.measured,
        objective=locked.objective,
        max_slowdown=None,
        batches=batches,
        conditions={
            "workloads": [*batches.items()],
            "sources": {WorkloadName.parse(one.name).kernel: one.kernel for one in locked.workload},
            "device": device_document(device),
            "objective": locked.objective,
            "policy": "",
            "seed": 0,
            "clocks": clocks,
            "settings": {},
            "protocol": PROTOCOL,
        },
        configurations={one.name: one.configuration for one in locked.workload},
        clock_mhz=locked.clock_mhz,
        answer={"best": best, "modelled": locked.modelled, "timing": locked.timing},
        power_limit_w=locked.power_limit_w,
        locked=path,
    )


def in_force(named: Path | None = None, *, frozen: bool = False) -> LockInForce | None:
    """The lock file that is in force; None without one.

    Args:
        named: by the caller; else it is that of ``place_in_force``.
        frozen: whatever the project says.

    Raises:
        InputError: it cannot be read; see ``read``.
    """
    path, frozen_here = place_in_force(named)
    return None if path is None else LockInForce(_as_it_is(read, path), frozen or frozen_here)


def place_in_force(named: Path | None = None) -> tuple[Path | None, bool]:
    """The absolute path of the lock file that is in force, which need not be there, and whether it is frozen.

    That of the caller; else that of the variable ``TUNER_LOCK``, which stands for none if it is empty; else
    that of ``[tool.tuner]`` in the nearest ``pyproject.toml`` which has such a table, here or above.

    Raises:
        InputError: that table is wrong.
    """
    variable = os.environ.get(VARIABLE)
    frozen = os.environ.get(FROZEN, "") not in ("", "0")
    if named is None and variable is not None:
        named = Path(variable) if variable else None
    elif named is None:
        # Where the working directory is gone, or may not be entered (`sudo -u`), no project is above it.
        with suppress(FileNotFoundError, PermissionError):
            named, frozen_here = _of_project(Path.cwd())
            frozen = frozen or frozen_here
    return None if named is None else named.absolute(), frozen


def _of_project(folder: Path) -> tuple[Path | None, bool]:
    for above in (folder, *folder.parents):
        path = above / _PROJECT
        if path.is_file() and (table := _as_it_is(_project_table, path)) is not None:
            return above / str(table["lock"]) if "lock" in table else None, table.get("frozen") is True
    return None, False


def _project_table(path: Path) -> dict[str, Any] | None:
    """The table of this program; None where the file has none, or is not for this program to judge."""
    text = ""
    try:
        text = read_text(path, TEXT_BYTES)
        table = load_toml(text).get("tool", {}).get("tuner")
    except (OSError, ValueError, AttributeError) as error:
        if re.search(r"^\[tool\.tuner\]", text, re.MULTILINE):  # which must not be out of force unseen
            raise InputError(f"{path}: is damaged, and has [tool.tuner]: {error}") from error
        return None
    if table is None:
        return None
    try:
        _check_keys(table, ("lock", "frozen"))
        typed(_ProjectTable, table)
    except (UnfitError, TypeError) as error:
        raise InputError(f"{path}: [tool.tuner]: {error}") from error
    return dict(table)


class _ProjectTable(TypedDict, total=False):
    lock: str
    frozen: bool


_Read = TypeVar("_Read")
_seen: dict[tuple[object, ...], Any] = {}


def _as_it_is(reader: Callable[[Path], _Read], path: Path) -> _Read:
    """The present content of a file; one that has not changed is not read again."""
    try:
        status = path.stat()
    except OSError:
        return reader(path)  # says why
    key = (reader, path, status.st_mtime_ns, status.st_size, status.st_ino)
    if key not in _seen:
        if len(_seen) >= _MOST_SEEN:
            _seen.clear()
        _seen[key] = reader(path)
    found: _Read = _seen[key]
    return found


_MOST_SEEN = 16
