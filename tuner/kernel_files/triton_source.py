"""Triton files as text: parameters and decorators of a function, read with ``ast``, and nothing run.

What a parameter is compiled for follows from its argument as ``triton.jit`` has it: a whole number of 1 and
None are constants, of an address or a whole number it is known that 16 divides it, of all else the type.
"""

import ast
import itertools
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tuner.kernel_files.formulas import Location
from tuner.kernel_files.schema import NONE
from tuner.model.elements import element_dtype
from tuner.model.errors import suggestion
from tuner.model.plan import (
    Buffer,
    BufferView,
    Scalar,
    Source,
    Specialisation,
    StageArgument,
    TunableValue,
)

ALIGNMENT = 16
_WHOLE = ("int", "uint")
_TYPES = {
    **{f"{sign}int{bits}": f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)},
    **{
        f"{letter}{bits}": f"{word}{bits}"
        for letter, word in (("i", "int"), ("u", "uint"))
        for bits in (8, 16, 32, 64)
    },
    **{f"{letter}{bits}": f"float{bits}" for letter in ("fp", "float") for bits in (16, 32, 64)},
    **dict.fromkeys(("bf16", "bfloat16"), "bfloat16"),
    **dict.fromkeys(("bool", "i1", "u1", "int1", "uint1"), "bool"),
    "half": "float16",
    "float": "float32",
    "double": "float64",
    "int": "int32",
}


@dataclass(frozen=True)
class TritonParameter:
    """One parameter of a jitted function.

    Attributes:
        name: its name.
        constant: it is a ``tl.constexpr``.
        dtype: NumPy's name of the type that its annotation states; empty where it states none.
        default: its default, where that is a literal.
        has_default: it may be left out.
        specialised: values of 1, and of what 16 divides, are compiled in.
        aligned: that 16 divides it is compiled in.
        literal: its default, if any, is known.
    """

    name: str
    constant: bool
    dtype: str = ""
    default: TunableValue | None = None
    has_default: bool = False
    specialised: bool = True
    aligned: bool = True
    literal: bool = True

    @property
    def may_be_left_out(self) -> bool:
        """True where its default is known without running the file."""
        return self.has_default and self.literal

    def default_argument(self) -> Scalar | None:
        """The argument that its default is, by the rules of Triton; None for None."""
        value = self.default
        if value is None or isinstance(value, str):
            return None
        dtype = self.dtype or number_dtype(value)
        return Scalar(dtype, int(value) if isinstance(value, bool) else value)


def number_dtype(value: bool | float) -> str:
    """The type that Triton takes for a number of Python: whole ones are as wide as they need to be."""
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, float):
        return "float32"
    if -(2**31) <= value < 2**31:
        return "int32"
    return "uint64" if value >= 2**63 else "int64"


def has_type(dtype: str) -> bool:
    """True for a NumPy dtype name that Triton has a type for."""
    return dtype in _TYPES.values()


@dataclass(frozen=True)
class TritonFunction:
    """A jitted function.

    Attributes:
        name: its name.
        parameters: in their order.
        heuristics: parameters that ``@triton.heuristics`` gives a value; None where the source does not tell.
        line: of its definition in the file.
    """

    name: str
    parameters: tuple[TritonParameter, ...]
    heuristics: frozenset[str] | None = frozenset()
    line: int = 0

    @property
    def passed(self) -> tuple[TritonParameter, ...]:
        """Parameters that take arguments, in their order."""
        return tuple(one for one in self.parameters if not one.constant)

    @property
    def constants(self) -> tuple[TritonParameter, ...]:
        """Parameters that are constants of the code."""
        return tuple(one for one in self.parameters if one.constant)

    @property
    def asks_arguments(self) -> bool:
        """True where heuristics look at the arguments."""
        return self.heuristics is None or bool(self.heuristics)


def triton_function(
    source: Source, entry: str | None, location: Location, apart: Collection[str] = ()
) -> TritonFunction:
    """The jitted function of a source: the one of this name, or the only one that others do not call.

    Args:
        source: a Python file.
        entry: its name; None for the only one.
        location: of the key that names it.
        apart: names of functions that it is not.

    Raises:
        KernelFileError: the source is no Python, has no such function, or several where none is named.
    """
    functions = _functions(source, location)
    name = Path(source.path).name
    jitted = {one.name: one for one in functions if _is_jitted(one)}
    if entry is None:
        called = {
            called_name(node) for one in functions for node in ast.walk(one) if isinstance(node, ast.Call)
        }
        jitted = {name: one for name, one in jitted.items() if name not in (*called, *apart)}
        if not jitted:
            raise location.error(f"{name} has no function with @triton.jit")
        if len(jitted) > 1:
            listed = ", ".join(jitted)
            raise location.error(
                f"is needed, as {name} has {len(jitted)} functions with @triton.jit: {listed}"
            )
        return _read(next(iter(jitted.values())), location)
    if entry in jitted:
        return _read(jitted[entry], location)
    if any(one.name == entry for one in functions):
        raise location.error(f"{entry} of {name} is not jitted: write @triton.jit above it")
    choice = f"choose from {', '.join(jitted)}" if jitted else "it has none with @triton.jit"
    raise location.error(f"{name} has no function {entry!r}; {choice}{suggestion(entry, jitted)}")


