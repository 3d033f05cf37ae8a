"""Kernel sources: texts, files, lists of files and generators, and the macros of a configuration."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from tuner.kernel_files.source_folder import folders_sha256
from tuner.kernel_tuner.call_arguments import Parameters, UserValue, called, replaced
from tuner.model.errors import InputError, UnsupportedError
from tuner.model.plan import Source
from tuner.system.untrusted.build_texts import macro_value
from tuner.system.untrusted.reading import TEXT_BYTES, read_text

LANGUAGES = ("CUDA", "CUPY", "NVCUDA", "PYCUDA")
"""Values of ``lang`` that mean CUDA."""

_MAX_NAME = 250
_NO_NAME = re.compile(r"[(){};\\\n]")  # a text with one of these is source code, not the name of a file
_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*"([^"\n]+)"', re.MULTILINE)
_UNROLL = "loop_unroll_factor"
_GRID_NAMES = ("grid_size_x", "grid_size_y", "grid_size_z")
_ARCHITECTURE = re.compile(r"^--?(arch|gpu-architecture|gencode|generate-code|code|gpu-code)\b")
_INCLUDE_PATH = re.compile(r"^(?:-I|--include-path(?:=|$))(.*)$")
_HOST_OPTIMISATION = re.compile(r"^-O\d?$")

SourceGenerator = Callable[[dict[str, Any]], str]


@dataclass(frozen=True)
class KernelSources:
    """Source code of a kernel, from which the text of each configuration is made.

    Attributes:
        first: the text that is compiled, or what generates it from the parameters.
        label: what messages call it.
        folders: where includes are looked for.
        listed: files that follow the first in a list: name -> text.
        include_paths: absolute folders of further headers.
    """

    first: str | SourceGenerator
    label: str
    folders: tuple[Path, ...]
    listed: Mapping[str, str] = field(default_factory=dict)
    include_paths: tuple[str, ...] = ()
    _made: dict[Any, Source] = field(default_factory=dict, repr=False, compare=False)

    @property
    def text(self) -> str | None:
        """The text, where it does not depend on the configuration."""
        return None if callable(self.first) else self.first

    def source(self, params: Parameters, factors: Mapping[str, str]) -> Source:
        """The translation unit of a configuration; configurations share those that are the same.

        Args:
            params: of the configuration.
            factors: loop unroll factors, which are constants of the language and no macros, as
                ``#pragma unroll`` takes no macro; "0" takes the pragma away.

        Raises:
            InputError: the generator fails, or returns no text.
        """
        key = (tuple(params.items()) if callable(self.first) else (), tuple(factors.items()))
        if key not in self._made:
            text = self._text(params)
            source = Source(
                self.label,
                with_factors(text, factors),
                self._headers(text, factors),
                self.include_paths,
                self.include_sha256,
            )
            self._made[key] = self._made.setdefault(source, source)  # one object for the same text
        return self._made[key]

    @cached_property
    def include_sha256(self) -> str:
        """Of all files below the include paths."""
        return folders_sha256([Path(path) for path in self.include_paths])

    def _text(self, params: Parameters) -> str:
        if not callable(self.first):
            return self.first
        text = called(self.first, "kernel_source", dict(params))
        if not isinstance(text, str):
            raise InputError(f"kernel_source: the function returned {type(text).__name__}, not a text")
        return text

    def _headers(self, text: str, factors: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
        found = {name: without_pragmas(one, factors) for name, one in self.listed.items()}
        left = [text, *self.listed.values()]
        while left:
            for name in _INCLUDE.findall(left.pop()):
                path = next((folder / name for folder in self.folders if (folder / name).is_file()), None)
                if name not in found and path is not None:
                    found[name] = _read(path)
                    left.append(found[name])
        return tuple(found.items())


def read_sources(kernel_source: UserValue, lang: UserValue) -> KernelSources:
    """The sources of a call.

    Args:
        kernel_source: a text, a file, a function of the parameters, or a list whose others are files.
        lang: the language, or None to tell it from the text.

    Raises:
        InputError: a file cannot be read, or it is something else.
        UnsupportedError: the language is not CUDA.
    """
    check_language(lang)
    items = list(kernel_source) if isinstance(kernel_source, list | tuple) else [kernel_source]
    if not items:
        raise InputError("kernel_source: the list is empty")
    paths = [_path(item) for item in items]
    folders = tuple(dict.fromkeys([*(path.parent for path in paths if path is not None), Path()]))
    listed: dict[str, str] = {}
    for item, path in zip(items[1:], paths[1:], strict=True):
        if path is None:
            raise InputError("kernel_source: what follows the first of a list must be names of files")
        listed[str(item)] = listed[path.name] = _read(path)
    first, path = items[0], paths[0]
    if callable(first) and path is None:
        if lang is None:
            raise InputError('kernel_source: is a function; say lang="CUDA" with it, as for Kernel Tuner')
        return KernelSources(first, getattr(first, "__name__", "kernel_source"), folders, listed)
    if path is None and not isinstance(first, str):
        raise InputError(f"kernel_source: {type(first).__name__} is neither a text, a file nor a function")
    text = first if path is None else _read(path)
    if lang is None and "__global__" not in text:
        language = "OpenCL" if "__kernel" in text else "C or Fortran"
        raise UnsupportedError(
            f"lang: the source has no __global__ function, so it would be {language}, which is not supported"
        )
    return KernelSources(text, "kernel_source" if path is None else str(path), folders, listed)


def check_language(lang: UserValue) -> None:
    """Take what means CUDA.

    Raises:
        UnsupportedError: it is another language.
    """
    if lang is not None and str(lang).upper() not in LANGUAGES:
        raise UnsupportedError(f"lang: {lang!r} is not supported; kernels are CUDA here: lang='CUDA' or None")


def compiler_options_of(options: UserValue) -> tuple[str, ...]:
    """Options for NVRTC: without the architecture, which is the device's, and ``-O``, which is the host's.

    Raises:
        InputError: they are no list of texts.
    """
    if options is None:
        return ()
    if not isinstance(options, list | tuple) or not all(isinstance(option, str) for option in options):
        raise InputError(f"compiler_options: must be a list of texts, not {options!r}")
    return tuple(
        option
        for option in options
        if not _ARCHITECTURE.match(option) and not _HOST_OPTIMISATION.match(option)
    )


def split_includes(options: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Absolute folders of ``-I`` options, as far as they are there, and the options that are left."""
    folders, others = [], []
    left = iter(options)
    for option in left:
        match = _INCLUDE_PATH.match(option)
        if match is None:
            others.append(option)
        else:
            folders.append(Path(match[1] or next(left, "")))
    return tuple(str(folder.resolve()) for folder in folders if folder.is_dir()), tuple(others)


