"""The formats of the autotuning community: T1, its input, as kernel files; T4, its results.

Nothing of a document is evaluated.
"""

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypedDict

from tuner.kernel_files.cuda_source.signatures import dtype_of, parameters_of
from tuner.kernel_files.draft_code import quoted
from tuner.model.errors import ExpressionError, InputError
from tuner.model.expressions.callables import Expression, is_free_name
from tuner.model.plan import TunableValue
from tuner.model.trial import Measurement, Status, WorkloadResult
from tuner.recordings import checking
from tuner.recordings.checking import Fields
from tuner.recordings.exchange.build_files import values_of
from tuner.recordings.exchange.exported_run import ExportedRun, ExportedTrial, milliseconds
from tuner.recordings.other_tuners import (
    axis_sizes,
    closed_json,
    measurement,
    one_workload,
    packed_text,
    read_cache,
)
from tuner.recordings.values import RecordedSpace
from tuner.system.untrusted.compiler_options import RefusedOptionError, check_options
from tuner.system.untrusted.reading import load_json

# --- T1 (1.0.0): arguments of a document as lines of ``[arguments]``.

_VECTOR = re.compile(r"(half|float|double|u?int\d*|u?char|u?short|u?long)(2|3|4|8|16)")
_FIXED = {f"{sign}int{bits}": f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)}
_ROLES = {"ReadOnly": "in", "WriteOnly": "out", "ReadWrite": "inout"}
_MAXIMUM = re.compile(r"\b(max|min)\(\s*([A-Za-z_]\w*)\s*\)")
_PROBLEM_SIZE = re.compile(r"\bProblemSize(?:\s*\[\s*(\d)\s*\])?")

Read = Callable[[object, str], str]
"""Makes an expression of a text; the second argument is the place for messages."""


def size_text(
    text: str, tunables: Mapping[str, Sequence[TunableValue]], sizes: Sequence[str], where: str
) -> str:
    """An expression with ``ProblemSize[i]`` and ``max(parameter)`` as kernel files write them.

    Raises:
        ValueError: a problem size or parameter of that name is not there.
    """

    def extreme(match: re.Match[str]) -> str:
        values = tunables.get(match[2])
        if values is None or not all(isinstance(value, (int, float)) for value in values):
            raise ValueError(f"{where}: {match[0]}: no parameter of numbers is called {match[2]!r}")
        numbers = [value for value in values if not isinstance(value, str)]
        return str(max(numbers) if match[1] == "max" else min(numbers))

    def size(match: re.Match[str]) -> str:
        axis = int(match[1] or 0)
        if axis >= len(sizes):
            raise ValueError(f"{where}: {match[0]}: ProblemSize has {len(sizes)} axes")
        return sizes[axis]

    return _PROBLEM_SIZE.sub(size, _MAXIMUM.sub(extreme, text))


def is_constant(argument: Fields) -> bool:
    """Return True if an argument is in constant memory."""
    return (argument.get("MemType") or argument.get("MemoryType")) in ("Constant", "Symbol")


def argument_line(argument: Fields, read: Read, notes: list[str]) -> str:
    """An argument as a line of ``[arguments]``.

    Args:
        argument: of the document.
        read: makes an expression of a text.
        notes: gets what is left out or guessed.

    Raises:
        ValueError: it is of a kind that kernel files do not have; the message names the key.
    """
    name, where = argument.value("Name", checking.NAME), argument.where
    if not name.isidentifier():
        raise ValueError(f"{where}: Name is {name!r}; expected an identifier")
    dtype, lanes = _element(argument.value("Type", checking.TEXT), where)
    memory = argument.get("MemType") or argument.get("MemoryType")
    if memory == "Scalar":
        value = read(argument.get("FillValue", 0), f"{where}: FillValue")
        return f"{name} = {json.dumps(f'{dtype} = {value}')}"
    size = read(argument["Size"], f"{where}: Size")
    shape = f"{size}, {lanes}" if lanes > 1 else size
    if is_constant(argument):
        return f"{name} = {json.dumps(f'constant {dtype}[{shape}]{_fill(argument, name, dtype, notes)}')}"
    if memory not in ("Vector", None):
        raise ValueError(f"{where}: MemoryType is {memory!r}; expected Scalar, Vector, Constant or Symbol")
    role = _ROLES.get(str(argument.get("AccessType", "ReadWrite")))
    if role is None:
        raise ValueError(f"{where}: AccessType is {argument['AccessType']!r}; expected {', '.join(_ROLES)}")
    fill = "" if role == "out" else _fill(argument, name, dtype, notes)
    return f"{name} = {json.dumps(f'{role} {dtype}[{shape}]{fill}')}"


