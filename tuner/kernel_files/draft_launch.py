"""Grid, block and shared memory of a draft: of the host, else by the indices of the kernel, else guessed."""

import ast
import re
from collections.abc import Sequence
from typing import TypeGuard

import numpy as np

from tuner.kernel_files.cuda_source.c_expressions import (
    SIZEOF,
    Node,
    Sum,
    call,
    division,
    multiplied,
    names_in,
    number,
    of_file,
    parsed_text,
    substituted,
    sum_of,
    text_of,
    written_sum,
)
from tuner.kernel_files.cuda_source.guesses import Macro
from tuner.kernel_files.cuda_source.indexing import AXES
from tuner.kernel_files.cuda_source.signatures import dtype_of
from tuner.kernel_files.draft_code import BLOCK, SMALL, WHOLE, DraftedCode, Line, quoted
from tuner.model.expressions.callables import is_free_name

_MOST_THREADS = 1024
_LAUNCH_BOUNDS = re.compile(r"__launch_bounds__\s*\(([^,;{]*)")
BLOCKS = [32, 64, 128, 256, 512, 1024]
FIRST_AXIS = r"\w*(?:height|rows)|(?:\w*_)?(?:ny|m|h)"  # of two sizes, the one along y
SPATIAL = r"N?[XYZ]|WIDTH|HEIGHT|DEPTH"
UNTOLD = "no parameter tells the problem size"
SIDES = ([8, 16, 32, 64, 128], [1, 2, 4, 8, 16, 32], [1, 2, 4])