MOST_MODULES = 1000  # that one file imports
_MENTIONS = "triton"


def imported_modules(path: Path, text: str, *, mention: str = _MENTIONS) -> tuple[tuple[str, str], ...]:
    """Modules that a Python file imports, and those that the ones of them import that mention Triton.

    Functions that a kernel calls, and constants that it uses, are in such modules. They are looked for beside
    the file, or above its package, and in ``PYTHONPATH``; not among packages that are installed, as by
    ``pip install --target``.

    Args:
        path: of the file.
        text: of it.
        mention: what another module has to mention for its own imports to count.

    Returns:
        (path from the folder that it is looked for in, text) of each, sorted.
    """
    places = [Path(place).absolute() for place in os.environ.get("PYTHONPATH", "").split(os.pathsep) if place]
    installed = [one for one in places if "site-packages" in one.parts or any(one.glob("*.dist-info"))]
    roots = [import_root(path), *(one for one in places if one not in installed)]
    pending, seen, found = [(path, text)], {path}, dict[str, str]()
    while pending and len(found) < MOST_MODULES:
        here, text = pending.pop()
        for root, file in _imported_files(here, text, roots):
            if file in seen:
                continue
            seen.add(file)
            try:
                inner = file.read_text(encoding="utf-8")
            except (OSError, UnicodeError):  # whoever runs the file is told
                continue
            found[file.relative_to(root).as_posix()] = inner
            if mention in inner:
                pending.append((file, inner))
    return tuple(sorted(found.items()))


def import_root(path: Path) -> Path:
    """The folder that a file's own imports begin in: above its package, or its own."""
    folder = path.parent
    while (folder / "__init__.py").is_file() and folder.name.isidentifier():
        folder = folder.parent
    return folder


def _imported_files(path: Path, text: str, roots: Sequence[Path]) -> Iterator[tuple[Path, Path]]:
    """Files that a Python file imports, with their roots; what is imported from a module may be one, too."""
    tree = _tree(text)
    for node in ast.walk(tree) if isinstance(tree, ast.Module) else ():
        begins = roots
        if isinstance(node, ast.Import):
            names = [one.name for one in node.names]
        elif isinstance(node, ast.ImportFrom):
            if node.level:
                begins = path.parents[node.level - 1 : node.level]
            base = node.module or ""
            names = [base, *(f"{base}.{one.name}".lstrip(".") for one in node.names)]
        else:
            continue
        for begin, name in itertools.product(begins, names):
            module = begin.joinpath(*name.split("."))
            for file in (module.with_suffix(".py"), module / "__init__.py"):
                root = next((one for one in roots if file.is_relative_to(one)), None)
                if root is not None and file.is_file():
                    yield root, file


def _tree(text: str) -> ast.Module | str:
    try:
        return ast.parse(text)
    except SyntaxError as error:
        return f"line {error.lineno}: {error.msg}"
    except (ValueError, RecursionError, MemoryError) as error:
        return str(error)


def _functions(source: Source, location: Location) -> list[ast.FunctionDef]:
    tree = _tree(source.text)
    if isinstance(tree, str):
        raise location.error(f"{source.path} is no Python: {tree}")
    return list(_of_module(tree.body))


def _of_module(body: Sequence[ast.stmt]) -> Iterator[ast.FunctionDef]:
    """Functions that a module has, those behind a condition too."""
    for node in body:
        if isinstance(node, ast.FunctionDef):
            yield node
        for field in ("body", "orelse", "finalbody"):
            if isinstance(node, ast.If | ast.Try | ast.With):
                yield from _of_module(getattr(node, field, []))


def called_name(decorator: ast.expr) -> str:
    """The last word of what a decorator calls: ``jit`` of ``@triton.jit(noinline=True)``."""
    target = decorator.func if isinstance(decorator, ast.Call) else decorator
    return target.attr if isinstance(target, ast.Attribute) else getattr(target, "id", "")


