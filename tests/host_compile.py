"""Compiles kernels for the host: g++ behind ``tests/host/cuda_host.h``, several instantiations to a unit.

What g++ made is kept across runs (``build_cache.py``): units by what they are made of, and for each of their
instantiations the unit it is in, as another run may divide them into other units.
"""

import atexit
import functools
import hashlib
import itertools
import json
import platform
import re
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from build_cache import BUILDS

from tuner.model.plan import Source

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


BARRIER = re.compile(
    r"(?<!void )\b((?:__syncthreads|__syncwarp|meet<[^;{}]*>|cluster_wait|await|mbarrier_wait)\([^;{}]*\));"
)


class HostRunError(AssertionError):
    """A kernel broke a rule of the machine: a barrier not met by all, a write outside its arrays."""


@dataclass(frozen=True)
class Barrier:
    """A statement of a source or its headers at which threads wait for each other.

    Attributes:
        source_sha256: of the source.
        number: among the barriers of the source.
        file: name of the file.
        line: line of it.
        code: what stands there.
    """

    source_sha256: str
    number: int
    file: str
    line: int
    code: str

    @property
    def place(self) -> tuple[str, int, str]:
        """File, line and code: the same in every source that includes it."""
        return self.file, self.line, self.code


def barriers(source: Source) -> list[Barrier]:
    """The barriers of a source and its headers that the host compiles."""
    found: list[Barrier] = []
    for file, text in (*source.headers, (Path(source.path).name, source.text)):
        for match in BARRIER.finditer(text):
            line = text.count("\n", 0, match.start())
            code = text.splitlines()[line].strip()
            found.append(Barrier(source.sha256, len(found), file, line + 1, code))
    key = _key("barriers", source)
    kept = BUILDS.load(key)
    if kept is None:
        unit = _write_unit(source, [], CHECKED)
        code = _gxx("-std=c++17", "-E", f"-I{HOST}", f"-I{unit.parent}", str(unit))
        kept = json.dumps([int(number) for number in re.findall(r"cuda_host::kept\((\d+)\)", code)]).encode()
        BUILDS.store(key, kept)
    return [barrier for barrier in found if barrier.number in json.loads(kept)]


def compile_unit(
    source: Source, entries: Sequence[str], options: Sequence[str], flags: Sequence[str]
) -> Path:
    """Compiles instantiations of a source to one library, in which entry i is the function ``launch_i``.

    Raises:
        HostRunError: g++ does not accept the code; the message is g++'s.
    """
    unit = _write_unit(source, entries, flags)
    library = unit.with_suffix(".so")
    defines = _defines(options)
    inputs = [str(unit), *map(str, runtime(flags))]
    libraries = ("-lstdc++", "-lm", "-lc", "-lgcc_s", "-lgcc") if "-nodefaultlibs" in flags else ()
    folders = (f"-I{HOST}", f"-I{unit.parent}")
    _gxx(*flags, *defines, *folders, "-shared", *inputs, "-o", str(library), *libraries)
    key = _key("unit", source, entries, defines, flags)
    BUILDS.store(key, library.read_bytes())
    for i, entry in enumerate(entries):
        BUILDS.store(_key("entry", source, entry, defines, flags), f"{key} launch_{i}".encode())
    return library


def stored_function(
    source: Source, entry: str, options: Sequence[str], flags: Sequence[str]
) -> tuple[Path, str] | None:
    """The library of an instantiation that was compiled before, and its function; None if it was not."""
    stored = BUILDS.load(_key("entry", source, entry, _defines(options), flags))
    if stored is None:
        return None
    unit, function = stored.decode().split()
    library = _folder() / unit / "unit.so"  # a folder of its own, like that of a unit compiled now
    with _once:
        known = library.exists() or _restored(unit, library)
    return (library, function) if known else None


def check_syntax(source: Source, entries: Sequence[str]) -> None:
    """Holds instantiations to their static assertions and makes no code: quick for hundreds.

    Raises:
        HostRunError: g++ does not accept the code; the message is g++'s.
    """
    key = _key("syntax", source, entries)
    if BUILDS.load(key) is None:
        unit = _write_unit(source, entries, FLAGS)
        _gxx(*FLAGS, "-fsyntax-only", f"-I{HOST}", f"-I{unit.parent}", str(unit))
        BUILDS.store(key, b"good")


def _defines(options: Sequence[str]) -> list[str]:
    return [option for option in options if option.startswith("-D")]