class DraftedLaunch(DraftedCode):
    """A kernel with its launch."""

    def _axes(self) -> int:
        """Axes along which the launch has several blocks or threads."""
        sides = () if self.launch is None else (self.launch.grid, self.launch.block)
        stated = [place for side in sides for place, node in enumerate(side, 1) if number(node) != 1]
        return max(self._axes_of("tid"), self._axes_of("ctaid"), *stated)

    def _axes_of(self, register: str) -> int:
        """Axes up to the last along which the code reads its place."""
        return max([1, *(AXES.find(one[-1]) + 1 for one in self._registers() if one[:-2] == register)])

    def _add_block_and_grid(self) -> None:
        """Add the launch to the draft."""
        axes = self._axes()
        block = [self._block(axis) for axis in AXES[:axes]]
        for axis, line in zip(AXES, block, strict=False):
            alone = self.macros.get(line.value, Macro("")).values == (self.values.get(line.value),)
            self.threads[axis] = sum_of(of_file(str(self.values[line.value]) if alone else line.value))
        grid = [self._grid(axis, block) for axis in AXES[:axes]]
        if not self.values and block[0].value.isdecimal():  # a file has a tunable
            block[0] = self._fixed("x", int(block[0].value))
        for side in (block, grid):
            while len(side) > 1 and side[-1].value == "1":
                side.pop()
        self.draft.launch["grid"] = _joined(grid)
        usual = [f"block_size_{axis}" for axis in AXES[: len(block)]]
        if [line.value for line in block] != usual or any(line.guess for line in block):
            self.draft.launch["block"] = _joined(block)
        shared = self._shared([line.value for line in block])
        if shared is not None:
            self.draft.launch["shared_bytes"] = _joined([shared])
        if self.answer is not None and self.answer.cooperative:
            self.draft.launch["cooperative"] = Line("true")
        stated = {word for text in _LAUNCH_BOUNDS.findall(self.text) for word in re.findall(r"\w+", text)}
        told = None if self.answer is None or stated & {*self.values} else self.answer.most_threads
        most = told or _MOST_THREADS  # what is stated by tunables follows them
        if any(not line.value.isdecimal() for line in block) and (
            len(block) > 1 or most < _MOST_THREADS or "*" in block[0].value
        ):
            sides = [f"({line.value})" if "//" in line.value else line.value for line in block]
            self.draft.rules.append(f"{' * '.join(sides)} <= {most}")
            whole = [re.fullmatch(r"(\w+) // (\w+)", line.value) for line in block]
            self.draft.rules += [f"{one[1]} % {one[2]} == 0" for one in whole if one is not None]

    def _block(self, axis: str) -> Line:
        """The threads along an axis: of the launch, else of the kernel's indices, else guessed."""
        free = f"ntid.{axis}" in self._registers()
        node = None if self.launch is None else _side(self.launch.block, axis)
        if node is not None:
            return self._block_of_host(axis, node, free=free)
        if f"tid.{axis}" not in self._registers():
            return Line("1")
        line = self._block_by_index(axis) or self._block_by_name(axis, free=free)
        if self.indexing.has_spare(axis):
            line.guess = line.guess or f"there may be more threads along {axis}, as some are left out"
        return line

    def _block_by_index(self, axis: str) -> Line | None:
        """The threads along an axis that the kernel's indices ask for; None where they ask for none."""
        extent = self.indexing.extent(axis) or {}
        names = [factor for factors in extent for factor in factors]
        if any(name.startswith("blockDim.") for name in names):
            return self._open_block(axis)
        inner = self._own_factor(extent)
        if inner is not None:
            plain = extent == {(inner,): 1} or inner == f"block_size_{axis}"
            shown = text_of(written_sum(extent))
            return Line(inner, "" if plain else f"of {shown}, {inner} is taken for the threads")
        if set(extent) == {()} and axis == "x":
            return self._fixed(axis, extent[()])
        if extent and all(name in self.values or name in self.symbols for name in names):
            return Line(text_of(substituted(written_sum(extent), self.symbols)))
        return None

    def _block_by_name(self, axis: str, *, free: bool) -> Line:
        """A tunable that is called as threads along an axis are; else one of its own."""
        called = self._called_block()
        like = next((name for name in called if name.lower().endswith(axis)), None)
        like = like or (called[0] if called and axis == "x" else None)
        if like is not None:
            return Line(like, "" if free else f"only its name says that {like} is the threads along {axis}")
        return self._open_block(axis, "" if free else "nothing says how many threads")

    def _own_factor(self, extent: Sum) -> str | None:
        """The factor of an extent that is a block's, where only one can be."""
        if len(extent) != 1:
            return None
        ((factors, value),) = extent.items()
        named = [factor for factor in factors if factor in self.values]
        if len(named) != len(factors) or not named:
            return None
        steps = {name for _, step in self.indexing.steps for name in names_in(self.indexing.resolved(step))}
        for fitting in (
            [name for name in named if len(named) == value == 1],
            [
                name
                for name in named
                if re.fullmatch(BLOCK, name, re.IGNORECASE) and "tile" not in name.lower()
            ],
            [name for name in named if name in steps and value == 1],
        ):
            if len(fitting) == 1:
                return fitting[0]
        return None

    def _open_block(self, axis: str, guess: str = "", default: int | None = None) -> Line:
        """A tunable for the threads along an axis, which the code reads from the launch."""
        name = f"block_size_{axis}"
        place = AXES.find(axis)
        axes = self._axes_of("tid")
        usual = ([256, 1, 1], [32, 8, 1], [32, 4, 2])[axes - 1]
        self.values.setdefault(name, default or usual[place])
        values = BLOCKS if axes == 1 else SIDES[place]
        most = self.answer.most_threads if self.answer is not None else None
        bounded = [one for one in values if one <= (most or _MOST_THREADS)]
        self.values[name] = min(self.values[name], most or _MOST_THREADS)
        self.macros[name] = Macro(str(self.values[name]), values=tuple(bounded))
        self.symbols.setdefault(f"blockDim.{axis}", of_file(name))
        return Line(name, guess)

    def _block_of_host(self, axis: str, node: Node, *, free: bool) -> Line:
        """The threads along an axis of the host, whose names for them stand for these from now on."""
        own = self._of_host(node, resolve=False)
        host = next((name for name in names_in(own) if sum_of(own) == {(name,): 1}), "")
        known = self._known_block(own, self._of_host(node), host)
        line = Line(text_of(known)) if known is not None else self._new_block(axis, node, host, free=free)
        symbol = of_file(line.value)
        if host:
            self.symbols[f"alias {host}"] = self.symbols[host] = symbol
        self._alias(axis, symbol)
        return line

    def _known_block(self, own: Node, resolved: Node, host: str) -> Node | None:
        """The threads that the host states, in names of the file; None where it has none for them."""
        for told in (own, resolved):
            if names_in(told) and not self._unknown_in(told):
                return told
        tied = next((name for name in self.values if host and _alike(name, host)), None)
        return self.symbols.get(f"alias {host}") if tied is None else of_file(tied)

    def _new_block(self, axis: str, node: Node, host: str, *, free: bool) -> Line:
        """The threads that the host states as a number, or by a name that nothing else has told."""
        value = number(self._of_host(node))
        inside = host in {token.text for token in self.function.body}
        fixed = inside or not free or (bool(self.indexing.shared) and not self._shared_by_block())
        if value == 1 or (value is not None and fixed and axis != "x"):
            return Line(str(value))
        if value is not None and fixed:
            return self._fixed(axis, value)
        line = self._open_block(axis, default=value)
        if value is not None or (free and host):
            return line
        shown = text_of(self._of_host(node, resolve=False))
        if not free and (called := self._called_block()):
            return Line(called[0], f"{shown} of the host is taken for {called[0]}")
        return Line(line.value, f"{shown} of the host is not followed")

    def _called_block(self) -> list[str]:
        return [name for name in self.values if re.fullmatch(BLOCK, name, re.IGNORECASE)]

    def _shared_by_block(self) -> bool:
        """Return True if all shared arrays are left to who launches, or do for any block."""
        extents = [node for nodes in self.indexing.shared.values() for node in nodes]
        return all(node is None for node in extents) or self.indexing.suits_any_block()

    def _fixed(self, axis: str, value: int) -> Line:
        """A tunable with one value: the threads that the source has fixed."""
        name = f"block_size_{axis}"
        self.values[name] = value
        self.macros[name] = Macro(str(value), values=(value,))
        return Line(name)

    def _alias(self, axis: str, symbol: Node) -> None:
        """Have ``block.x`` of the host and ``blockDim.x`` mean a name of the file."""
        self.symbols[f"blockDim.{axis}"] = symbol
        if self.launch is not None and self.launch.block_name:
            self.symbols[f"{self.launch.block_name}.{axis}"] = symbol
            if len(self.launch.block) == 1 and axis == "x":
                self.symbols.setdefault(self.launch.block_name, symbol)

    def _grid(self, axis: str, block: Sequence[Line]) -> Line:
        place = AXES.find(axis)
        node = None if self.launch is None else _side(self.launch.grid, axis)
        if node is not None:
            return self._grid_of_host(axis, node, block)
        return self._grid_by_index(axis, block[place].value)

    def _grid_by_index(self, axis: str, block: str) -> Line:
        place = AXES.find(axis)
        if f"ctaid.{axis}" not in self._registers():
            return Line("1")
        told = self.indexing.covered(axis)
        sizes = list(self.draft.sizes)
        along = [*reversed(self._sizes_as_axes()), *sizes][: place + 1]
        guess = "" if told is not None and told[1] is not None else "the end of the indices is not told"
        free = [name for name in sizes if not self._ends_a_loop(name)] or sizes
        if told is None:
            blocks = free[0] if place == 0 else along[-1]
            self.reach[axis] = sum_of(of_file(blocks)), sum_of(of_file(blocks))
            return Line(blocks, "nothing says how many blocks")
        covered, end = told
        covers = substituted(written_sum(covered), self.symbols)
        if end is None:
            end = self.indexing.row_of(axis)
            guess = guess and "no index is held against an end"
        ends = of_file(along[-1])
        if end is not None:
            ends = substituted(written_sum(_whole(sum_of(end))), self.symbols)
        if told[1] is None and covered == {(): 1}:
            ends = of_file(free[0])
        if self._unknown_in(ends):
            ends, guess = of_file(along[-1]), "the end of the indices is not followed"
        if self._unknown_in(covers):
            return Line(f"ceil_div({along[-1]}, {block})", "what a block covers is not followed")
        strided = "nctaid.x" in self._registers() and axis == "x"
        text = text_of(ends) if number(covers) == 1 else f"ceil_div({text_of(ends)}, {text_of(covers)})"
        self.reach[axis] = sum_of(of_file(text)), sum_of(ends)
        return Line(
            text, guess or ("" if not strided or number(covers) != 1 else "the grid strides over the rest")
        )

    def _ends_a_loop(self, size: str) -> bool:
        """Return True if a size ends an index that no block's number is in."""
        for left, right, _ in self.indexing.ends:
            if sum_of(substituted(self.indexing.resolved(right), self.symbols)) == {(size,): 1}:
                return not any(name.startswith("blockIdx") for name in names_in(self.indexing.resolved(left)))
        return False

    def _grid_of_host(self, axis: str, node: Node, sides: Sequence[Line]) -> Line:
        block = sides[AXES.find(axis)].value
        resolved = self._of_host(node)
        if left := self._unknown_in(resolved) - names_in(resolved):
            line = self._grid_by_index(axis, block)
            line.guess = f"{', '.join(sorted(left))} of the host is not followed"
            return line
        threads = self.values.get(block)
        if threads is not None:  # (n + 255) / 256, 256
            for inner in filter(_is_ceil_div, ast.walk(resolved)):
                if number(inner.args[1]) == threads:
                    inner.args[1] = of_file(block)
        for name in sorted(self._unknown_in(resolved)):
            told = self._number_of(name) if name.isidentifier() else 0
            if told:
                self.symbols[name] = of_file(str(told))
                continue
            size = re.sub(r"\W", "_", name).upper()
            like = next((one for one in (*self.draft.sizes, *self.values) if _alike(one, name)), size)
            if like == size and is_free_name(size):
                guess = f"{name} of the host is not followed"
                stated = number(self.called.get(name))
                self.draft.sizes.setdefault(size, self._size_line(name, stated, guess=guess))
            if like != size or is_free_name(size):
                self.symbols[name] = of_file(like)
        resolved = substituted(resolved, self.symbols)
        if left := self._unknown_in(resolved):
            return Line(text_of(resolved), f"{', '.join(sorted(left))} of the host is not followed")
        along = self.indexing.covered(axis)
        if number(resolved) and along is not None and along[1] is None and self._is_open(block):
            return self._grid_of_number(number(resolved) or 1, block)
        if along is None:
            self.reach[axis] = sum_of(resolved), sum_of(resolved)
            return Line(text_of(resolved))
        covers = substituted(written_sum(along[0]), self.symbols)
        resolved, guess = self._by_block(resolved, covers)
        self.reach[axis] = sum_of(resolved), _covered_by(resolved, covers)
        return Line(text_of(resolved), guess)

    def _is_open(self, block: str) -> bool:
        """Return True if a block may have other sizes, and no parameter tells that of the problem."""
        placeholder = [line.guess for line in self.draft.sizes.values()] == [UNTOLD]
        return placeholder and len(self.macros.get(block, Macro("")).values) > 1

    def _grid_of_number(self, blocks: int, block: str) -> Line:
        """The blocks of a problem that is as large as so many of the default's."""
        (name,) = self.draft.sizes
        whole = blocks * self.values[block]
        self.draft.sizes[name] = Line(f"[{whole}]", f"{blocks} blocks of {self.values[block]}")
        self.reach["x"] = sum_of(of_file(f"{name} // {block}")), sum_of(of_file(name))
        return Line(f"{name} // {block}")

    def _by_block(self, blocks: Node, covers: Node) -> tuple[Node, str]:
        """The blocks of the host by what one covers, where the host has a number for that; and a guess."""
        parts = [*blocks.args] if _is_ceil_div(blocks) else division(blocks)
        if not parts or self._unknown_in(covers) or not names_in(covers) - names_in(parts[1]):
            return blocks, ""
        plain = {name: of_file(str(value)) for name, value in self.values.items()}
        stated, own = (number(substituted(one, plain)) for one in (parts[1], covers))
        if own is None or stated != own:
            return blocks, f"the kernel's indices tell that a block covers {text_of(covers)}"
        parts[1] = covers
        by = call("ceil_div", *parts) if _is_ceil_div(blocks) else ast.BinOp(parts[0], ast.FloorDiv(), covers)
        return by, ""

    def _shared(self, block: Sequence[str]) -> Line | None:
        """The bytes of dynamic shared memory."""
        node = None if self.launch is None else self.launch.shared
        uses = self.answer is not None and self.answer.dynamic_shared
        if node is not None and (number(node) != 0 or uses):
            resolved = self._of_host(node)
            for name in self._unknown_in(resolved):
                if name.startswith(SIZEOF):
                    kind = self.typed.get(name.removeprefix(SIZEOF), "")
                    self.symbols[name] = of_file(str(bytes_of(dtype_of(kind) or "float32")))
            resolved = substituted(resolved, self.symbols)
            if not self._unknown_in(resolved):
                text = text_of(resolved)
                return None if text == "0" else Line(text)
        if not uses and not self._extern_element():
            return None
        threads = " * ".join(name for name in block if name != "1") or "1"
        return Line(
            f"{threads} * {bytes_of(self._extern_element() or 'float32')}",
            "an element of shared memory per thread",
        )

    def _extern_element(self) -> str | None:
        """The type of ``extern __shared__`` memory; None where the kernel has none."""
        words = [token.text for token in self.function.body]
        for index, word in enumerate(words):
            if word == "extern" and "__shared__" in words[index : index + 3]:
                first = words.index("__shared__", index) + 1
                kind = words[first : words.index("[", first) - 1] if "[" in words[first:] else []
                plain = " ".join(
                    self.typed.get(one, one) for one in kind if not one.startswith(("__align", "(", ")"))
                )
                return dtype_of(plain) or "float32"
        return None

    def _sizes_as_axes(self) -> list[str]:
        """The sizes as axes, that along x last."""
        sizes = list(self.draft.sizes)[:3]
        if len(sizes) == 1:
            return sizes * min(2, sum(f"ctaid.{axis}" in self._registers() for axis in AXES) or 1)
        sizes = sizes if all(re.fullmatch(SPATIAL, one) for one in sizes) else sizes[:2]
        first = [size for size in sizes if re.fullmatch(FIRST_AXIS, size, re.IGNORECASE)]
        return [*first, *(size for size in sizes if size not in first)] if len(sizes) == 2 else sizes[::-1]  # noqa: PLR2004 - a matrix

    def _size_line(self, name: str, told: int | None, small: int = 0, guess: str = "") -> Line:
        if told is not None and told > 0:
            return Line(f"[{told}]")
        if re.fullmatch(SMALL, name, re.IGNORECASE):
            return Line("[3]", "the size to tune for")
        axes = sum(f"ctaid.{axis}" in self._registers() for axis in AXES)
        scalars = sum(one.dtype in WHOLE and not one.pointer for one in self.parameters)
        alone = axes == 1 and scalars <= 1 and not self.draft.sizes
        value = small if small not in (0, 1024) else (1048576 if alone else 1024)
        return Line(f"[{value}]", guess or "the size to tune for")


