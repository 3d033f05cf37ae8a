"""A first kernel file for a CUDA C++ source: ``tuner kernels new``.

The compiler is asked what the source leaves undefined and which axes its code uses, launches of the host are
read where there are some, and what nobody tells is guessed: its line in the file says ``# GUESS``.
"""

import ast
import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from tuner.kernel_files.cuda_source.arguments import HALVES
from tuner.kernel_files.cuda_source.c_expressions import (
    SIZEOF,
    Node,
    Sum,
    divided,
    names_in,
    number,
    of_file,
    parsed_text,
    substituted,
    sum_of,
    text_of,
    written_sum,
)
from tuner.kernel_files.cuda_source.guesses import (
    Macro,
    constant_symbols,
    overwritten,
    role_of,
    struct_fields,
)
from tuner.kernel_files.cuda_source.signatures import (
    GlobalFunction,
    Parameter,
    defined_functions,
    dtype_of,
    global_functions,
)
from tuner.kernel_files.draft_code import BLOCK, SIZE, SMALL, WHOLE, Ask, Draft, Line, quoted, struct_name
from tuner.kernel_files.draft_launch import (
    BLOCKS,
    FIRST_AXIS,
    SIDES,
    SPATIAL,
    UNTOLD,
    DraftedLaunch,
    bytes_of,
)
from tuner.kernel_files.short_files import NAME_PATTERN
from tuner.kernel_files.triton_draft import drafted_triton
from tuner.model.errors import InputError, suggestion
from tuner.model.expressions.callables import is_free_name

_SQUARES = [8, 16, 32]
_FACTORS = [1, 2, 4, 8]
_MOST_FIXED = 1024  # of a constant that may be a tile or a block
_PACK = r"(?:\w*_)?(?:vec|vector|unroll|items|ilp|lanes?|per_thread)(?:_?\w+)?"
_VECTOR = re.compile(r"(u?char|u?short|u?int|u?long(?:long)?|float|double)([1-4])")
_OF_SYMBOLS = re.compile(r"__constant__|ToSymbol|FromSymbol|GetSymbolAddress")


def drafted(
    text: str, source: Path, kernel: str | None = None, *, ask: Ask, beside: Iterable[str] = ()
) -> Draft:
    """A kernel file for a source.

    Args:
        text: of the source.
        source: its path; the file names it relative to itself.
        kernel: which ``__global__`` function, with its parameters where several have the name, or which of
            Triton; None for the only one.
        ask: the compiler.
        beside: texts of files beside it, which may launch the kernel.

    Raises:
        InputError: there is no such function, or several and none is named.
    """
    if source.suffix == ".py":
        return drafted_triton(text, source, kernel)
    function = _chosen(text, source, kernel)
    return _Drafting(text, source, function, ask, beside).draft


def _chosen(text: str, source: Path, kernel: str | None) -> GlobalFunction:
    functions = defined_functions(text) or global_functions(text)
    if not functions:
        raise InputError(f"{source}: has no __global__ function")
    names = [function.name for function in functions]
    called = [str(one) if names.count(one.name) > 1 else one.qualified for one in functions]
    if kernel is None and len(functions) > 1:
        choices = " or ".join(f"--kernel {quoted(name) if '(' in name else name}" for name in called)
        raise InputError(f"{source}: has {len(names)} kernels; choose one: {choices}")
    wanted = "".join((kernel or "").split())
    fitting = [
        one
        for one in functions
        if kernel is None or wanted in (one.name, one.qualified, "".join(str(one).split()))
    ]
    if not fitting:
        raise InputError(
            f"{source}: no __global__ function is called {kernel!r}; there is {', '.join(called)}"
            f"{suggestion(str(kernel), called)}"
        )
    if len(fitting) > 1:
        choices = " or ".join(f"--kernel {quoted(str(one))}" for one in fitting)
        raise InputError(f"{source}: {len(fitting)} kernels are called {kernel}; choose one: {choices}")
    return fitting[0]