def _is_jitted(function: ast.FunctionDef) -> bool:
    return any(called_name(decorator) == "jit" for decorator in function.decorator_list)


def _read(function: ast.FunctionDef, location: Location) -> TritonFunction:
    arguments = function.args
    if arguments.vararg or arguments.kwarg:
        raise location.error(f"{function.name} takes *args or **kwargs, which is not supported")
    given = [*arguments.posonlyargs, *arguments.args]
    defaults: list[ast.expr | None] = [None] * (len(given) - len(arguments.defaults))
    defaults += [*arguments.defaults, *arguments.kw_defaults]
    given += arguments.kwonlyargs
    unspecialised = _named_by(function, "do_not_specialize", given)
    unaligned = _named_by(function, "do_not_specialize_on_alignment", given)
    parameters = tuple(
        _parameter(one, default, one.arg not in unspecialised, one.arg not in unaligned)
        for one, default in zip(given, defaults, strict=True)
    )
    heuristics = [one for one in function.decorator_list if called_name(one) == "heuristics"]
    return TritonFunction(function.name, parameters, _heuristics(heuristics), function.lineno)


def _parameter(one: ast.arg, default: ast.expr | None, specialised: bool, aligned: bool) -> TritonParameter:
    annotation = one.annotation
    text = (
        annotation.value if isinstance(annotation, ast.Constant) else annotation and ast.unparse(annotation)
    )
    words = str(text or "")
    dtype = _TYPES.get(words.rpartition(".")[2].strip(), "")
    # Triton compiles in nothing of the value of a number that is annotated as a float or as a bool
    by_value = specialised and not dtype.startswith(("float", "bfloat", "bool"))
    return TritonParameter(
        name=one.arg,
        constant="constexpr" in words,
        dtype=dtype,
        default=literal(default)[0],
        has_default=default is not None,
        specialised=by_value,
        aligned=by_value and aligned,
        literal=literal(default)[1],
    )


def literal(node: ast.expr | None) -> tuple[TunableValue | None, bool]:
    """The value of a literal, and whether it is one that a parameter may have."""
    try:
        value = None if node is None else ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        return None, False
    return (value, True) if isinstance(value, bool | int | float | str | None) else (None, False)


def _named_by(function: ast.FunctionDef, key: str, parameters: Sequence[ast.arg]) -> set[str]:
    """Parameters that an argument of ``@triton.jit`` lists, by name or by number."""
    for decorator in function.decorator_list:
        for keyword in decorator.keywords if isinstance(decorator, ast.Call) else ():
            if keyword.arg == key and isinstance(keyword.value, ast.List | ast.Tuple | ast.Set):
                listed = [
                    element.value for element in keyword.value.elts if isinstance(element, ast.Constant)
                ]
                return {
                    parameters[one].arg if isinstance(one, int) and 0 <= one < len(parameters) else str(one)
                    for one in listed
                }
    return set()


def _heuristics(decorators: Sequence[ast.expr]) -> frozenset[str] | None:
    """The parameters that heuristics give a value; None where a table of them is no literal."""
    names: set[str] = set()
    for decorator in decorators:
        call = decorator if isinstance(decorator, ast.Call) else None
        tables = [*call.args, *(keyword.value for keyword in call.keywords)] if call else []
        if not tables or not isinstance(tables[0], ast.Dict):
            return None
        keys = [key.value for key in tables[0].keys if isinstance(key, ast.Constant)]
        if len(keys) < len(tables[0].keys):
            return None
        names.update(map(str, keys))
    return frozenset(names)


def specialised(
    parameter: TritonParameter,
    argument: StageArgument | None,
    buffers: Mapping[str, Buffer],
    *,
    told: bool = False,
) -> Specialisation:
    """A parameter and its argument as code is compiled for them; None for an argument of Python's None.

    Args:
        parameter: the parameter.
        argument: an array by its name, a view of one, or a number.
        buffers: the arrays.
        told: heuristics see the argument.
    """
    name = parameter.name
    if argument is None or (isinstance(argument, Scalar) and argument.dtype == NONE):
        return Specialisation(name)
    if isinstance(argument, Scalar):
        whole = argument.dtype.startswith(_WHOLE)
        value = argument.value
        # a value of an annotated type is no constant: Triton takes its type from the annotation alone
        if whole and value == 1 and parameter.specialised and not parameter.dtype:
            return Specialisation(name, constant=1)
        divided = whole and parameter.aligned and value % ALIGNMENT == 0 and value != 1
        return Specialisation(name, argument.dtype, ALIGNMENT if divided else 1, told=value if told else None)
    view = argument if isinstance(argument, BufferView) else BufferView(str(argument), 0)
    buffer = buffers[view.buffer]
    offset = view.offset_elements * element_dtype(buffer.dtype).itemsize
    alignment = ALIGNMENT if offset % ALIGNMENT == 0 and parameter.aligned else 1
    return Specialisation(name, f"*{buffer.dtype}", alignment, told=buffer.shape if told else None)


