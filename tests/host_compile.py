"""Compiles kernels for the host: g++ behind ``tests/host/cuda_host.h``, several instantiations to a unit."""

import atexit
import functools
import hashlib
import re
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path

from tuner.model import Source

HOST = Path(__file__).parent / "host"
COMPILER = shutil.which("g++")
FLAGS = ("-std=c++17", "-O1", "-fPIC", "-fno-gnu-unique", "-fvisibility=hidden", "-U_FORTIFY_SOURCE", "-w")
CHECKED = (  # every access is held to its array and to the barriers, see tests/host/checks.h
    *FLAGS,
    "-O0",  # no access is optimised away, and it compiles faster
    "-g1",
    "-fsanitize=thread",
    "--param=tsan-instrument-func-entry-exit=0",
    "-fsanitize=bounds,alignment,shift,signed-integer-overflow,integer-divide-by-zero,float-cast-overflow",
    "-fsanitize=bool,enum,return,unreachable",
    "-nodefaultlibs",  # its calls come to checks.cpp, not to the sanitizers' libraries
)
ADDRESSES = (  # for host_addresses.py; static shared arrays are plain statics, which have red zones
    *FLAGS,
    "-O0",  # nothing is optimised away, and it compiles twice as fast
    "-g1",
    "-fsanitize=address,undefined",
    "-fno-sanitize-recover=all",
    "-D__shared__=static",
)


class HostRunError(AssertionError):
    """A kernel broke a rule of the machine: a barrier not met by all, a write outside its arrays."""


def compile_unit(
    source: Source, entries: Sequence[str], options: Sequence[str], flags: Sequence[str]
) -> Path:
    """Compiles instantiations of a source to one library, in which entry i is the function ``launch_i``.

    Raises:
        HostRunError: g++ does not accept the code; the message is g++'s.
    """
    folder = Path(tempfile.mkdtemp(dir=_folder()))
    for name, text in source.headers:
        (folder / name).write_text(_with_host_shared_memory(text))
    unit = folder / "unit.cpp"
    unit.write_text(  # without a name for the linker, static shared arrays get red zones in templates too
        f'#include "cuda_host.h"\nnamespace {{\n#line 1 "{source.path}"\n'
        f"{_with_host_shared_memory(source.text)}\n}}\n"
        + "\n".join(f"CUDA_HOST_ENTRY(launch_{i}, {entry})" for i, entry in enumerate(entries))
        + "\n"
    )
    library = folder / "unit.so"
    defines = [option for option in options if option.startswith("-D")]
    inputs = [str(unit), *map(str, runtime(flags))]
    libraries = ("-lstdc++", "-lm", "-lc", "-lgcc_s", "-lgcc") if "-nodefaultlibs" in flags else ()
    _gxx(*flags, *defines, f"-I{HOST}", f"-I{folder}", "-shared", *inputs, "-o", str(library), *libraries)
    return library


_once = threading.Lock()  # what all units share is made by one thread


def runner_program(flags: Sequence[str]) -> Path:
    """The program that runs units built with ``flags`` under their sanitizers."""
    with _once:
        return _runner(tuple(flags))


def runtime(flags: Sequence[str]) -> tuple[Path, ...]:
    """Object files of the machine that units built with ``flags`` run on; itself it is never instrumented."""
    with _once:
        return _runtime(tuple(flags))


@functools.cache
def _runner(flags: tuple[str, ...]) -> Path:
    program = _folder() / f"runner-{hashlib.sha256(repr(flags).encode()).hexdigest()[:16]}"
    sanitizers = [flag for flag in flags if flag.startswith("-fsanitize")]
    own = [flag for flag in flags if "sanitize" not in flag and not flag.startswith("-D")]
    made = program.with_suffix(".o")
    _gxx(*own, "-c", str(HOST / "runner.cpp"), "-o", str(made))
    _gxx(*sanitizers, str(made), "-ldl", "-o", str(program))
    return program


@functools.cache
def _runtime(flags: tuple[str, ...]) -> tuple[Path, ...]:
    checked = "-fsanitize=thread" in flags
    own = [flag for flag in flags if "sanitize" not in flag]
    own += ["-O2", *(["-DCUDA_HOST_CHECKED"] if checked else [])]
    digest = hashlib.sha256("\0".join(own).encode()).hexdigest()[:16]
    objects = []
    for name in ("runtime", "loaded", *(("checks", "races") if checked else ())):
        objects.append(_folder() / f"{name}-{digest}.o")
        _gxx(*own, "-c", str(HOST / f"{name}.cpp"), "-o", str(objects[-1]))
    return tuple(objects)


def with_lines(trouble: str, library: Path, source: Source) -> str:
    """The message with each place in the library, ``[0x...]``, as file and line, inlined callers after it."""
    here = Path(source.path).name

    def lines(place: re.Match[str]) -> str:
        command = ["addr2line", "-i", "-e", str(library), place[1]]
        found = subprocess.run(command, capture_output=True, text=True, check=False).stdout
        names = [Path(line.split(" ")[0]).name for line in found.splitlines() if "?" not in line]
        names = [name.replace("unit.cpp", here) for name in names]
        return f"({' < '.join(names)})" if names else "(line unknown)"

    return re.sub(r"\[(0x[0-9a-f]+)\]", lines, trouble) if shutil.which("addr2line") else trouble


@functools.cache
def _folder() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="kernels-on-host-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def _with_host_shared_memory(text: str) -> str:
    """Turns block-scope ``extern __shared__ T name[];`` into a pointer to the launch's shared memory."""
    return re.sub(
        r"extern\s+__shared__\s+(?:(?:__align__|alignas)\s*\(\w+\)\s*)?([\w:<>,\s]+?)\s+(\w+)\s*\[\s*\]\s*;",
        r"\1* const \2 = static_cast<\1*>(cuda_host::dynamic_shared());",
        text,
    )


def _gxx(*arguments: str) -> None:
    if COMPILER is None:
        raise HostRunError("running kernels on the host needs g++")
    done = subprocess.run([COMPILER, *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        raise HostRunError(f"g++ does not compile it:\n{done.stderr[:4000]}")