def _key(kind: str, *parts: Source | str | Sequence[str]) -> str:
    """Of something that g++ made, from all that it is made of."""
    words = [
        [Path(part.path).name, part.sha256]
        if isinstance(part, Source)
        else part
        if isinstance(part, str)
        else list(part)
        for part in parts
    ]
    return f"{kind}-" + hashlib.sha256(json.dumps([_toolchain(), words]).encode()).hexdigest()


@functools.cache
def _toolchain() -> str:
    """Digest of what all is made with: g++ and the C library, ``tests/host``, and how units are written."""
    digest = hashlib.sha256(f"{_gxx('--version')} {platform.machine()} {platform.libc_ver()}".encode())
    for path in (Path(__file__), *sorted(HOST.iterdir())):
        digest.update(f"\0{path.name}\0".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()


def _write_unit(source: Source, entries: Sequence[str], flags: Sequence[str]) -> Path:
    folder = Path(tempfile.mkdtemp(dir=_folder()))
    *headers, main = _for_host([*(text for _, text in source.headers), source.text], flags)
    for (name, _), text in zip(source.headers, headers, strict=True):
        (folder / name).write_text(text)
    unit = folder / "unit.cpp"
    unit.write_text(  # without a name for the linker, static shared arrays get red zones in templates too
        f'#include "cuda_host.h"\nnamespace {{\n#line 1 "{Path(source.path).name}"\n{main}\n}}\n'
        + "\n".join(f"CUDA_HOST_ENTRY(launch_{i}, {entry})" for i, entry in enumerate(entries))
        + "\n"
    )
    return unit


_once = threading.Lock()  # what all units share is made by one thread


def runner_program(flags: Sequence[str]) -> Path:
    """The program that runs units built with ``flags`` under their sanitizers."""
    with _once:
        return _runner(tuple(flags))


def runtime(flags: Sequence[str]) -> tuple[Path, ...]:
    """Object files of the machine that units built with ``flags`` run on; itself it is never instrumented."""
    with _once:
        return _runtime(tuple(flags))


def _restored(key: str, path: Path) -> bool:
    """Whether the file was made by an earlier run; then it is there now."""
    content = BUILDS.load(key)
    if content is not None:
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content)
    return content is not None


@functools.cache
def _runner(flags: tuple[str, ...]) -> Path:
    key = _key("runner", flags)
    program = _folder() / key
    if not _restored(key, program):
        sanitizers = [flag for flag in flags if flag.startswith("-fsanitize")]
        own = [flag for flag in flags if "sanitize" not in flag and not flag.startswith("-D")]
        made = program.with_suffix(".o")
        _gxx(*own, "-c", str(HOST / "runner.cpp"), "-o", str(made))
        _gxx(*sanitizers, str(made), "-ldl", "-o", str(program))
        BUILDS.store(key, program.read_bytes())
    program.chmod(0o700)
    return program


@functools.cache
def _runtime(flags: tuple[str, ...]) -> tuple[Path, ...]:
    checked = "-fsanitize=thread" in flags
    own = [flag for flag in flags if "sanitize" not in flag]
    own += ["-O2", *(["-DCUDA_HOST_CHECKED"] if checked else [])]
    objects = []
    for name in ("runtime", "loaded", *(("checks", "races") if checked else ())):
        key = _key("runtime", name, own)
        made = _folder() / f"{key}.o"
        if not _restored(key, made):
            _gxx(*own, "-c", str(HOST / f"{name}.cpp"), "-o", str(made))
            BUILDS.store(key, made.read_bytes())
        objects.append(made)
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


def _for_host(texts: Sequence[str], flags: Sequence[str]) -> list[str]:
    """Turns block-scope ``extern __shared__ T name[];`` into a pointer to the launch's shared memory.

    In the checked build a launch may leave out any of the barriers, to see what becomes of it.
    """
    shared = re.compile(
        r"extern\s+__shared__\s+(?:(?:__align__|alignas)\s*\(\w+\)\s*)?([\w:<>,\s]+?)\s+(\w+)\s*\[\s*\]\s*;"
    )
    numbers = itertools.count()

    def kept(barrier: re.Match[str]) -> str:
        return f"(cuda_host::kept({next(numbers)}) ? {barrier[1]} : void());"

    texts = [shared.sub(r"\1* const \2 = static_cast<\1*>(cuda_host::dynamic_shared());", t) for t in texts]
    return [BARRIER.sub(kept, text) for text in texts] if "-fsanitize=thread" in flags else texts


def _gxx(*arguments: str) -> str:
    if COMPILER is None:
        raise HostRunError("running kernels on the host needs g++")
    done = subprocess.run([COMPILER, *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        raise HostRunError(f"g++ does not compile it:\n{done.stderr[:4000]}")
    return done.stdout
