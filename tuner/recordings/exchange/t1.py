"""T1, the input format of the autotuning community (1.0.0), as kernel files. Nothing of it is evaluated."""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from tuner.kernel_files.cuda_source.signatures import dtype_of, parameters_of
from tuner.kernel_files.drafting import quoted
from tuner.model.errors import ExpressionError, InputError
from tuner.model.expressions.callables import Expression, is_free_name
from tuner.model.plan import TunableValue
from tuner.recordings import checks
from tuner.recordings.exchange.build_files import values_of
from tuner.system.untrusted.compiler_options import RefusedOptionError, check_options

# --- Arguments of T1 documents as lines of ``[arguments]``.

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
        if values is None or not all(isinstance(one, (int, float)) for one in values):
            raise ValueError(f"{where}: {match[0]}: no parameter of numbers is called {match[2]!r}")
        numbers = [one for one in values if not isinstance(one, str)]
        return str(max(numbers) if match[1] == "max" else min(numbers))

    def size(match: re.Match[str]) -> str:
        place = int(match[1] or 0)
        if place >= len(sizes):
            raise ValueError(f"{where}: {match[0]}: ProblemSize has {len(sizes)} axes")
        return sizes[place]

    return _PROBLEM_SIZE.sub(size, _MAXIMUM.sub(extreme, text))


def is_constant(argument: Mapping[str, Any]) -> bool:
    """Return True if an argument is in constant memory."""
    return (argument.get("MemType") or argument.get("MemoryType")) in ("Constant", "Symbol")


def argument_line(argument: Any, where: str, read: Read, notes: list[str]) -> str:  # noqa: ANN401 - any JSON
    """An argument as a line of ``[arguments]``.

    Args:
        argument: the JSON value.
        where: its place, for messages.
        read: makes an expression of a text.
        notes: gets what is left out or guessed.

    Raises:
        ValueError: it is of a kind that kernel files do not have; the message names the key.
    """
    name = checks.one(argument, "Name", where, checks.NAME)
    if not name.isidentifier():
        raise ValueError(f"{where}: Name is {name!r}; expected an identifier")
    dtype, lanes = _element(checks.one(argument, "Type", where, checks.TEXT), where)
    memory = argument.get("MemType") or argument.get("MemoryType")
    if memory == "Scalar":
        value = read(argument.get("FillValue", 0), f"{where}: FillValue")
        return f"{name} = {json.dumps(f'{dtype} = {value}')}"
    size = read(checks.member(argument, "Size", where), f"{where}: Size")
    shape = f"{size}, {lanes}" if lanes > 1 else size
    if is_constant(argument):
        return f"{name} = {json.dumps(f'constant {dtype}[{shape}]{_fill(argument, name, dtype, notes)}')}"
    if memory not in ("Vector", None):
        raise ValueError(f"{where}: MemoryType is {memory!r}; expected Scalar, Vector, Constant or Symbol")
    role = _ROLES.get(str(argument.get("AccessType", "ReadWrite")))
    if role is None:
        raise ValueError(f"{where}: AccessType is {argument['AccessType']!r}; expected {', '.join(_ROLES)}")
    made = "" if role == "out" else _fill(argument, name, dtype, notes)
    return f"{name} = {json.dumps(f'{role} {dtype}[{shape}]{made}')}"


def _element(kind: str, where: str) -> tuple[str, int]:
    """The dtype of an element, and how many make one of the kernel's vectors."""
    vector = _VECTOR.fullmatch(kind) if kind not in _FIXED else None
    base, lanes = (vector[1], int(vector[2])) if vector else (kind, 1)
    spelt = re.sub(r"^u(?=char|short|int$|long)", "unsigned ", base)
    dtype = _FIXED.get(base) or dtype_of(spelt)
    if dtype is None:
        raise ValueError(f"{where}: Type is {kind!r}; expected bool, int8 ... uint64, half, float or double")
    return dtype, lanes


def _fill(argument: Mapping[str, Any], name: str, dtype: str, notes: list[str]) -> str:
    """Return the fill of an argument's values; empty for the default if kernel files have no counterpart."""
    fill, value = argument.get("FillType"), argument.get("FillValue")
    number = value if checks.NUMBER.accepts(value) else None
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


def source_of_t1(document: Mapping[str, Any]) -> str:
    """The path of the source that a T1 document names.

    Raises:
        ValueError: it names none.
    """
    where = "KernelSpecification"
    name: str = checks.one(checks.table(document, where, "T1 file"), "KernelFile", where, checks.NAME)
    return name


