"""The folder of the kernels that come with the package, and what kernel files of others take from it."""

import re
from importlib.resources import files
from pathlib import Path

_OF_CATALOGUE = re.compile(r"catalogue:([a-z0-9-]+)")


def kernels_root() -> Path:
    """Folder of the kernels that come with the package, installed or in a checkout."""
    installed = Path(str(files("tuner"))) / "kernels"
    # an editable install maps packages only; kernels is data beside the package then
    return installed if installed.is_dir() else Path(__file__).parents[2] / "kernels"


def is_of_catalogue(name: str) -> bool:
    """Whether a folder of headers is one of the package, as ``catalogue:scan-long``."""
    return _OF_CATALOGUE.fullmatch(name) is not None


def header_folder(folder: Path, name: str) -> Path:
    """A folder of headers as a kernel file names it.

    Args:
        folder: of the kernel file.
        name: relative to it, or ``catalogue:NAME`` for a folder beside the kernels of the package.
    """
    match = _OF_CATALOGUE.fullmatch(name)
    return kernels_root() / match[1] if match else folder / name