# --- Which arrays a function writes: those whose address flows into a store.

STORES = ("store", "atomic_")
LOADS = ("load", "atomic_")
_OF_TRITON = ("tl", "triton", "libdevice", "math")
_HARMLESS = ("float", "int", "len", "min", "max", "range", "print", "isinstance", "getattr", "list", "tuple")
_MOST_PASSES = 20  # over one function, until no name is found to hold a further address


def reached_parameters(source: Source, entry: str, calls: tuple[str, ...] = STORES) -> frozenset[str]:
    """Parameters of which an address reaches one of some calls: the arrays that a function may write or read.

    An address that is handed to a function of another file may be written to.
    """
    functions = {one.name: one for one in functions_in(source.text)}
    return _reached(entry, functions, (), calls)


def functions_in(text: str) -> list[ast.FunctionDef]:
    """The functions of a module; none of what is no Python."""
    tree = _tree(text)
    return list(_of_module(tree.body)) if isinstance(tree, ast.Module) else []


def _reached(
    name: str,
    functions: Mapping[str, ast.FunctionDef],
    callers: tuple[str, ...],
    calls: tuple[str, ...],
) -> frozenset[str]:
    function = functions[name]
    parameters = [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]
    if name in callers:
        return frozenset(one.arg for one in parameters)
    held = {one.arg: frozenset([one.arg]) for one in parameters}
    for _ in range(_MOST_PASSES):
        before = dict(held)
        for target, value in assignments(function):
            for one in ast.walk(target):
                if isinstance(one, ast.Name):
                    held[one.id] = held.get(one.id, frozenset()) | _addresses(value, held)
        if held == before:
            break
    reached: set[str] = set()
    for call in (node for node in ast.walk(function) if isinstance(node, ast.Call)):
        for argument in _reached_by(call, functions, (*callers, name), calls):
            reached |= _addresses(argument, held)
    return frozenset(reached) & {one.arg for one in parameters}


def assignments(function: ast.FunctionDef) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Targets and values of all that a function assigns; of a loop, what it goes through."""
    for node in ast.walk(function):
        if isinstance(node, ast.Assign):
            yield from ((target, node.value) for target in node.targets)
        elif isinstance(node, ast.AugAssign | ast.NamedExpr) or (
            isinstance(node, ast.AnnAssign) and node.value
        ):
            yield node.target, node.value  # type: ignore[misc]  # of an AnnAssign it is there
        elif isinstance(node, ast.For):
            yield node.target, node.iter


def _addresses(node: ast.expr, held: Mapping[str, frozenset[str]]) -> frozenset[str]:
    """Parameters of which an expression may hold an address; what is loaded is none."""
    if isinstance(node, ast.Name):
        return held.get(node.id, frozenset())
    if isinstance(node, ast.Call) and called_name(node) == "load":
        return frozenset()
    children = (one.value if isinstance(one, ast.keyword) else one for one in ast.iter_child_nodes(node))
    return frozenset().union(*(_addresses(one, held) for one in children if isinstance(one, ast.expr)))


def _reached_by(
    call: ast.Call, functions: Mapping[str, ast.FunctionDef], callers: tuple[str, ...], calls: tuple[str, ...]
) -> Iterator[ast.expr]:
    """Expressions whose addresses a call is made for, or may hand on to one that is."""
    name = called_name(call)
    if name.startswith(calls):
        yield from call.args[:1]
        yield from (keyword.value for keyword in call.keywords if keyword.arg in ("pointer", "ptr"))
        yield call.func  # the descriptor, of its own store
        return
    if isinstance(call.func, ast.Name) and name in functions:
        inner = functions[name]
        parameters = [one.arg for one in (*inner.args.posonlyargs, *inner.args.args)]
        given = dict(zip(parameters, call.args, strict=False)) | {
            keyword.arg: keyword.value for keyword in call.keywords if keyword.arg
        }
        reached = _reached(name, functions, callers, calls)
        yield from (value for parameter, value in given.items() if parameter in reached)
        return
    root = call.func
    while isinstance(root, ast.Attribute):
        root = root.value
    known = isinstance(root, ast.Name) and root.id in (*_OF_TRITON, *_HARMLESS)
    if not known and isinstance(call.func, ast.Name):
        yield from (*call.args, *(keyword.value for keyword in call.keywords))
