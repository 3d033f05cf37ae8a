"""A CUDA file with tuning pragmas in the place of a kernel file."""

import functools
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from tuner.kernel_files.document import parsed_document
from tuner.kernel_files.schema import KernelDocument
from tuner.kernel_files.source_folder import read_text
from tuner.model.errors import KernelFileError
from tuner.pragmas.directives import has_pragmas

if TYPE_CHECKING:
    from tuner.pragmas.expansion import Expansion


SUFFIXES = (".cu", ".cuh", ".cpp")


def read_pragma_file(path: Path) -> "tuple[Expansion, KernelDocument]":
    """What a source with pragmas means, and its tables.

    Raises:
        KernelFileError: it cannot be read, has no tuning pragmas, or one is wrong; the line is named.
    """
    return _read(path, read_text(path, str(path)))


@functools.lru_cache(maxsize=32)  # catalogues are read again and again, by tests and by the daemon
def _read(path: Path, text: str) -> "tuple[Expansion, KernelDocument]":
    from tuner.pragmas.expansion import expansion  # noqa: PLC0415 - its parser is loaded only where it is needed

    if not has_pragmas(text):
        raise KernelFileError(
            f"{path}: has no #pragma tuner; `tuner kernels new {path}` writes a kernel file for it"
        )
    try:
        found = expansion(path, text)
    except RecursionError as e:
        raise KernelFileError(f"{path}: nested too deeply") from e
    try:
        return found, parsed_document(path, found.document)
    except KernelFileError as e:
        raise KernelFileError(with_lines(str(e), path, found.lines)) from e


def line_of(key: str, lines: Mapping[str, int]) -> int | None:
    """The line of the pragma that states a key of the kernel file; None where none does."""
    found = [
        known for known in lines if key == known or key.startswith((f"{known} ", f"{known},", f"{known}."))
    ]
    return lines[max(found, key=len)] if found else None


def with_lines(message: str, path: Path, lines: Mapping[str, int]) -> str:
    """A message about keys, ``FILE: [table] key: ...``, that names the lines of their pragmas."""

    def place(match: re.Match[str]) -> str:
        line = line_of(match[2], lines)
        return match[0] if line is None else f"{path}, line {line}: {match[2]}:"

    return re.sub(rf"({re.escape(str(path))}): (\[[^\]]*\][^:\n]*):", place, message)