def _element(kind: str, where: str) -> tuple[str, int]:
    """The dtype of an element, and how many make one of the kernel's vectors."""
    vector = _VECTOR.fullmatch(kind) if kind not in _FIXED else None
    base, lanes = (vector[1], int(vector[2])) if vector else (kind, 1)
    spelt = re.sub(r"^u(?=char|short|int$|long)", "unsigned ", base)
    dtype = _FIXED.get(base) or dtype_of(spelt)
    if dtype is None:
        raise ValueError(f"{where}: Type is {kind!r}; expected bool, int8 ... uint64, half, float or double")
    return dtype, lanes


def _fill(argument: Fields, name: str, dtype: str, notes: list[str]) -> str:
    """Return the fill of an argument's values; empty for the default if kernel files have no counterpart."""
    fill, value = argument.get("FillType"), argument.get("FillValue")
    number = value if checking.NUMBER.accepts(value) else None
    whole = "int" in dtype
    if fill == "Constant" and number is not None and dtype != "bool":
        return f" = constant({int(number) if whole else number})"
    if fill == "Random" and dtype != "bool":
        high = 1.0 if number is None else number
        if whole and high >= 1:
            return f" = integers(0, {int(high)})"
        if not whole and high > 0:
            return f" = uniform(0, {high})"
    if fill not in (None, "Random"):
        notes.append(f"{name}: FillType {fill!r} is left out; its values are the usual random ones")
    return ""


# --- A T1 document as a kernel file.

_AXES = "XYZ"
_MAX_BLOCK_THREADS = 1024  # of a block
_UNKNOWN_OPTION = re.compile(r"-(?:std=|-std=|O\d|Wno|Xcompiler|ccbin|arch|gencode|-gpu-architecture|I)")
_LEFT_OUT = {
    "Search": "search strategies are options of tuner run (--policy)",
    "Budget": "budgets are options of tuner run (--budget, --time-limit)",
}


class ImportedKernel(NamedTuple):
    """A kernel file made from a T1 document.

    Attributes:
        name: of the kernel.
        toml: text of the file.
        notes: what was left out or guessed, in words.
    """

    name: str
    toml: str
    notes: list[str]


def is_t1(document: object) -> bool:
    """Return True if a JSON value looks like a T1 document."""
    return isinstance(document, Mapping) and {"ConfigurationSpace", "KernelSpecification"} <= set(document)


def source_of_t1(document: object) -> str:
    """The path of the source that a T1 document names.

    Raises:
        ValueError: it names none.
    """
    name: str = _part(document, "KernelSpecification").value("KernelFile", checking.NAME)
    return name


def kernel_of_t1(document: object, source_text: str = "", source: str = "") -> ImportedKernel:
    """A T1 document as a kernel file.

    Args:
        document: the JSON value.
        source_text: CUDA C++ of the kernel, if it is at hand.
        source: path that the kernel file shall name; empty for that of the document.

    Raises:
        ValueError: something in it is missing, not supported or not to be trusted; the message names the key.
    """
    return _Importer(document, source_text).kernel(source or source_of_t1(document))


def _part(document: object, key: str) -> Fields:
    return Fields(document, "T1 file").fields(key, key)