def _side(extents: Sequence[Node | None], axis: str) -> Node | None:
    """The extent along an axis that the host states; None where it is none that can be followed."""
    place = AXES.find(axis)
    return extents[place] if place < len(extents) else parsed_text("1")


def _joined(lines: Sequence[Line]) -> Line:
    values = [quoted(line.value) if not line.value.isdecimal() else line.value for line in lines]
    guess = "; ".join(dict.fromkeys(line.guess for line in lines if line.guess))
    return Line(values[0] if len(values) == 1 else f"[{', '.join(values)}]", guess)


def _whole(end: Sum) -> Sum:
    """An end without what is taken off it: blocks that reach ``n`` reach ``n - 1``."""
    return {factors: value for factors, value in end.items() if factors or value > 0} or end


def _alike(one: str, other: str) -> bool:
    """Return True if two names differ in case and underscores only."""
    return one.replace("_", "").lower() == other.replace("_", "").lower()


def bytes_of(dtype: str) -> int:
    """The bytes of an element."""
    return 2 if dtype == "bfloat16" else np.dtype(dtype).itemsize


def _covered_by(blocks: Node, covers: Node) -> Sum:
    """All that blocks of a width cover: the dividend, where the width divides something to make them."""
    parts = blocks.args if _is_ceil_div(blocks) else division(blocks)
    if parts and sum_of(parts[1]) == sum_of(covers):
        return sum_of(parts[0])
    return sum_of(blocks) if sum_of(covers) == {(): 1} else multiplied(sum_of(blocks), sum_of(covers))


def _is_ceil_div(node: ast.AST) -> TypeGuard[ast.Call]:
    return isinstance(node, ast.Call) and ast.unparse(node.func) == "ceil_div"
