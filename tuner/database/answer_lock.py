"""Lock files: tuned answers that a repository commits, as TOML; read before any database."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from decimal import Decimal
from itertools import combinations
from pathlib import Path
from typing import Annotated, Any

from tuner.model.errors import InputError, suggestion
from tuner.model.objective import timing_of
from tuner.model.plan import TunableValue
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


# --- The values.


@dataclass(frozen=True)
class Quantity:
    """A time or an energy of one round, rounded as the file has it.

    Attributes:
        value: in s or J; six digits.
        half: half of its 95 % interval; three digits, 0 where none is known.
    """

    value: float
    half: float = 0.0

    @classmethod
    def of(cls, value: float, half: float) -> "Quantity":
        """The same, rounded."""
        return cls(float(f"{value:.6g}"), float(f"{half:.3g}"))

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
    def timing(self) -> str:
        """Timing of its time: ``back-to-back`` or ``single``."""
        return timing_of(self.objective)

    def __str__(self) -> str:
        batched = ", ".join(f"{one.name} at a batch of {one.batch}" for one in self.workload)
        return f"{batched} on {self.gpu} for {self.objective}"

    def excludes(self, other: "LockedAnswer") -> bool:
        """True where both are answers to one question."""
        questions = [
            ({one.name: one.batch for one in each.workload}, each.gpu, each.objective, each.clock_mhz is None)
            for each in (self, other)
        ]
        return questions[0] == questions[1] and _overlap(self.driver, other.driver)


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


def covers(driver: str, version: str) -> bool:
    """True for a version that a range holds."""
    return _overlap(driver, version)


def _overlap(one: str, other: str) -> bool:
    (low, high), (least, most) = _ends(one), _ends(other)
    if not all(map(_parts, (low, high, least, most))):
        return one == other
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
            f"line {line} has a conflict of a merge ({conflict[0]!r}): keep one of the two answers, or write"
            " the file again with `tuner lock`"
        )
    try:
        return load_toml(text)
    except ValueError as error:
        raise ValueError(f"is damaged: {error}; write it again with `tuner lock`") from error


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
        key: vars(Quantity.parse(table[key], f"{key} ", unit))
        for key, unit in (("time", "s"), ("energy", "J"))
        if isinstance(table.get(key), str)
    }
    answer: LockedAnswer = typed(LockedAnswer, table | quantities)
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