class _Importer:
    """Collects the tables of the kernel file, and notes."""

    def __init__(self, document: object, source_text: str) -> None:
        self.document = Fields(document, "T1 file")
        self.source_text = source_text
        self.space = _part(document, "ConfigurationSpace")
        self.specification = _part(document, "KernelSpecification")
        self.notes = [f"{key} is left out: {why}" for key, why in _LEFT_OUT.items() if key in self.document]
        self.tunables: dict[str, tuple[TunableValue, ...]] = {}
        self.default: dict[str, TunableValue] = {}
        self.sizes: dict[str, int] = {}

    def kernel(self, source: str) -> ImportedKernel:
        language = self.specification.value("Language", checking.TEXT)
        if language != "CUDA":
            raise ValueError(f"KernelSpecification: Language is {language!r}; only CUDA kernels can be tuned")
        entry = self.specification.value("KernelName", checking.NAME)
        self._read_tunables()
        self._read_sizes()
        general = self.document.get("General") or {}
        benchmark = general.get("BenchmarkName") if isinstance(general, Mapping) else None
        name = re.sub(r"[^a-z0-9]+", "-", str(benchmark or entry).lower()).strip("-") or "imported"
        named = {"name": name, "source": source, "entry": entry}
        lines = ["[kernel]", *(f"{key} = {quoted(text)}" for key, text in named.items())]
        options = self._options()
        lines += [f"options = {json.dumps(options)}"] if options else []
        lines += ["", "[problem]", *(f"sizes.{axis} = [{size}]" for axis, size in self.sizes.items())]
        lines += ["", "[arguments]", *self._arguments()]
        lines += [
            "",
            "[tunables]",
            *(f"{key} = {json.dumps(list(values))}" for key, values in self.tunables.items()),
        ]
        rules = self._rules()
        lines += ["", "[constraints]", f"rules = {json.dumps(rules)}"] if rules else []
        if set(self.default) == set(self.tunables):
            lines += [
                "",
                "[default]",
                *(f"{key} = {json.dumps(value)}" for key, value in self.default.items()),
            ]
        elif self.default:
            self.notes.append("Default is left out, as not every parameter has one")
        lines += ["", "[launch]", *self._launch()]
        return ImportedKernel(name, "\n".join(lines) + "\n", self.notes)

    def _read_tunables(self) -> None:
        for i, each in enumerate(self.space.entries("TuningParameters")):
            where = f"ConfigurationSpace.TuningParameters[{i}]"
            parameter = Fields(each, where)
            name = parameter.value("Name", checking.NAME)
            if not name.isidentifier() or not is_free_name(name) or name in self.tunables:
                raise ValueError(f"{where}: Name is {name!r}; it must be a name that no other parameter has")
            try:
                self.tunables[name] = values_of(parameter["Values"])
            except ValueError as error:
                raise ValueError(f"{where} ({name}): Values: {error}") from None
            default = parameter.get("Default")
            if default in self.tunables[name]:
                self.default[name] = default
            elif default is not None:
                self.notes.append(f"{name}: its Default {checking.shown(default)} is none of its values")
        if not self.tunables:
            raise ValueError("ConfigurationSpace: TuningParameters is empty")

    def _read_sizes(self) -> None:
        problem_size = self.specification.get("ProblemSize")
        if problem_size is None:
            return
        listed = problem_size if isinstance(problem_size, list) else [problem_size]
        if not listed or len(listed) > len(_AXES) or not all(map(checking.SIZE.accepts, listed)):
            wrong = checking.shown(problem_size)
            raise ValueError(f"KernelSpecification: ProblemSize is {wrong}; expected one to three numbers")
        self.sizes = dict(zip(_AXES, listed, strict=False))
        names = self.sizes.keys() & self.tunables.keys()
        if names:
            raise ValueError(f"a parameter is called {min(names)}, as the size along that axis; rename it")

    def expression(self, text: object, where: str) -> str:
        """A text as an expression over sizes and parameters.

        Raises:
            ValueError: it is none.
        """
        written = size_text(str(text), self.tunables, list(self.sizes), where)
        try:
            expression = Expression(written)
        except ExpressionError as error:
            raise ValueError(f"{where}: {error}") from None
        unknown = expression.names - self.tunables.keys() - self.sizes.keys()
        if unknown:
            raise ValueError(f"{where}: {checking.shown(text)} uses {min(unknown)}, which is no parameter")
        return written

    def _options(self) -> list[str]:
        options = [text for text in _listed(self.specification, "CompilerOptions") if text != ""]  # BAT's
        if not all(map(checking.TEXT.accepts, options)):
            raise ValueError(
                f"KernelSpecification: CompilerOptions is {checking.shown(options)}; expected a list of texts"
            )
        unknown = [option for option in options if _UNKNOWN_OPTION.match(option)]
        if unknown:
            self.notes.append(f"CompilerOptions: left out, as NVRTC is told otherwise: {' '.join(unknown)}")
        options = [option for option in options if option not in unknown]
        if any("{" in option or "}" in option for option in options):
            raise ValueError("KernelSpecification: CompilerOptions: braces have a meaning in kernel files")
        try:
            check_options(options)
        except RefusedOptionError as error:
            raise ValueError(f"KernelSpecification: CompilerOptions: {error}") from None
        named = re.search(r"\bkernel_tuner\b", self.source_text) is not None
        return [*options, *(["-Dkernel_tuner=1"] if named and "-Dkernel_tuner=1" not in options else [])]

    def _arguments(self) -> list[str]:
        lines = []
        for i, each in enumerate(self.specification.entries("Arguments")):
            argument = Fields(each, f"KernelSpecification.Arguments[{i}]")
            lines.append(argument_line(argument, self.expression, self.notes))
            if is_constant(argument) and self._takes_constants():  # Kernel Tuner hands them over as well
                name = f"{argument['Name']}_argument"
                parameter = {**argument.raw, "Name": name, "MemType": "Vector", "MemoryType": "Vector"}
                lines.append(argument_line(Fields(parameter, argument.where), self.expression, []))
        if self.specification.get("ReferenceArguments"):
            self.notes.append(
                'ReferenceArguments are left out: [problem] reference takes file("expected.npy")'
            )
        return lines

    def _takes_constants(self) -> bool:
        """Return True if the kernel has a parameter for every argument, constant memory included."""
        try:
            parameters = parameters_of(self.source_text, str(self.specification["KernelName"]))
        except InputError:
            return False
        return len(parameters) == len(self.specification["Arguments"])

    def _rules(self) -> list[str]:
        block = self._extents("LocalSize", [f"block_size_{axis.lower()}" for axis in _AXES])
        factors = [f"({text})" if " " in text else text for text in block if text != "1"]
        rules = [f"{' * '.join(factors)} <= {_MAX_BLOCK_THREADS}"] if len(factors) > 1 else []
        for i, each in enumerate(_listed(self.space, "Conditions")):
            condition = Fields(each, f"ConfigurationSpace.Conditions[{i}]")
            text = condition.value("Expression", checking.TEXT)
            rules.append(self.expression(text, f"{condition.where}: Expression"))
        return rules

    def _launch(self) -> list[str]:
        block = self._extents("LocalSize", [f"block_size_{axis.lower()}" for axis in _AXES])
        grid = self._grid(block)
        lines = [f"grid = {json.dumps(grid)}", f"block = {json.dumps(block)}"]
        shared = self.specification.get("SharedMemory") or 0
        if not checking.COUNT.accepts(shared):
            raise ValueError(f"KernelSpecification: SharedMemory is {checking.shown(shared)}; expected bytes")
        return [*lines, *([f"shared_bytes = {shared}"] if shared else [])]

    def _extents(self, key: str, usual: Sequence[str] = ()) -> list[str]:
        extents = self.specification.get(key)
        if not isinstance(extents, Mapping):
            return [name if name in self.tunables else "1" for name in usual]
        return [self.expression(extents.get(axis, 1), f"KernelSpecification.{key}.{axis}") for axis in _AXES]

    def _grid(self, block: Sequence[str]) -> list[str]:
        """Blocks: problem size by divisors, as Kernel Tuner takes them; else what GlobalSize says."""
        divisors = [self.specification.get(f"GridDiv{axis}") for axis in _AXES]
        if self.sizes and (any(divisors) or not self.specification.get("GlobalSize")):
            return [self._blocks(i, divisors) for i in range(len(_AXES))]
        sizes = self._extents("GlobalSize")
        if not sizes:
            raise ValueError("KernelSpecification: neither ProblemSize nor GlobalSize tells the grid")
        if self.specification.get("GlobalSizeType") == "CUDA":
            return sizes
        return [f"ceil_div({size}, {threads})" for size, threads in zip(sizes, block, strict=True)]

    def _blocks(self, i: int, divisors: Sequence[Any]) -> str:
        axis, divisor = _AXES[i], divisors[i]
        if axis not in self.sizes:
            return "1"
        if divisor is None and not any(divisors):
            divisor = [f"block_size_{axis.lower()}"]
        where = f"KernelSpecification.GridDiv{axis}"
        listed = divisor if isinstance(divisor, list) else [] if divisor is None else [divisor]
        texts = [f"({self.expression(text, where)})" for text in listed]
        return f"ceil_div({axis}, {' * '.join(texts)})" if texts else axis


