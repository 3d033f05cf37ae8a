"""A program to tune: its command with placeholders, its tunables, and what its output tells."""

import math
import re
import shutil
import signal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import blake2b
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, NoReturn

from tuner.model.errors import InputError
from tuner.model.plan import Configuration, TunableValue, Workload
from tuner.model.run_document import ProgramDocument
from tuner.model.typed import digest
from tuner.system.marks import LABEL_CHARACTERS, ended
from tuner.system.untrusted.reading import JSON_BYTES, load_json, read_text

if TYPE_CHECKING:
    from tuner.model.expressions.callables import Expression
    from tuner.space.space import Space

# --- Metrics: numbers that a program prints, or writes into a JSON file.

_NAME = re.compile(r"[A-Za-z][\w/%.-]*(?: [\w/%.-]+)*")
_RATE = re.compile(r"(?P<unit>.+)/s|(?P<time>s|ms|us)/(?P<of>.+)")
_SECONDS = {"s": 1.0, "ms": 1e-3, "us": 1e-6}
_SHOWN = 80  # characters of an output, in a message
_MATCHING_S = 5.0  # of processor time, for a regular expression on the output of a run


class MetricError(Exception):
    """A run did not tell a metric; the message says why, for people."""


@dataclass(frozen=True)
class Metric:
    """A number that each run of a program tells.

    Attributes:
        text: ``--metric`` as it was given: a regular expression whose last match in the output counts, or
            ``@FILE:KEY`` for a number in a JSON file that the program writes.
    """

    text: str

    @classmethod
    def parse(cls, text: str) -> "Metric":
        """A metric that can be read.

        Raises:
            InputError: it is neither form, or has no name.
        """
        metric = cls(text)
        if not metric._file:
            try:
                groups = re.compile(text).groups
            except re.error as error:
                raise InputError(f"--metric {text!r}: no regular expression: {error}") from error
            if groups != 1:
                raise InputError(
                    f"--metric {text!r}: needs one group around the number, as in 'tokens/s: ([0-9.]+)'"
                )
        elif not all(metric._file):
            raise InputError(f"--metric {text!r}: write @FILE:KEY, as in @result.json:eval.accuracy")
        if not metric.name:
            raise InputError(
                f"--metric {text!r}: begins with no name; name the group, as in (?P<accuracy>[0-9.]+)"
            )
        return metric

    @cached_property
    def name(self) -> str:
        """The name: of the group or, where that has none, the words before it; of a file the last key."""
        if self._file:
            return self._file[1].rpartition(".")[2]
        named = next(iter(re.compile(self.text).groupindex), "")
        begin = _NAME.match(self.text)
        return named or ("" if begin is None else begin[0])

    @property
    def _file(self) -> tuple[str, str] | None:
        """File and key; None of a regular expression."""
        if not self.text.startswith("@"):
            return None
        path, _, key = self.text[1:].rpartition(":")
        return path, key

    def units_per_s(self, value: float) -> float | None:
        """Units of work in a second that a value says, by the name: ``tokens/s``, ``ms/step``; else None."""
        rate = _RATE.fullmatch(self.name)
        if rate is None:
            return None
        return value if rate["time"] is None else 1.0 / (value * _SECONDS[rate["time"]]) if value else 0.0

    @property
    def unit(self) -> str:
        """The thing counted, such as ``token``: of a rate what it is of, else the name."""
        rate = _RATE.fullmatch(self.name)
        return self.name if rate is None else rate["unit"] or rate["of"]

    def read(self, output: str, began_at: float) -> float:
        """The number of a run.

        Args:
            output: of the run.
            began_at: when it began, seconds since the epoch: an older file is not its.

        Raises:
            MetricError: it has none, or one that is not finite.
        """
        text = self._of_output(output) if self._file is None else self._of_file(*self._file, began_at)
        try:
            value = float(text)
        except (TypeError, ValueError):
            raise MetricError(f"{self.name} is {str(text)[:40]!r}, which is no number") from None
        if not math.isfinite(value):
            raise MetricError(f"{self.name} is {value}")
        return value

    def _of_output(self, output: str) -> str:
        try:
            with _limited(_MATCHING_S):
                found = None
                for found in re.finditer(self.text, output):  # noqa: B007 - the last one counts
                    pass
        except TimeoutError:
            raise MetricError(f"{self.text!r} takes more than {_MATCHING_S:g} s to be looked for") from None
        if found is None:
            last = output.strip().rpartition("\n")[2][:_SHOWN]
            raise MetricError(
                f"nothing that it printed matches {self.text!r}; "
                + (f"its last line begins with {last!r}" if last else "it printed nothing")
            )
        return str(found[1])

    def _of_file(self, path: str, key: str, began_at: float) -> Any:  # noqa: ANN401 - whatever JSON has
        try:
            if Path(path).stat().st_mtime < began_at - 1.0:  # file systems keep whole seconds, some of them
                raise MetricError(f"{path} was not written by the run")
            value = load_json(read_text(Path(path), JSON_BYTES), non_finite=True)
        except (OSError, ValueError) as error:
            raise MetricError(f"{path}: {error}") from error
        for part in key.split("."):
            if not isinstance(value, Mapping) or part not in value:
                raise MetricError(f"{path} has no {key}")
            value = value[part]
        return value


