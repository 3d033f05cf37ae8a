"""Short kernel files: parts left out, and CUDA files with pragmas in their place."""

import functools
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from tuner.kernel_files.cuda_source.guesses import used_names
from tuner.kernel_files.cuda_source.signatures import GlobalFunction, global_functions
from tuner.kernel_files.cuda_source.tokens import has_pragmas
from tuner.kernel_files.formulas import Location
from tuner.kernel_files.kernel_document import parsed_document
from tuner.kernel_files.schema import KernelDocument
from tuner.kernel_files.source_folder import read_text
from tuner.kernel_files.stage_recipe import AnyStageRecipe, StageRecipe
from tuner.kernel_files.triton_source import triton_function
from tuner.model.elements import element_dtype
from tuner.model.errors import KernelFileError
from tuner.model.plan import Buffer, Source, Work

if TYPE_CHECKING:
    from tuner.kernel_files.pragmas.expansion import Expansion


# --- A CUDA file with tuning pragmas in the place of a kernel file.

SUFFIXES = (".cu", ".cuh", ".cpp")


def read_pragma_file(path: Path) -> "tuple[Expansion, KernelDocument]":
    """Read a source with pragmas, and return its expansion and its tables.

    Raises:
        KernelFileError: it cannot be read, has no tuning pragmas, or one is wrong; the line is named.
    """
    return _read(path, read_text(path, str(path)))


@functools.lru_cache(maxsize=32)  # catalogues are read again and again, by tests and by the daemon
def _read(path: Path, text: str) -> "tuple[Expansion, KernelDocument]":
    from tuner.kernel_files.pragmas.expansion import expansion  # noqa: PLC0415 - its parser is loaded only where it is needed

    if not has_pragmas(text):
        raise KernelFileError(
            f"{path}: has no #pragma tuner; `tuner kernels new {path}` writes a kernel file for it"
        )
    try:
        expanded = expansion(path, text)
    except RecursionError as e:
        raise KernelFileError(f"{path}: nested too deeply") from e
    try:
        return expanded, parsed_document(path, expanded.document)
    except KernelFileError as e:
        raise KernelFileError(with_lines(str(e), path, expanded.lines)) from e


def line_of(key: str, lines: Mapping[str, int]) -> int | None:
    """The line of the pragma that states a key of the kernel file; None where none does."""
    keys = [
        key_of_pragma
        for key_of_pragma in lines
        if key == key_of_pragma
        or key.startswith((f"{key_of_pragma} ", f"{key_of_pragma},", f"{key_of_pragma}."))
    ]
    return lines[max(keys, key=len)] if keys else None


def with_lines(message: str, path: Path, lines: Mapping[str, int]) -> str:
    """A message about keys, ``FILE: [table] key: ...``, that names the lines of their pragmas."""

    def location(match: re.Match[str]) -> str:
        line = line_of(match[2], lines)
        return match[0] if line is None else f"{path}, line {line}: {match[2]}:"

    return re.sub(rf"({re.escape(str(path))}): (\[[^\]]*\][^:\n]*):", location, message)


# --- Parts of a kernel file that may be left out.

NAME_PATTERN = r"^[a-z0-9][a-z0-9-]*$"
BLOCK_TUNABLES = ("block_size_x", "block_size_y", "block_size_z")


def default_name(path: Path, location: Location) -> str:
    """The name of a kernel without one: of the folder of ``kernel.toml`` and ``kernel.cu``, else its own.

    Raises:
        KernelFileError: that is no name of a kernel.
    """
    stem = path.absolute().parent.name if path.name in ("kernel.toml", "kernel.cu") else path.stem
    name = stem.lower().replace("_", "-")
    if not re.fullmatch(NAME_PATTERN, name):
        raise location.error(f"is needed, as {stem!r} is no name of a kernel: a-z, 0-9 and -")
    return name


def default_entry(source: Source, names: Collection[str], apart: Collection[str], location: Location) -> str:
    """The entry of a kernel that states none: its only ``__global__`` function not in ``apart``.

    Raises:
        KernelFileError: there is none, or several, or a template parameter is none of ``names``.
    """
    if source.language == "triton":
        return triton_function(source, None, location, apart).name
    functions = [function for function in global_functions(source.text) if function.name not in apart]
    if len(functions) != 1:
        several = (
            f"has {len(functions)} __global__ functions: {', '.join(function.name for function in functions)}"
        )
        raise location.error(
            f"is needed, as {Path(source.path).name} {several if functions else 'has no __global__ function'}"
        )
    return filled_entry(functions[0], names, location)


def filled_entry(function: GlobalFunction, names: Collection[str], location: Location) -> str:
    """The name expression of a function, with a name for every template parameter.

    Raises:
        KernelFileError: a template parameter is none of ``names``.
    """
    parameters = [parameter.name for parameter in function.template]
    if not parameters:
        return function.name
    unknown = [name for name in parameters if name not in names]
    if unknown:
        raise location.error(
            f"is needed: {unknown[0]}, a template parameter of {function.name}, is no size, tunable or"
            f" derived name; write for example {function.name}<{{{next(iter(names), 'N')}}}>"
        )
    return f"{function.name}<{', '.join(f'{{{name}}}' for name in parameters)}>"


def default_block(tunables: Collection[str], location: Location) -> list[int | str]:
    """The block of a launch that states none: tunables of the usual names.

    Raises:
        KernelFileError: there are none.
    """
    names: list[int | str] = [name for name in BLOCK_TUNABLES if name in tunables]
    if names != list(BLOCK_TUNABLES[: len(names)]) or not names:
        raise location.error(
            "is needed, unless a tunable is called block_size_x (and block_size_y, block_size_z)"
        )
    return names


def with_macros(stages: Sequence[AnyStageRecipe], names: Iterable[str]) -> tuple[AnyStageRecipe, ...]:
    """The stages with a macro for every name that no entry and no option mentions and the source uses."""
    compiled = [
        stage for stage in stages if isinstance(stage, StageRecipe) and stage.source.language == "cuda"
    ]
    templates = [template for stage in compiled for template in (stage.entry, *stage.options)]
    mentioned = frozenset().union(*(template.names for template in templates))
    unmentioned = [name for name in names if name not in mentioned]
    used = {source: _used(source, tuple(unmentioned)) for source in {stage.source for stage in compiled}}
    return tuple(
        replace(stage, macros=tuple(name for name in unmentioned if name in used[stage.source]))
        if isinstance(stage, StageRecipe) and stage.source in used
        else stage
        for stage in stages
    )


@functools.lru_cache(maxsize=128)  # catalogues are read again and again, by tests and by the daemon
def _used(source: Source, among: tuple[str, ...]) -> frozenset[str]:
    return used_names(source.text, *(text for _, text in source.headers), among=among)


def assumed_work(buffers: Iterable[Buffer]) -> Work:
    """The work of a kernel that states none: every array that is read or written moves once."""
    moved = (buffer for buffer in buffers if buffer.role in ("in", "out", "inout"))
    total = sum(buffer.elements * element_dtype(buffer.dtype).itemsize for buffer in moved)
    return Work(bytes=float(total), operations=0.0, assumed=True)