def _listed(fields: Fields, key: str) -> list[Any]:
    """The list of a key that may be left out."""
    return [] if fields.get(key) is None else fields.entries(key)


# --- T4, the results format of the autotuning community (schema 1.0.0), and files of other tools.

SCHEMA_VERSION = "1.0.0"
INVALIDITY = {
    Status.OK: "correct",
    Status.COMPILE_ERROR: "compile",
    Status.LAUNCH_ERROR: "runtime",
    Status.CRASHED: "runtime",
    Status.WRONG_ANSWER: "correctness",
    Status.TIMEOUT: "timeout",
    Status.PRUNED: "constraints",
}
_STATUS = {
    "correct": Status.OK,
    "compile": Status.COMPILE_ERROR,
    "runtime": Status.LAUNCH_ERROR,
    "correctness": Status.WRONG_ANSWER,
    "timeout": Status.TIMEOUT,
    "constraints": Status.LAUNCH_ERROR,
}
_UNITS_S = {"s": 1.0, "seconds": 1.0, "ms": 1e-3, "milliseconds": 1e-3, "us": 1e-6, "microseconds": 1e-6} | {
    "miliseconds": 1e-3,  # so spelt in public files
    "ns": 1e-9,
    "nanoseconds": 1e-9,
}
_MS_S = 1e-3
_CONSTRAINTS = "constraints"