@contextmanager
def _limited(seconds: float) -> Iterator[None]:
    """Raise a TimeoutError in a block of this thread, the main one, that takes more processor time."""

    def late(_number: int, _frame: FrameType | None) -> NoReturn:
        raise TimeoutError

    before = signal.signal(signal.SIGVTALRM, late)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0.0)
        signal.signal(signal.SIGVTALRM, before)


# --- Tunables, and the program.

PROFILE, AS_FOUND = "power_profile", "none"
"""A tunable that is a power profile of the GPU, and no word of the command; its first value is no profile."""

_WHEN = " if "
_VARIABLE = re.compile(r"[A-Za-z_]\w*")
_HASHED_BYTES = 2**24  # of files that the command names; of larger ones size and time
_SCRIPT = re.compile(r"[A-Za-z_][\w-]*(?:\.[\w-]+)+")
_INTERPRETERS = re.compile(r"(python[\d.]*|bash|sh|perl|ruby|node|julia|srun|mpirun|torchrun)")


@dataclass(frozen=True)
class Program:
    """A command, its tunables, and what of its output counts.

    Attributes:
        command: program and arguments; ``{name}`` stands for the value of a tunable.
        tunables: values of the tunables by name; the first of each is the default.
        environment: tunables that are environment variables.
        conditions: of the tunables that have a value only where an expression over those before is true.
        rules: expressions over the tunables that must be true.
        metrics: what each run tells.
        keep: conditions on metrics; a run that breaks one is no answer.
        per: name of the metric that counts the work of a run; empty for none.
        lent: values of placeholders that are no part of what the program is, as the seed of one job of many.
        phase: of one long run, in whose steps clock and power limit are chosen; empty for whole runs.
    """

    command: tuple[str, ...]
    tunables: Mapping[str, tuple[TunableValue, ...]] = field(default_factory=dict)
    environment: tuple[str, ...] = ()
    conditions: Mapping[str, str] = field(default_factory=dict)
    rules: tuple[str, ...] = ()
    metrics: tuple[Metric, ...] = ()
    keep: tuple[str, ...] = ()
    per: str = ""
    phase: str = ""
    lent: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of_options(
        cls,
        command: Sequence[str],
        *,
        tunables: Sequence[str] = (),
        environment: Sequence[str] = (),
        rules: Sequence[str] = (),
        metrics: Sequence[str] = (),
        keep: Sequence[str] = (),
        per: str = "",
        phase: str = "",
        profiles: Sequence[str] = (),
        lent: Sequence[str] = (),
    ) -> "Program":
        """The program that the options of ``tuner program run`` name.

        Raises:
            InputError: the program is not there, or an option cannot be; the message names it.
        """
        if shutil.which(command[0]) is None:
            raise InputError(f"{command[0]}: no such program, or it may not be run")
        lists: dict[str, tuple[TunableValue, ...]] = {}
        conditions = {}
        if profiles:
            lists[PROFILE] = (AS_FOUND, *(name for name in dict.fromkeys(profiles) if name != AS_FOUND))
        for option, texts in (("--tunable", tunables), ("--env", environment)):
            for text in texts:
                name, values, when = _tunable(option, text)
                if name == PROFILE:
                    raise InputError(f"{option} {text}: --power-profiles has this name; choose another")
                if name in lists:
                    raise InputError(f"{option} {text}: {name} is named twice")
                lists[name] = values
                if when:
                    conditions[name] = when
                if option == "--tunable" and not any(f"{{{name}}}" in word for word in command):
                    raise InputError(f"{option} {text}: nothing in the command says {{{name}}}")
        given = lent_values(command, lent)
        if twice := sorted(given.keys() & lists.keys()):
            raise InputError(f"--let {twice[0]}={given[twice[0]]}: {twice[0]} is a tunable")
        program = cls(
            tuple(command),
            lists,
            tuple(text.partition("=")[0] for text in environment),
            conditions,
            tuple(rules),
            tuple(map(Metric.parse, metrics)),
            tuple(keep),
            per,
            phase,
            given,
        )
        program._check()
        return program

    @classmethod
    def of_document(cls, document: ProgramDocument) -> "Program":
        """The program of a stored run."""
        return cls(
            tuple(document["command"]),
            {name: tuple(values) for name, values in document["tunables"].items()},
            tuple(document["environment"]),
            document["conditions"],
            tuple(document["rules"]),
            tuple(map(Metric, document["metrics"])),
            tuple(document["keep"]),
            document["per"],
            document.get("phase", ""),
        )

    def document(self) -> ProgramDocument:
        """The program as a stored run has it."""
        document: ProgramDocument = {
            "command": list(self.command),
            "tunables": {name: list(values) for name, values in self.tunables.items()},
            "environment": list(self.environment),
            "conditions": dict(self.conditions),
            "rules": list(self.rules),
            "metrics": [metric.text for metric in self.metrics],
            "keep": list(self.keep),
            "per": "" if self.counted is None else self.counted.name,
        }
        if self.phase:
            document["phase"] = self.phase
        return document

    def _check(self) -> None:
        whole = {"--tunable, --env and --power-profiles": self.tunables, "--metric": self.metrics}
        if self.phase and (given := [option for option, values in whole.items() if values]):
            raise InputError(f"--phase {self.phase}: it is one run, so leave {given[0]} out")
        if len(ended(self.phase)) > LABEL_CHARACTERS or not self.phase.isprintable():
            raise InputError(f"--phase {self.phase!r}: give it a short name of one line, as in step")
        names = [metric.name for metric in self.metrics]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise InputError(f"--metric: {twice} is named twice; name the group, as in (?P<other>[0-9.]+)")
        if self.per and self.per not in names:
            have = f"choose from {', '.join(names)}" if names else "--metric reads one"
            raise InputError(f"--per {self.per}: no metric has this name; {have}")
        for text, expression in zip(self.keep, self._kept, strict=True):
            unknown = sorted(expression.names - {f"m{i}" for i in range(len(names))})
            if unknown:
                have = f"metrics are {', '.join(names)}" if names else "--metric reads one"
                raise InputError(f"--keep {text!r}: {unknown[0]} is no metric; {have}")
        self.space()

    @cached_property
    def _kept(self) -> "tuple[Expression, ...]":
        """The conditions on metrics, whose names, such as ``tokens/s``, are replaced by ``m0``, ``m1``."""
        from tuner.model.expressions.callables import Expression  # noqa: PLC0415 - as in ``space``

        names = sorted(enumerate(self.metrics), key=lambda pair: -len(pair[1].name))
        places = {metric.name: f"m{i}" for i, metric in names}
        either = re.compile("|".join(map(re.escape, places)) or "(?!)")
        return tuple(Expression(either.sub(lambda found: places[found[0]], text)) for text in self.keep)

    @cached_property
    def counted(self) -> Metric | None:
        """The metric that times and joules are per unit of: ``per``, else the first rate; None for none."""
        by_name = {metric.name: metric for metric in self.metrics}
        if self.per:
            return by_name[self.per]
        return next((metric for metric in self.metrics if _RATE.fullmatch(metric.name)), None)

    def units_of(self, metrics: Mapping[str, float], duration_s: float) -> float:
        """Units of work of a run; 1 where nothing counts them."""
        if self.counted is None:
            return 1.0
        value = metrics[self.counted.name]
        rate = None if self.per and not _RATE.fullmatch(self.per) else self.counted.units_per_s(value)
        return value if rate is None else rate * duration_s

    def metrics_of(self, output: str, began_at: float) -> dict[str, float]:
        """The numbers that a run tells, by the names of the metrics.

        Raises:
            MetricError: it does not tell one, breaks a condition, or did no work.
        """
        values = {metric.name: metric.read(output, began_at) for metric in self.metrics}
        env = {f"m{i}": value for i, value in enumerate(values.values())}
        for text, expression in zip(self.keep, self._kept, strict=True):
            try:
                kept = bool(expression.evaluate(env))
            except InputError as error:
                raise MetricError(f"--keep {text!r}: {error}") from error
            if not kept:
                told = ", ".join(f"{name} {value:g}" for name, value in values.items() if name in text)
                raise MetricError(f"{told}: not {text}")
        if self.counted is not None and self.units_of(values, 1.0) <= 0.0:
            raise MetricError(f"{self.counted.name} is {values[self.counted.name]:g}: it did no work")
        return values

    def space(self) -> "Space":
        """The configurations of the tunables; one that is empty where there are none.

        Raises:
            InputError: values, conditions or rules that cannot be.
        """
        # To run an answer needs no NumPy, whose import takes longer than all else.
        from tuner.model.expressions.callables import Expression  # noqa: PLC0415
        from tuner.space.space import Condition, Space  # noqa: PLC0415

        if not self.tunables:
            if self.rules:
                raise InputError(f"--restrict {self.rules[0]!r}: there is no --tunable and no --env")
            return Space({}, [])
        conditions = {name: Condition(Expression(when)) for name, when in self.conditions.items()}
        try:
            return Space.build(self.tunables, self.rules, conditions=conditions)
        except InputError as error:
            raise InputError(f"--tunable, --env or --restrict: {error}") from error

    def rendered(self, configuration: Configuration) -> tuple[list[str], dict[str, str | None]]:
        """The command of a configuration, and its environment variables.

        A word with the placeholder of a tunable without a value there is left out; such a variable is unset.
        """
        values = {f"{{{name}}}": value for name, value in self.lent.items()}
        values |= {f"{{{name}}}": str(configuration[name]) for name in self.tunables if name in configuration}
        absent = [f"{{{name}}}" for name in self.tunables if name not in configuration]
        either = re.compile("|".join(map(re.escape, values)) or "(?!)")
        words = [
            either.sub(lambda found: values[found[0]], word)
            for word in self.command
            if not any(placeholder in word for placeholder in absent)
        ]
        return words, {name: values.get(f"{{{name}}}") for name in self.environment}

    @cached_property
    def workload(self) -> Workload:
        """The program as the workload of a run: what it is called, and a digest of the command."""
        words = [Path(word).name for word in self.command]
        scripts = [name for name in words[1:] if _SCRIPT.fullmatch(name)]
        name = scripts[0] if scripts and _INTERPRETERS.fullmatch(words[0]) else words[0]
        return Workload(f"{re.sub('[^A-Za-z0-9._-]', '_', name)}@{digest(list(self.command))[:6]}", (), 1)

    @cached_property
    def fingerprint(self) -> str:
        """Digest of the command, its options, and the files that it names."""
        program = shutil.which(self.command[0])
        paths = [Path(word) for word in ([program] if program else []) + list(self.command[1:])]
        return digest([self.document(), [_content(path) for path in paths]])