def macros_of(
    defines: Mapping[UserValue, UserValue] | None,
    params: Parameters,
    grid: Sequence[int],
    block: Mapping[str, int],
) -> dict[str, str]:
    """The macros of a configuration.

    Args:
        defines: name -> text, value or function of the parameters; None for Kernel Tuner's own: grid, block,
            every parameter, and ``kernel_tuner``.
        params: of the configuration.
        grid: blocks along x, y and z.
        block: threads along the axes, by their names.

    Raises:
        InputError: a name is no identifier, or a function fails.
    """
    if defines is None:
        own = {**dict(zip(_GRID_NAMES, grid, strict=True)), **block, **params, "kernel_tuner": 1}
        return {name: macro_value(value) for name, value in own.items()}
    macros = {}
    for name, value in defines.items():
        if not isinstance(name, str) or not name.isidentifier():
            raise InputError(f"defines: {name!r} is not a name")
        made = called(value, f"defines[{name!r}]", dict(params)) if callable(value) else value
        macros[name] = replaced(made, params) if isinstance(value, str) else macro_value(made)
    return macros


def split_factors(macros: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Loop unroll factors, and the macros that are left."""
    factors = {name: value for name, value in macros.items() if _UNROLL in name}
    return factors, {name: value for name, value in macros.items() if name not in factors}


def with_factors(text: str, factors: Mapping[str, str]) -> str:
    """The text that is compiled, with loop unroll factors as constants."""
    constants = [f"constexpr int {name} = {value};\n" for name, value in factors.items() if value != "0"]
    lines = f"{''.join(constants)}#line 1\n" if constants else ""
    return lines + without_pragmas(text, factors)


def without_pragmas(text: str, factors: Mapping[str, str]) -> str:
    """A text without the pragmas of the loop unroll factors that are "0"."""
    for name in (name for name, value in factors.items() if value == "0"):
        text = re.sub(rf"(?m)^[ \t]*#[ \t]*pragma[ \t]+unroll[ \t]+{re.escape(name)}[ \t]*$", "", text)
    return text


def _path(item: UserValue) -> Path | None:
    """The file that an item names; None for source code and functions."""
    if isinstance(item, Path):
        return item
    if isinstance(item, str) and len(item) <= _MAX_NAME and not _NO_NAME.search(item):
        return Path(item)
    return None


def _read(path: Path) -> str:
    try:
        return read_text(path, TEXT_BYTES)
    except (OSError, ValueError) as error:
        raise InputError(f"kernel_source: {path}: cannot be read: {error}") from error