def is_t4(document: object) -> bool:
    """Return True if a JSON value looks like T4 results."""
    results = document.get("results") if isinstance(document, Mapping) else None
    return isinstance(results, list) and all(
        isinstance(result, Mapping) and "configuration" in result for result in results
    )


class _Measured(TypedDict):
    name: str
    value: float
    unit: str


class _Result(TypedDict):
    configuration: dict[str, TunableValue]
    objectives: list[str]
    times: dict[str, list[float]]
    invalidity: str
    correctness: int
    measurements: list[_Measured]


class _Metadata(TypedDict):
    timeunit: str
    device_name: str
    kernel_name: str
    problem_size: list[int]


class Results(TypedDict):
    """A T4 document as it is written."""

    schema_version: str
    metadata: _Metadata
    results: list[_Result]


def results_of(run: ExportedRun) -> Results:
    """A run as a T4 document. Joules, their uncertainty and clocks are measurements."""
    return {
        "schema_version": SCHEMA_VERSION,
        "metadata": {
            "timeunit": "milliseconds",
            "device_name": run.device,
            "kernel_name": " + ".join(run.kernels),
            "problem_size": list(run.problem_size),
        },
        "results": [_result(run, trial) for trial in run.trials],
    }


def _result(run: ExportedRun, trial: ExportedTrial) -> _Result:
    measured = [] if trial.time_s is None else [_measured("time", milliseconds(trial.time_s), "ms")]
    if trial.energy_j is not None:
        measured.append(_measured("energy", trial.energy_j, "J"))
        measured.append(_measured("energy_uncertainty", trial.energy_uncertainty_j, "J"))
    if trial.clock_mhz is not None:
        measured.append(_measured("gpu_clock", trial.clock_mhz, "MHz"))
    if trial.power_limit_w is not None:
        measured.append(_measured("power_limit", trial.power_limit_w, "W"))
    limited = trial.status is Status.LAUNCH_ERROR and trial.detail == _CONSTRAINTS
    return {
        "configuration": run.parameters(trial),
        "objectives": ["time" if len(run.workloads) > 1 else run.objective],
        "times": {} if trial.time_s is None else {"runtimes": [milliseconds(trial.time_s)]},
        "invalidity": _CONSTRAINTS if limited else INVALIDITY[trial.status],
        "correctness": 1 if trial.status is Status.OK else 0,
        "measurements": measured,
    }


def _measured(name: str, value: float, unit: str) -> _Measured:
    return {"name": name, "value": value, "unit": unit}


def space_of_t4(document: object, name: str) -> RecordedSpace:
    """A T4 document as a recorded space. Joules are not read: their uncertainty has no place in the format.

    Args:
        document: the JSON value.
        name: of the kernel, where the document has none.

    Raises:
        ValueError: something in it is wrong; the message names the result and the key.
    """
    fields = Fields(document, "T4 file")
    metadata = fields.get("metadata") or {}
    unit = metadata.get("timeunit", "milliseconds") if isinstance(metadata, Mapping) else ""
    if not isinstance(unit, str) or unit not in _UNITS_S:
        raise ValueError(
            f"metadata.timeunit is {checking.shown(unit)}; expected one of {', '.join(_UNITS_S)}"
        )
    results = [Fields(each, f"results[{i}]") for i, each in enumerate(fields.entries("results"))]
    read = [_read(result, _UNITS_S[unit]) for result in results]
    names = list(dict.fromkeys(key for values, _ in read for key in values))
    for i, (values, _) in enumerate(read):
        if set(values) != set(names):
            raise ValueError(f"results[{i}].configuration has no {', '.join(set(names) - set(values))}")
    tunables = {key: tuple(dict.fromkeys(values[key] for values, _ in read)) for key in names}
    kernel = str(metadata.get("kernel_name") or name)
    return one_workload(
        name=kernel,
        kernel=kernel,
        device=str(metadata.get("device_name") or "unknown GPU"),
        sizes=axis_sizes(metadata.get("problem_size")),
        tunables=tunables,
        rows=[(tuple(values[key] for key in names), gave) for values, gave in read],
        provenance={"tuner": "T4 results", "file": name},
    )