def lent_values(command: Sequence[str], texts: Sequence[str]) -> dict[str, str]:
    """The values of ``--let NAME=VALUE``.

    Raises:
        InputError: it is none, or nothing in the command has the name.
    """
    values = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not _VARIABLE.fullmatch(name):
            raise InputError(f"--let {text}: write NAME=VALUE, as in seed=$SLURM_ARRAY_TASK_ID")
        if not any(f"{{{name}}}" in word for word in command):
            raise InputError(f"--let {text}: nothing in the command says {{{name}}}")
        values[name] = value
    return values


def _tunable(option: str, text: str) -> tuple[str, tuple[TunableValue, ...], str]:
    """Name, values and condition of ``name=1,2,4`` or ``name=1,2,4 if other > 1``."""
    listed, _, when = text.partition(_WHEN)
    name, equals, values = listed.partition("=")
    words = [word.strip() for word in values.split(",")]
    if not equals or not _VARIABLE.fullmatch(name) or not all(words):
        raise InputError(f"{option} {text}: write NAME=VALUE,VALUE, as in batch=8,16,32")
    for kind in (int, float):
        try:
            numbers = tuple(map(kind, words))
        except ValueError:
            continue
        if list(map(str, numbers)) == words:  # else they are texts: the program gets what was written
            return name, numbers, when.strip()
    return name, tuple(words), when.strip()


def _content(path: Path) -> str:
    """A digest of a file's content; of a large one of size and time, of what is no file nothing."""
    try:
        if not path.is_file():
            return ""
        facts = path.stat()
        if facts.st_size > _HASHED_BYTES:
            return f"{facts.st_size} {facts.st_mtime_ns}"
        return blake2b(path.read_bytes(), digest_size=16).hexdigest()
    except (OSError, ValueError):  # ValueError: a NUL in a word
        return ""