def kernel_of_t1(document: Mapping[str, Any], source_text: str = "", source: str = "") -> ImportedKernel:
    """A T1 document as a kernel file.

    Args:
        document: the JSON value.
        source_text: CUDA C++ of the kernel, if it is at hand.
        source: path that the kernel file shall name; empty for that of the document.

    Raises:
        ValueError: something in it is missing, not supported or not to be trusted; the message names the key.
    """
    return _Importer(document, source_text).kernel(source or source_of_t1(document))


class _Importer:
    """Collects the tables of the kernel file, and notes."""

    def __init__(self, document: Mapping[str, Any], source_text: str) -> None:
        self.document = document
        self.source_text = source_text
        self.space = checks.table(document, "ConfigurationSpace", "T1 file")
        self.specification = checks.table(document, "KernelSpecification", "T1 file")
        self.notes = [f"{key} is left out: {why}" for key, why in _LEFT_OUT.items() if key in document]
        self.tunables: dict[str, tuple[TunableValue, ...]] = {}
        self.default: dict[str, TunableValue] = {}
        self.sizes: dict[str, int] = {}

    def kernel(self, source: str) -> ImportedKernel:
        where = "KernelSpecification"
        language = checks.one(self.specification, "Language", where, checks.TEXT)
        if language != "CUDA":
            raise ValueError(f"{where}: Language is {language!r}; only CUDA kernels can be tuned")
        entry = checks.one(self.specification, "KernelName", where, checks.NAME)
        self._read_tunables()
        self._read_sizes()
        general = self.document.get("General") or {}
        given = general.get("BenchmarkName") if isinstance(general, Mapping) else None
        name = re.sub(r"[^a-z0-9]+", "-", str(given or entry).lower()).strip("-") or "imported"
        named = {"name": name, "source": source, "entry": entry}
        lines = ["[kernel]", *(f"{key} = {quoted(text)}" for key, text in named.items())]
        options = self._options()
        lines += [f"options = {json.dumps(options)}"] if options else []
        lines += ["", "[problem]", *(f"sizes.{axis} = [{size}]" for axis, size in self.sizes.items())]
        lines += ["", "[arguments]", *self._arguments()]
        lines += [
            "",
            "[tunables]",
            *(f"{key} = {json.dumps(list(one))}" for key, one in self.tunables.items()),
        ]
        rules = self._rules()
        lines += ["", "[constraints]", f"rules = {json.dumps(rules)}"] if rules else []
        if set(self.default) == set(self.tunables):
            lines += ["", "[default]", *(f"{key} = {json.dumps(one)}" for key, one in self.default.items())]
        elif self.default:
            self.notes.append("Default is left out, as not every parameter has one")
        lines += ["", "[launch]", *self._launch()]
        return ImportedKernel(name, "\n".join(lines) + "\n", self.notes)

    def _read_tunables(self) -> None:
        for i, one in enumerate(checks.objects(self.space, "TuningParameters", "ConfigurationSpace")):
            where = f"ConfigurationSpace.TuningParameters[{i}]"
            name = checks.one(one, "Name", where, checks.NAME)
            if not name.isidentifier() or not is_free_name(name) or name in self.tunables:
                raise ValueError(f"{where}: Name is {name!r}; it must be a name that no other parameter has")
            try:
                self.tunables[name] = values_of(checks.member(one, "Values", where))
            except ValueError as error:
                raise ValueError(f"{where} ({name}): Values: {error}") from None
            default = one.get("Default")
            if default in self.tunables[name]:
                self.default[name] = default
            elif default is not None:
                self.notes.append(f"{name}: its Default {checks.shown(default)} is none of its values")
        if not self.tunables:
            raise ValueError("ConfigurationSpace: TuningParameters is empty")

    def _read_sizes(self) -> None:
        given = self.specification.get("ProblemSize")
        if given is None:
            return
        listed = given if isinstance(given, list) else [given]
        if not listed or len(listed) > len(_AXES) or not all(map(checks.SIZE.accepts, listed)):
            raise ValueError(
                f"KernelSpecification: ProblemSize is {checks.shown(given)}; expected one to three numbers"
            )
        self.sizes = dict(zip(_AXES, listed, strict=False))
        taken = self.sizes.keys() & self.tunables.keys()
        if taken:
            raise ValueError(f"a parameter is called {min(taken)}, as the size along that axis; rename it")

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
            raise ValueError(f"{where}: {checks.shown(text)} uses {min(unknown)}, which is no parameter")
        return written

    def _options(self) -> list[str]:
        options = _listed(self.specification, "CompilerOptions", "KernelSpecification")
        if not all(map(checks.TEXT.accepts, options)):
            raise ValueError(
                f"KernelSpecification: CompilerOptions is {checks.shown(options)}; expected a list of texts"
            )
        left = [one for one in options if _UNKNOWN_OPTION.match(one)]
        if left:
            self.notes.append(f"CompilerOptions: left out, as NVRTC is told otherwise: {' '.join(left)}")
        kept = [one for one in options if one not in left]
        if any("{" in one or "}" in one for one in kept):
            raise ValueError("KernelSpecification: CompilerOptions: braces have a meaning in kernel files")
        try:
            check_options(kept)
        except RefusedOptionError as error:
            raise ValueError(f"KernelSpecification: CompilerOptions: {error}") from None
        asked = re.search(r"\bkernel_tuner\b", self.source_text) is not None
        return [*kept, *(["-Dkernel_tuner=1"] if asked and "-Dkernel_tuner=1" not in kept else [])]

    def _arguments(self) -> list[str]:
        found = []
        for i, one in enumerate(checks.objects(self.specification, "Arguments", "KernelSpecification")):
            where = f"KernelSpecification.Arguments[{i}]"
            line = argument_line(one, where, self.expression, self.notes)
            found.append(line)
            if is_constant(one) and self._takes_constants():  # Kernel Tuner hands them over as well
                parameter = {
                    **one,
                    "Name": f"{one['Name']}_argument",
                    "MemType": "Vector",
                    "MemoryType": "Vector",
                }
                found.append(argument_line(parameter, where, self.expression, []))
        if self.specification.get("ReferenceArguments"):
            self.notes.append(
                'ReferenceArguments are left out: [problem] reference takes file("expected.npy")'
            )
        return found

    def _takes_constants(self) -> bool:
        """Return True if the kernel has a parameter for every argument, constant memory included."""
        try:
            taken = parameters_of(self.source_text, str(self.specification["KernelName"]))
        except InputError:
            return False
        return len(taken) == len(self.specification["Arguments"])

    def _rules(self) -> list[str]:
        block = self._extents("LocalSize", [f"block_size_{axis.lower()}" for axis in _AXES])
        factors = [f"({text})" if " " in text else text for text in block if text != "1"]
        rules = [f"{' * '.join(factors)} <= {_MAX_BLOCK_THREADS}"] if len(factors) > 1 else []
        for i, one in enumerate(_listed(self.space, "Conditions", "ConfigurationSpace")):
            where = f"ConfigurationSpace.Conditions[{i}]"
            text = checks.one(one, "Expression", where, checks.TEXT)
            rules.append(self.expression(text, f"{where}: Expression"))
        return rules

    def _launch(self) -> list[str]:
        block = self._extents("LocalSize", [f"block_size_{axis.lower()}" for axis in _AXES])
        grid = self._grid(block)
        lines = [f"grid = {json.dumps(grid)}", f"block = {json.dumps(block)}"]
        shared = self.specification.get("SharedMemory") or 0
        if not checks.COUNT.accepts(shared):
            raise ValueError(f"KernelSpecification: SharedMemory is {checks.shown(shared)}; expected bytes")
        return [*lines, *([f"shared_bytes = {shared}"] if shared else [])]

    def _extents(self, key: str, usual: Sequence[str] = ()) -> list[str]:
        given = self.specification.get(key)
        if not isinstance(given, Mapping):
            return [name if name in self.tunables else "1" for name in usual]
        return [self.expression(given.get(axis, 1), f"KernelSpecification.{key}.{axis}") for axis in _AXES]

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
        axis, given = _AXES[i], divisors[i]
        if axis not in self.sizes:
            return "1"
        if given is None and not any(divisors):
            given = [f"block_size_{axis.lower()}"]
        where = f"KernelSpecification.GridDiv{axis}"
        listed = given if isinstance(given, list) else [] if given is None else [given]
        texts = [f"({self.expression(one, where)})" for one in listed]
        return f"ceil_div({axis}, {' * '.join(texts)})" if texts else axis


def _listed(mapping: Mapping[str, Any], key: str, where: str) -> list[Any]:
    """The list of a key that may be left out."""
    return [] if mapping.get(key) is None else checks.objects(mapping, key, where)
