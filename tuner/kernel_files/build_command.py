"""Build commands of kernel files: words that make PTX or a cubin of a source, and what their answer hangs on.

Nothing is run here: commands run in compile children (``tuner.compiler.commands``) when a stage is compiled.
"""

import ast
import functools
import hashlib
import importlib.metadata
import os
import re
import shutil
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

OUTPUT, ARCHITECTURE, SOURCE = "output", "architecture", "source"
"""Names that words of a build command may use beside those of other templates."""

_SUFFIXES = {".cu", ".cuh", ".c", ".cc", ".cpp", ".cxx", ".h", ".hpp", ".inc", ".py", ".rs", ".jl", ".ll"}
_INCLUDES = ("CPATH", "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH")
_ENVIRONMENT = ("NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS", *_INCLUDES)  # compilers add them to their words
_SCRIPT = b"#!"
_SCRIPT_BYTES = 2**16
_PATH = re.compile(rb"/[\w./+-]+")


def found_command(name: str, folder: Path) -> str | None:
    """The file of a command; None where there is none.

    Args:
        name: looked for beside the Python that runs this, else by PATH; or a path.
        folder: where the command runs, and relative paths begin.
    """
    if os.sep in name:
        return shutil.which(str(folder.absolute() / name))
    own = str(Path(sys.executable).parent)
    return shutil.which(name, path=os.pathsep.join([own, os.environ.get("PATH", os.defpath)]))


def beside(folder: Path) -> list[Path]:
    """The source files of a folder, which a command that runs there may read."""
    return sorted(path for path in folder.iterdir() if path.suffix in _SUFFIXES and path.is_file())


def command_sha256(name: str, source: Path, text: str) -> str:
    """Digest of the program that a build command runs, of variables, and of packages of a Python source.

    A script that runs something else, as wrappers of nvcc do, counts with the files that it names.
    """
    digest = hashlib.sha256(name.encode())
    for variable in filter(os.environ.get, _ENVIRONMENT):
        digest.update(f"\0{variable}={os.environ[variable]}\0".encode(errors="surrogateescape"))
    command = found_command(name, source.parent)
    if command is not None:
        for path in _programs(command):
            digest.update(_file_sha256(str(path), path.stat().st_size, path.stat().st_mtime_ns).encode())
        python, script = _python_of(command, source.parent)
        names = _imported(script) | (_imported(text) if source.suffix == ".py" else set())
        digest.update("\0".join(_packages(python, names)).encode())
    return digest.hexdigest()


def _python_of(command: str, folder: Path) -> tuple[Path, str]:
    """The interpreter of a command that is a script of Python, with its text; else the command itself."""
    with Path(command).open("rb") as file:
        head = file.read(_SCRIPT_BYTES)
    line = head.partition(b"\n")[0].removeprefix(_SCRIPT).split()
    if not head.startswith(_SCRIPT) or not line or b"python" not in line[-1]:
        return Path(command), ""
    return Path(found_command(os.fsdecode(line[-1]), folder) or command), head.decode(errors="replace")


def _programs(command: str) -> Iterator[Path]:
    path = Path(command)
    yield path
    with path.open("rb") as file:
        head = file.read(_SCRIPT_BYTES)
    if head.startswith(_SCRIPT):  # with its interpreter
        named = (Path(os.fsdecode(name)) for name in _PATH.findall(head))
        yield from (other for other in named if other.is_file() and os.access(other, os.X_OK))


@functools.lru_cache(maxsize=64)
def _file_sha256(path: str, _size: int, _changed_ns: int) -> str:
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()


def _imported(text: str) -> set[str]:
    """Names of the modules that a Python source imports, without those inside them."""
    try:
        nodes = list(ast.walk(ast.parse(text)))
    except (SyntaxError, ValueError, RecursionError):
        return set()
    names = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    names += [node.module or "" for node in nodes if isinstance(node, ast.ImportFrom) and not node.level]
    return {name.partition(".")[0] for name in names}


def _packages(python: Path, names: Iterable[str]) -> Sequence[str]:
    """Packages of a Python that have modules of these names, or add to them, with their versions."""
    wanted = set(names) - sys.stdlib_module_names
    if not wanted:
        return ()
    own = python.parent == Path(sys.executable).parent
    folders = sys.path if own else [str(path) for path in python.parents[1].glob("lib/python3*/*-packages")]
    changed = ((path, Path(path).stat().st_mtime_ns) for path in folders if Path(path).is_dir())
    return _installed(frozenset(wanted), tuple(changed))


@functools.lru_cache(maxsize=64)
def _installed(wanted: frozenset[str], folders: tuple[tuple[str, int], ...]) -> Sequence[str]:
    """Packages in folders, which change when one is installed."""
    return sorted(
        f"{package.metadata['Name']} {package.version}"
        for package in importlib.metadata.distributions(path=[folder for folder, _ in folders])
        if wanted & {*(package.read_text("top_level.txt") or package.metadata["Name"] or "").split()}
        or any((package.metadata["Name"] or "").startswith(f"{name}-") for name in wanted)  # as numba-cuda
    )