def _read(result: Fields, unit_s: float) -> tuple[dict[str, TunableValue], Measurement]:
    configuration = result.fields("configuration")
    values = {name: configuration.value(name, checking.VALUE) for name in configuration}
    invalidity = result.value("invalidity", checking.one_of(list(_STATUS)))
    status = _STATUS[invalidity]
    if status is not Status.OK:
        return values, Measurement((WorkloadResult(status, detail=invalidity),))
    times = result.fields("times")
    runtimes = times.get("runtimes") or []
    if not isinstance(runtimes, list) or not all(map(checking.POSITIVE.accepts, runtimes)):
        raise ValueError(f"{times.where}: runtimes is {checking.shown(runtimes)}; expected times above zero")
    time_s = _time_measured(result, unit_s)
    if time_s is None and not runtimes:
        raise ValueError(
            f"{result.where}: a correct result needs times.runtimes, or a measurement called time"
        )
    mean = math.fsum(runtimes) / max(1, len(runtimes))
    spread = math.dist(runtimes, [mean] * len(runtimes)) / math.sqrt(max(1, len(runtimes) - 1))
    time_ms = (mean * unit_s if time_s is None else time_s) / _MS_S
    window_ms = math.fsum(runtimes) * unit_s / _MS_S
    return values, measurement("ok", time_ms, spread * unit_s / _MS_S, len(runtimes), window_ms=window_ms)


def _time_measured(result: Fields, unit_s: float) -> float | None:
    """The measurement called ``time`` in seconds; None where there is none."""
    for each in [] if result.get("measurements") is None else result.entries("measurements"):
        if (
            isinstance(each, Mapping)
            and each.get("name") == "time"
            and checking.NUMBER.accepts(each.get("value"))
        ):
            value = Fields(each, f"{result.where}.measurements").value("value", checking.POSITIVE)
            return float(value) * _UNITS_S.get(str(each.get("unit") or ""), unit_s)
    return None


# --- Files of other tools, told by what is in them.

_KNOWN = "a T1 input, T4 results, or a cache of Kernel Tuner"


class ForeignFile(NamedTuple):
    """A file of another tool.

    Attributes:
        kind: ``t1``, or what it is a recording of, in words.
        document: the JSON value.
        space: what it recorded; None of a T1 file.
        cut_off: whether its end was missing and has been added.
    """

    kind: str
    document: Any
    space: RecordedSpace | None
    cut_off: bool = False


def read_foreign(path: Path) -> ForeignFile:
    """Read a file of another tool.

    Raises:
        InputError: it cannot be read, or is none that is known; the message names the key.
    """
    try:
        path.stat()
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from error
    try:
        text = packed_text(path)
        document = closed_json(text)
        if is_t1(document):
            return ForeignFile("t1", load_json(text), None)
        if is_t4(document):
            return ForeignFile("T4 results", document, space_of_t4(document, path.name.partition(".")[0]))
    except (ValueError, RecursionError, OverflowError) as error:
        raise InputError(f"{path}: {_KNOWN} is expected: {error}") from error
    if isinstance(document, dict) and "cache" in document:
        return ForeignFile("cache of Kernel Tuner", document, read_cache(path), _is_cut_off(text))
    if isinstance(document, dict) and any(
        "BLOCK_SIZE_M" in one for one in document.values() if isinstance(one, dict)
    ):
        raise InputError(
            f"{path}: is a fused-MoE file of vLLM or SGLang, which has no times to import; a kernel file"
            " takes one of its configurations as [default]"
        )
    raise InputError(f"{path}: neither {_KNOWN.replace('a T1', 'T1')}; what it holds is not known")


def _is_cut_off(text: str) -> bool:
    try:
        load_json(text)
    except ValueError:
        return True
    return False
