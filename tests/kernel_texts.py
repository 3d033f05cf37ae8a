"""Kernel files that tests change, in ``kernel_texts``, each with the sources that it names."""

import shutil
from collections.abc import Callable
from pathlib import Path

from tuner.kernel_files.catalog import load_kernel_file
from tuner.kernel_files.kernel_file import KernelFile

FOLDER = Path(__file__).parent / "kernel_texts"
Load = Callable[[str], KernelFile]


def text_of(name: str) -> str:
    return (FOLDER / f"{name}.toml").read_text()


def loader(name: str, folder: Path) -> Load:
    """Loads kernel files with any text from a folder, beside the sources of one of them."""
    shutil.copytree(FOLDER / "sources" / name, folder, dirs_exist_ok=True)

    def load(text: str) -> KernelFile:
        (folder / "kernel.toml").write_text(text)
        return load_kernel_file(folder / "kernel.toml")

    return load


def changed(text: str, *changes: tuple[str, str]) -> str:
    """With one text for another, each of which must be there."""
    for old, new in changes:
        assert old in text, old
        text = text.replace(old, new)
    return text