class _Drafting(DraftedLaunch):
    """A draft as it grows: each step adds what the next ones use."""

    def __init__(
        self, text: str, source: Path, function: GlobalFunction, ask: Ask, beside: Iterable[str]
    ) -> None:
        super().__init__(text, source, function, ask, beside)
        self._add_entry()
        self._add_sizes()
        self._add_block_and_grid()
        self._add_arguments()
        self._add_tunables()
        self._add_fixed()
        self._end()

    def _add_entry(self) -> None:
        several = len(global_functions(self.text)) > 1
        own = self._entry(filled=False)
        if several or self.typed or self.function.namespace or "(" in own:
            guess = f"{', '.join(self.open_types)} as float" if self.open_types else ""
            self.draft.entry = Line(quoted(own), guess)
        if self.others:
            options = [f"-D{name}={value}" for name, value in self.others.items()]
            guess = f"{', '.join(self.guessed_types)} as float" if self.guessed_types else ""
            self.draft.options = Line(json.dumps(options), guess)

    def _add_sizes(self) -> None:
        """Sizes: whole parameters that end an index, size an array or are called so, and macros likewise."""
        whole = [one.name for one in self.parameters if one.dtype in WHOLE and not one.pointer]
        for struct, fields in self.fields.items():
            whole += [f"{struct}.{field}" for field, kind in fields.items() if kind in WHOLE]
        ends = {one for _, end, _ in self.indexing.ends for one in names_in(self.indexing.resolved(end))}
        whole = [name for name in whole if name not in self._looped()]
        sized = self._host_sizes()
        carriers = [
            name
            for name in whole
            if name in ends or name in sized or re.fullmatch(SIZE, name.rpartition(".")[2], re.IGNORECASE)
        ]
        macros = [name for name in self.values if self._is_size_name(name) and not self.macros[name].default]
        alone = len(carriers) == 1 and not macros
        for name in carriers:
            same = [one for one in self.symbols if one in self.passed and self._are_same(one, name)]
            if same:  # f(..., n, ld) of f<<<...>>>(..., k, k)
                self.symbols[name] = self.symbols[same[0]]
                continue
            size = "N" if alone else name.rpartition(".")[2].upper()
            if not is_free_name(size) or size in self.values or size in self.constants:
                size = f"{size}_size" if is_free_name(f"{size}_size") else f"{size}_"
            self.symbols[name] = of_file(size)
            passed = self.passed.get(name)
            told = None if passed is None else number(substituted(passed, {**self.called, **self.stated}))
            self.draft.sizes.setdefault(size, self._size_line(name, told))
        for name in macros:
            self.sized[name] = self.values.pop(name)
            self.draft.sizes[name] = self._size_line(name, None, self.sized[name])
        if not self.draft.sizes:
            self._add_fixed_size()
        if not self.draft.sizes:
            name = "elements" if "N" in {*self.values, *self.constants} else "N"
            self.draft.sizes[name] = self._size_line(name, None, guess=UNTOLD)
        for name, node in self.passed.items():
            host = _single(node)
            while host and name in self.symbols:  # h.size() of a vector of n, and n
                self.symbols.setdefault(host, self.symbols[name])
                following = self.stated.get(host)
                host = "" if following is None else _single(following)

    def _are_same(self, one: str, other: str) -> bool:
        """Return True if the host passes one variable for two parameters."""
        nodes = [self.passed.get(name) for name in (one, other)]
        hosts = {_single(node) for node in nodes if node is not None}
        return None not in nodes and len(hosts) == 1 and hosts != {""}

    def _looped(self) -> set[str]:
        """Parameters that the host changes from launch to launch: by variables of loops around it."""
        around = self.launch.looped if self.launch is not None else frozenset[str]()
        return {name for name, node in self.passed.items() if names_in(node) & around}

    def _add_fixed_size(self) -> None:
        """The extent that a source has fixed, as ``#define WIDTH 512``, where the kernel is given none."""
        used = {token.text for token in self.function.body}
        for name in [one for one in self.constants if one in used and re.fullmatch(SIZE, one, re.IGNORECASE)]:
            value = number(self.constants[name])
            if value is not None and value > 1 and name not in self._names_of_block():
                size = f"{name}_size" if "N" in {*self.values, *self.constants} else "N"
                self.draft.sizes[size] = Line(f"[{value}]", f"{name} of the source, which has no other value")
                self.symbols[name] = of_file(size)
                del self.constants[name]  # so that indices name it
                return

    def _host_sizes(self) -> set[str]:
        """Parameters whose argument the host uses for the grid or for the bytes of an array."""
        if self.launch is None:
            return set()
        nodes = [*self.launch.grid, *self.launch.bytes.values()]
        used = {one for node in nodes if node is not None for one in names_in(node)}
        reached = {one for name in used if name in self.stated for one in names_in(self.stated[name])}
        alone = [{(one,): 1} for one in used | reached]
        return {name for name, node in self.passed.items() if sum_of(node) in alone}

    def _add_arguments(self) -> None:
        body = list(self.function.body)
        given, aliases = self.indexing.given(), self.indexing.aliases
        roles = {
            one.name: "in" if one.const else role_of(body, aliases(one.name), given)
            for one in self.parameters
            if one.pointer
        }
        unseen = not set(roles.values()) & {"out", "inout"}  # a function writes
        if unseen:
            roles |= {one.name: "inout" for one in self.parameters if one.pointer and not one.const}
        for place, parameter in enumerate(self.parameters, 1):
            name = parameter.name or f"argument{place}"
            taken = {*self.draft.sizes, *self.values} if parameter.pointer else set()
            if not is_free_name(name) or name in taken:  # a word of expressions
                name += "_" * is_free_name(f"{name}_")
            if not parameter.pointer:
                self._add_scalar(name, parameter)
                continue
            kind, lanes, guess = self._element(parameter)
            shape, told = self._shape(parameter, kind, lanes)
            guess = ", ".join(filter(None, [guess, "" if told else "the shape"]))
            axes = ", ".join([*shape, *([str(lanes)] if lanes > 1 else [])])
            role: str = roles[parameter.name]
            if role == "out" and self.indexing.leaves_border(parameter.name):
                role = "inout"
                guess = ", ".join(filter(None, [guess, "its border is not written, and stays as it is"]))
            elif role == "inout" and (unseen or overwritten(body, aliases(parameter.name))):
                role, in_place = "restored", "in place, so copied back behind every run; 'inout' is not"
                guess = ", ".join(filter(None, [guess, in_place]))
            self.draft.arguments[name] = Line(quoted(f"{role} {kind}[{axes}]"), guess)
        used = {token.text for token in body}
        for name, dtype, extents in constant_symbols(self.text, kept={*self.values, *self.draft.sizes}):
            if name not in used and self.foreign and name not in self._words_outside():
                continue
            if dtype is None:
                self._leave_open(name, "a __constant__ struct: as an array of bytes, 'constant uint8[...]'")
            else:
                nodes = [(text, parsed_text(text)) for text in extents]
                shape = [
                    text if node and not self._unknown_in(node) else str(self._number_of(text) or text)
                    for text, node in nodes
                ]
                self.draft.arguments[name] = Line(quoted(f"constant {dtype}[{', '.join(shape)}]"))

    def _words_outside(self) -> set[str]:
        """The words of the lines that are in no other kernel, and declare no constant."""
        lines = [
            line
            for place, line in enumerate(self.text.splitlines(), 1)
            if not self._is_foreign(place) and not _OF_SYMBOLS.search(line)
        ]
        return set(re.findall(r"\w+", "\n".join(lines)))

    def _element(self, parameter: Parameter) -> tuple[str, int, str]:
        """Element type of an array, how many make one of the kernel's elements, and what of it is guessed."""
        if parameter.type in HALVES or parameter.dtype is not None:
            return HALVES.get(parameter.type) or str(parameter.dtype), 1 + (parameter.type in HALVES), ""
        vector = _VECTOR.fullmatch(parameter.type)
        if vector is not None:
            return dtype_of(vector[1]) or "uint64", int(vector[2]), ""
        name = struct_name(parameter)
        fields = struct_fields(self.text, name) or {}
        if len(set(fields.values())) == 1:
            return next(iter(fields.values())), len(fields), ""
        size = self._number_of(f"sizeof({name})")
        if size:
            return "uint8", size, f"the bytes of {name}"
        return "float32", 1, f"{parameter.type} is not known"

    def _shape(self, parameter: Parameter, kind: str, lanes: int) -> tuple[list[str], bool]:
        """The axes of an array, and whether something tells them."""
        sizes, inner = [*self.draft.sizes], self.indexing.inner(parameter.name, self.symbols)
        fixed = {*sizes, *(name for name, node in self.symbols.items() if names_in(node) <= {*sizes})}
        candidates: list[Node] = []
        every = {*fixed, *self.values, *self.symbols}
        for known, threads in ((fixed, self.threads), (every, {})):  # rather without tunables
            reached = self.indexing.elements(parameter.name, known.__contains__, self.reach, threads)
            candidates += [] if reached is None else [substituted(reached, self.symbols)]
        allocated = self.allocated.get(parameter.name)
        guessed = {*re.findall(r"\w+", self.type_of[parameter.name])} & {*self.open_types}
        elements = None if allocated is None or guessed else self._allocated(allocated, kind, lanes)
        if elements is not None:
            first = names_in(elements) and not names_in(elements) & {*self.values}
            candidates.insert(0 if first or not candidates else 1, elements)
        followed = elements is not None or self.indexing.is_followed(parameter.name)
        for node in candidates:
            if not self._unknown_in(node):
                total = {one: value for one, value in sum_of(node).items() if one or value > 0}  # n - 1 as n
                factors = max(total, key=len, default=())
                loose = len(factors) > 1 and min(total.values()) < 0  # of the inner part: n * m - 2 * m
                axes = sorted(factors, key=lambda one: sizes.index(one) if one in sizes else len(sizes))
                if len(axes) > 2 and all(re.fullmatch(SPATIAL, one) for one in axes):  # noqa: PLR2004 - x last
                    axes.reverse()
                else:
                    axes.sort(key=lambda one: not re.fullmatch(FIRST_AXIS, one, re.IGNORECASE))
                axes.sort(key=lambda one: inner[one])
                sides = {name for total in self.threads.values() for factors in total for name in factors}
                tuned = names_in(node) & sides  # another block would be another problem
                told = followed and not loose and not tuned
                if factors and total[factors] == 1 and (loose or len(total) == 1):
                    return axes, told
                return [text_of(written_sum(total) if total != sum_of(node) else node)], told
        return self._sizes_as_axes(), False

    def _allocated(self, node: Node, kind: str, lanes: int) -> Node | None:
        """The elements of so many bytes."""
        own = substituted(self._of_host(node), self.symbols)
        total = sum_of(own)
        sizes = {factor for factors in total for factor in factors if factor.startswith(SIZEOF)}
        by: Sum = {(next(iter(sizes)),): 1} if len(sizes) == 1 else {(): bytes_of(kind) * lanes}
        quotient = divided(total, by)
        return None if not quotient else written_sum(quotient)

    def _add_scalar(self, name: str, parameter: Parameter) -> None:
        fields = self.fields.get(parameter.name)
        if parameter.dtype is not None:
            value = self._scalar_value(parameter)
            guess = "" if value else "its value is not told"
            if parameter.name in self._looped():
                guess = "the host launches in a loop that changes it; 'repeat' of [launch] is such a loop"
            line = Line(quoted(f"{parameter.dtype} = {value or 1}"), guess)
            self.draft.arguments[name] = line
        elif fields:
            symbols = {one: self.symbols.get(f"{parameter.name}.{one}", of_file("1")) for one in fields}
            lines = [f"{one} = {quoted(f'{kind} = {text_of(symbols[one])}')}" for one, kind in fields.items()]
            self.draft.arguments[name] = Line(f"{{ {', '.join(lines)} }}", "the values of its fields")
        elif parameter.type.startswith(("cudaTexture", "cudaSurface")):
            self._leave_open(name, f"{parameter.type}: textures are not supported")
        else:
            way = "structs are written as { field = 'TYPE = VALUE', ... }"
            self._leave_open(name, f"{parameter.type}: {way}")

    def _scalar_value(self, parameter: Parameter) -> str:
        """The value of a size, or that the host passes, as the file writes it; empty where it is not told."""
        if parameter.name in self.symbols:
            return text_of(self.symbols[parameter.name])
        passed = self.passed.get(parameter.name)
        value = None if passed is None else substituted(self._of_host(passed), self.called)
        if value is None or self._unknown_in(value):
            return ""
        real = "float" in str(parameter.dtype)
        return ast.unparse(value).replace("//", "/") if real else text_of(value)

    def _leave_open(self, name: str, what: str) -> None:
        self.draft.arguments[f"# {name}"] = Line('"..."' + f"  # FILL IN: {what}")
        self.draft.missing.append(f"arguments.{name}: {what}")

    def _add_tunables(self) -> None:
        block = self.draft.launch.get("block")
        extents = re.sub(r"//\s*\w+", "", block.value) if block is not None else ""
        in_block = set(re.findall(r"\w+", extents))
        square = block is not None and any(block.value.count(quoted(name)) > 1 for name in in_block)
        read = [line.value for line in self.draft.arguments.values() if line.value.startswith('"in ')]
        template = {one.name for one in self.function.template}
        axes = {axis for text in read for axis in re.findall(r"\w+(?=[,\]])", text)}
        for name, value in self.values.items():
            macro = self.macros.get(name, Macro(""))
            if name in axes and name not in in_block and re.fullmatch(_PACK, name, re.IGNORECASE):
                self._regroup(name)
            elif name in axes and name not in in_block:  # another value would be another problem
                self.draft.sizes[name] = Line(f"[{value}]", "" if macro.default else "the size to tune for")
                continue
            if macro.is_bool:
                self.draft.tunables[name] = Line("[true, false]", "" if macro.default else "the values")
                self.draft.default[name] = bool(value)
                continue
            values = self._choices(name, value, macro, in_block=name in in_block, square=square)
            told = bool(macro.values)
            open_one = macro == Macro("") and name in self.text and name not in template
            guess = "" if told else f"{'undefined in the source; ' if open_one else ''}the values to try"
            self.draft.tunables[name] = Line(json.dumps(values), guess)
            self.draft.default[name] = value

    def _regroup(self, pack: str) -> None:
        """Have a size count elements where a parameter counts packs of them: ``y[i * VEC + v]``, i < n."""
        texts = [line.value for line in self.draft.arguments.values()]
        size = next(
            (one for one in self.draft.sizes if any(f"[{one}, {pack}]" in text for text in texts)), ""
        )
        if not size:
            return
        for line in (*self.draft.arguments.values(), *self.draft.launch.values()):
            whole = line.value.replace(f"[{size}, {pack}]", "[]")
            line.value = re.sub(rf"\b{size}\b", f"{size} // {pack}", whole).replace("[]", f"[{size}]")
            if line.value.endswith(f' = {size} // {pack}"'):
                line.guess = f"{size} counts elements, and this packs of {pack}"
        self.draft.rules.append(f"{size} % {pack} == 0")

    def _choices(self, name: str, value: int, macro: Macro, *, in_block: bool, square: bool) -> list[int]:
        """Values to try of a tunable, its default among them."""
        if macro.values:
            return sorted({*macro.values, value})
        if in_block:
            block = self.draft.launch["block"].value
            place = next(i for i, axis in enumerate(block.split(",")) if name in re.findall(r"\w+", axis))
            usual = _SQUARES if square else SIDES[min(place, 2)] if {*"[*"} & {*block} else BLOCKS
            usual = _FACTORS if re.search(rf"\d \* {name}\b", block) else usual
            return sorted({*usual, value})
        if macro.default:
            return sorted({max(1, value // 2), value, value * 2} if value > 1 else {1, 2, 4})
        return sorted({*_FACTORS, value} if value < 64 else {value // 2, value, value * 2})  # noqa: PLR2004 - a tile or a factor

    def _add_fixed(self) -> None:
        """Constants of the source that a launch, an index or a tile is made of: they could be tunables."""
        indexing = self.indexing
        nodes = [one for extents in indexing.shared.values() for one in extents if one is not None]
        nodes += [end.right for end in indexing.ends] + [step for _, step in indexing.steps]
        nodes += [one for one in indexing.values.values() if any("Idx." in name for name in names_in(one))]
        used = {name for node in nodes for name in names_in(node)}
        if self.launch is not None:
            sides = [node for node in (*self.launch.grid, *self.launch.block, self.launch.shared) if node]
            told = {**self.constants, **self.stated}
            used |= {name for node in sides for name in _reached(node, told)}
        opened = {  # names of the host for what is a tunable
            name
            for name, node in self.symbols.items()
            if len(self.macros.get(text_of(node), Macro("")).values) > 1
        }
        for name in sorted(used & {*self.constants} - opened, key=self.text.find):
            value = number(substituted(self.constants[name], self.constants))
            sized = re.fullmatch(rf"(?!{BLOCK}$)(?:{SIZE}|{SMALL}|\w*WARP\w*)", name, re.IGNORECASE)
            if value is not None and 1 < value <= _MOST_FIXED and not sized:
                self.draft.fixed[name] = value

    def _end(self) -> None:
        """Keep only values that the compiler takes, the others as by default; name what is still open."""
        if self.answer is not None and not self.answer.log:
            for name, line in self.draft.tunables.items():
                if line.value.startswith("[true") or self.macros[name].values == tuple(
                    json.loads(line.value)
                ):
                    continue
                if name.startswith("block_size_") and name not in self.text:
                    continue
                kept, default = [], self.values[name]
                for value in json.loads(line.value):
                    self.values[name] = value
                    answer = self.ask(self._entry(filled=True), self._options(), "")
                    if value == default or answer is None or not answer.log:
                        kept.append(value)
                self.values[name] = default
                line.value = json.dumps(kept)
        if not re.match(NAME_PATTERN, Path(self.draft.source).stem.lower().replace("_", "-")):
            self.draft.missing.append('kernel.name = "..."  # the name of the file is no name of a kernel')


def _single(node: Node) -> str:
    """The name that a tree is nothing but; empty where it is more."""
    names = names_in(node)
    return next(iter(names)) if len(names) == 1 and sum_of(node) == {tuple(names): 1} else ""


def _reached(node: Node, values: Mapping[str, Node]) -> set[str]:
    """The names of a tree, and those of what they stand for."""
    found, pending = set[str](), [node]
    while pending:
        names = names_in(pending.pop()) - found
        found |= names
        pending += [values[name] for name in names & {*values}]
    return found
