"""The backends of PTX, cubins and Triton: files as they are, or as a command or an interpreter makes them.

Build commands and ptxas run in a compile child, below the same limits as NVRTC: they write nothing but in a
folder that is gone afterwards, and read the folder of the source, include paths and what is installed.
"""

import contextlib
import ctypes
import functools
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from tuner.compiler.backend import FATAL, Backend, CompileChildren, first_error, in_one_line, label
from tuner.compiler.cubin import demangled, read_cubin
from tuner.compiler.nvrtc import Output, bound_memory, confined
from tuner.compiler.ptx import entries_in, excerpt, variables_in
from tuner.compiler.triton_server import digest
from tuner.kernel_files.build_command import ARCHITECTURE, OUTPUT, found_command
from tuner.model.errors import ChildError, CompileError, CompilerUnavailableError, InputError
from tuner.model.plan import Stage
from tuner.system.processes import forget_in_forks
from tuner.system.untrusted.reading import CUBIN_BYTES

_INSTALLED = (
    *("/bin", "/sbin", "/usr", "/opt", "/etc/alternatives", "/etc/passwd", "/etc/localtime", "/dev/zero"),
    *("/proc/cpuinfo", "/proc/meminfo", "/proc/stat", "/proc/sys/vm", "/sys/devices/system"),
)
_TARGET = re.compile(r"^\s*\.target\s+(sm_\d+[af]?)", re.MULTILINE)
_NO_PART = re.compile(r"(?<=\d)[uUlL]+\b|\((?:unsigned )?(?:int|char|long|bool)\)|\s")  # of a name
_BECOME_SUBREAPER = 36  # of prctl(2)
_HOMES = (Path("/home"), Path("/root"))
_SAID = 2**16  # characters of what a command says that are kept
_LISTED = 8


class _FailedError(Exception):
    """An answer of the compiler: the log of a stage that does not compile."""


# --- PTX and cubins: in the parent.


class CommandBackend(Backend):
    """Takes PTX and cubins, or has a stage's command build them of its source."""

    SERVER = "tuner.compiler.commands:CommandServer"
    TIMEOUT_S = 300.0  # nvcc takes minutes for some libraries of templates

    @property
    def version(self) -> str:
        """That of ptxas; empty where there is none that knows the architecture."""
        ptxas = _ptxas(self._architecture)
        return "" if ptxas is None else ptxas.version

    def refused(self, stage: Stage) -> CompileError | None:
        """Return the error for a stage whose command, or ptxas for its PTX, is not on this machine."""
        if stage.build and found_command(stage.build[0], Path(stage.source.path).parent) is None:
            return CompileError(
                f"{label(stage)}: build: no command {stage.build[0]!r} is on this machine; install it,"
                " or write its path"
            )
        if stage.source.language == "ptx" and not self.version:
            return CompileError(
                f"{label(stage)}: no ptxas that knows {self._architecture} is on this machine to make code of"
                " PTX; pip install nvidia-cuda-nvcc-cu12, or install a CUDA toolkit"
            )
        return None

    def compile(self, stage: Stage, timeout_s: float) -> Output | CompileError:
        """Build what is to be built, and have ptxas make code of PTX."""
        ptxas = _ptxas(self._architecture)
        order = _Order(
            str(Path(stage.source.path).absolute()),
            stage.source.text,
            stage.source.language,
            stage.source.include_paths,
            stage.build,
            stage.entry,
            tuple(symbol for symbol, _ in stage.symbols),
            self._architecture,
            () if ptxas is None else (ptxas.path, *stage.options),
        )
        with tempfile.TemporaryDirectory(prefix="tuner-build-", ignore_cleanup_errors=True) as folder:
            return self._asked(stage, timeout_s, order, folder)  # a child that is killed leaves files there

    def lasting(self, output: Output) -> bool:
        """Return False of what fails: what a command lacks may be installed later."""
        return output.cubin is not None

    def error(self, stage: Stage, output: Output) -> str:
        """The first error, in the words of the command, of ptxas, or of who reads the file."""
        return super().error(stage, output).removeprefix("error: ")


class _Ptxas(NamedTuple):
    path: str
    version: str


@functools.cache
def _ptxas(architecture: str) -> _Ptxas | None:
    """The newest ptxas of this machine that makes code for an architecture; None without one."""
    serving = []
    for path in dict.fromkeys(map(os.path.realpath, _ptxas_files())):
        with contextlib.suppress(OSError, subprocess.SubprocessError):
            told, known = (
                subprocess.run(  # noqa: S603 - of the toolkit, without a shell
                    [path, option], capture_output=True, text=True, timeout=10.0, check=True
                ).stdout
                for option in ("--version", "--help")
            )
            version = re.search(r"V(\d+(?:\.\d+)+)", told)
            if version and f"'{architecture}'" in known:
                serving.append(_Ptxas(path, version[1]))
    return max(serving, key=lambda one: tuple(map(int, one.version.split("."))), default=None)


def _ptxas_files() -> Iterator[str]:
    for entry in sys.path:  # wheels
        yield from map(str, Path(entry).glob("nvidia/cuda_nvcc/bin/ptxas"))
        yield from map(str, Path(entry).glob("nvidia/cu[0-9]*/bin/ptxas"))
    roots = [os.environ.get(name) for name in ("CUDA_HOME", "CUDA_PATH")]
    folders = [f"{root}/bin" for root in roots if root]
    folders += map(str, Path("/usr/local").glob("cuda*/bin"))
    for folder in (*folders, None):
        found = shutil.which("ptxas", path=folder)
        if found:
            yield found


# --- PTX and cubins: in the child.


class _Order(NamedTuple):
    """Request for the code of one entry."""

    path: str
    text: str
    language: str
    include_paths: tuple[str, ...]
    build: tuple[str, ...]
    entry: str
    symbols: tuple[str, ...]
    architecture: str
    ptxas: tuple[str, ...]


class CommandServer:
    """Server of a compile child process that runs build commands and ptxas."""

    def __init__(self, library: str) -> None:
        del library
        bound_memory()
        resource.setrlimit(resource.RLIMIT_FSIZE, (CUBIN_BYTES, CUBIN_BYTES))
        ctypes.CDLL(None).prctl(_BECOME_SUBREAPER, 1, 0, 0, 0)  # what a command leaves behind becomes a child
        self._folder = ""
        signal.signal(signal.SIGIO, self._leave)  # the parent is gone, or waits no longer

    def compile(self, order: _Order, folder: str) -> Output:
        """Build and translate one stage in an empty folder; what fails is told by the log of the answer."""
        self._folder = folder
        source = Path(order.path).parent
        readable = [str(source), *order.include_paths, *order.ptxas[:1], *_installed(order)]
        try:
            return confined(lambda: _made(order, Path(folder)), readable, [folder, "/dev/null"])
        except _FailedError as error:
            return Output(None, "", str(error))
        finally:
            _end_children()

    def _leave(self, _number: int, _frame: object) -> None:
        _end_children()
        if self._folder:  # a parent that was killed removes nothing
            shutil.rmtree(self._folder, ignore_errors=True)
        os._exit(1)


def _end_children() -> None:
    """Kill and reap all children of this process, and what becomes one by that."""
    while pids := list(_children()):
        for pid in pids:
            with contextlib.suppress(ProcessLookupError, ChildProcessError):  # reaped by who waits for it
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)


def _children() -> Iterator[int]:
    for path in Path("/proc/self/task").glob("*/children"):
        with contextlib.suppress(OSError):  # of a thread that has ended
            yield from map(int, path.read_text().split())


def _installed(order: _Order) -> Iterator[str]:
    """Folders of what is installed: where the system, this Python, CUDA and the command itself lie."""
    yield from (*_INSTALLED, sys.prefix, sys.base_prefix, *filter(None, sys.path))
    yield from (os.environ[name] for name in ("CUDA_HOME", "CUDA_PATH") if os.environ.get(name))
    command = found_command(order.build[0], Path(order.path).parent) if order.build else None
    for path in () if command is None else {command, os.path.realpath(command)}:
        yield path
        folder, root = Path(path).parent, Path(path).parents[1]
        homes = (root, Path("/"), *_HOMES, Path(os.path.expanduser("~")).parent)  # noqa: PTH111 - it may be unknown
        if folder.name == "bin" and root.parent not in homes:  # no home of somebody
            yield str(root)


def _made(order: _Order, folder: Path) -> Output:
    if order.build:
        data = _built(order, folder)
    else:
        data = order.text.encode("latin-1" if order.language == "cubin" else "utf-8")
    return _of_cubin(data, order) if order.language == "cubin" else _of_ptx(data, order, folder)


def _built(order: _Order, folder: Path) -> bytes:
    """The file that the build command writes, or what it prints where it names none."""
    output = folder / f"output.{order.language}"
    name, *words = order.build
    for token, value in ((OUTPUT, str(output)), (ARCHITECTURE, order.architecture)):
        words = [word.replace(f"{{{token}}}", value) for word in words]
    prints = f"{{{OUTPUT}}}" not in "\0".join(order.build)
    place = Path(order.path).parent
    command = [found_command(name, place) or name, *words]
    said = _run(f"build: {name}", command, folder, place, output if prints else None)
    data = output.read_bytes() if output.is_file() else b""
    if not data:
        where = "standard output, and no word of build is {output}" if prints else "{output}"
        raise _FailedError(f"error: build: {name} wrote nothing to {where}\n{said}")
    return data


def _of_cubin(data: bytes, order: _Order) -> Output:
    try:
        cubin = read_cubin(data)
    except InputError as error:
        raise _FailedError(f"error: {error}") from error
    if not cubin.serves(order.architecture):
        raise _FailedError(
            f"error: is code for sm_{cubin.number}, not for {order.architecture}; PTX serves newer GPUs, too"
        )
    entry = _named(order.entry, cubin.entries, "entry")
    symbols = tuple(_named(symbol, cubin.variables, "variable") for symbol in order.symbols)
    return Output(data, entry, "", symbols)


def _of_ptx(data: bytes, order: _Order, folder: Path) -> Output:
    text = data.decode(errors="replace").replace("\0", "")
    if ".version" not in text or ".target" not in text:
        right = "language = 'cubin' takes it" if data.startswith(b"\x7fELF") else "nvcc -ptx makes it"
        raise _FailedError(f"error: is no PTX, which has .version and .target; {right}")
    entry = _named(order.entry, entries_in(text), "entry")
    symbols = tuple(_named(symbol, variables_in(text), "variable") for symbol in order.symbols)
    source, output = folder / "source.ptx", folder / "code.cubin"
    source.write_text(text, encoding="utf-8")
    ptxas, *options = order.ptxas
    target = _TARGET.search(text)  # sm_90a: code that needs what no later GPU has
    exact = target is not None and target[1].rstrip("af") == order.architecture
    name = target[1] if target is not None and exact else order.architecture
    words = ("-v", f"--gpu-name={name}", f"--output-file={output}", *options, str(source))
    log = _run("ptxas", [ptxas, *words], folder, folder)
    return Output(output.read_bytes(), entry, log, symbols, excerpt(text, entry, symbols))


def _run(name: str, command: Sequence[str], folder: Path, place: Path, output: Path | None = None) -> str:
    """Run a command in a place, and return what it says; ``output`` gets its standard output, if given."""
    said = folder / "said"
    environment = {**os.environ, "TMPDIR": str(folder), "XDG_CACHE_HOME": str(folder)}
    try:
        with said.open("wb") as log, contextlib.ExitStack() as opened:
            printed = log if output is None else opened.enter_context(output.open("wb"))
            status = subprocess.run(  # noqa: S603 - a list, without a shell
                command,
                cwd=place,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=printed,
                stderr=log,
                check=False,
            ).returncode
    except (OSError, ValueError) as error:  # no program, or a word with a null byte
        raise _FailedError(f"error: {name} cannot be started: {error}") from error
    with said.open(errors="replace") as log:
        text = log.read(_SAID).replace(str(folder), "").replace("\0", "")
    if status:
        how = f"ended with exit status {status}" if status > 0 else _killed(-status)
        lines = [line for line in text.splitlines() if line.strip()]
        reason = first_error(text) if FATAL.search(text) else lines[-1].strip() if lines else ""
        denied = "Permission denied" in text or "Errno 13" in text
        hint = "; it reads the folder of the source and include_paths, and writes {output}" if denied else ""
        raise _FailedError(f"error: {name} {how}{reason and f': {reason}'}{hint}\n{text}")
    return text


def _killed(number: int) -> str:
    if number == signal.SIGXFSZ:
        return f"wrote more than {CUBIN_BYTES // 2**20} MiB"
    return f"was killed by signal {number}"


def _named(name: str, mangled: Iterable[str], kind: str) -> str:
    """The mangled name that a name expression stands for, in the words of C++ or of the file itself."""
    names = list(mangled)
    if name in names:
        return name
    wanted = _plain(name)
    written = {each: _plain(demangled(each) or each) for each in names}
    for inner in (str, _without_arguments, _innermost):
        found = [each for each, text in written.items() if inner(text) == wanted]
        if len(found) == 1:
            return found[0]
    listed = ", ".join(list(dict.fromkeys(written.values()))[:_LISTED]) or "none"
    raise _FailedError(
        f"error: has no {kind} {name}; it has {listed}{', ...' if len(names) > _LISTED else ''}"
    )


def _without_arguments(name: str) -> str:
    return name.partition("<")[0]


def _innermost(name: str) -> str:
    """A name without namespaces and the tags that compilers other than those of C++ put to it."""
    return name.partition("[")[0].rpartition("::")[2]


def _plain(name: str) -> str:
    """A name as C++ writes it, without return type, parameters, spaces and suffixes of numbers."""
    depth, end = 0, len(name)
    for at in range(len(name) - 1, -1, -1) if name.endswith(")") else ():
        depth += (name[at] == ")") - (name[at] == "(")
        if depth == 0:
            end = at
            break
    head = name[:end].removeprefix("void ")
    return _NO_PART.sub("", head)


# --- Triton: Python files, compiled by the interpreter that has Triton and what they import.

_CHILD_BYTES = 2**29  # of a child: Triton, ptxas beside it, and perhaps PyTorch
_MOST_CHILDREN = 12
_KEY_TIMEOUT_S = 60.0  # to import what a file imports from a cold disk


class TritonBackend(Backend):
    """Compiles jitted functions; a stage may name the interpreter as the command that builds it.

    Children are those of all architectures of this process, as what they import takes seconds.
    """

    SERVER = "tuner.compiler.triton_server:TritonServer"
    IDLE_S = 60.0

    def __init__(self, architecture: str, jobs: int, *, idle_s: float | None = None) -> None:
        super().__init__(architecture, jobs, idle_s=idle_s)
        self._pools: dict[str, CompileChildren] = {}
        self._keys: dict[tuple[str, ...], tuple[str, ...] | str] = {}
        self._closed = False
        self.forget()
        forget_in_forks(self)

    def forget(self) -> None:
        """Have a lock that nobody holds: at first, and in a forked process."""
        self._lock = threading.Lock()

    @property
    def version(self) -> str:
        """Nothing: interpreters may differ, and a key has the version of its own."""
        return ""

    def refused(self, stage: Stage) -> CompileError | None:
        """Return the error of a stage where Triton is not installed, or its file cannot be run, or None."""
        known = self._known(stage)
        return CompileError(f"{label(stage)}: {known}") if isinstance(known, str) else None

    def key(self, stage: Stage) -> tuple[object, ...]:
        """Triton's own key: its version, the function with all that it calls, ptxas."""
        return tuple(self._known(stage))

    def compile(self, stage: Stage, timeout_s: float) -> Output | CompileError:
        """Compile a function for its specialisation."""
        parameters = tuple(
            (one.parameter, one.dtype, one.alignment, one.constant, one.told) for one in stage.specialisation
        )
        options = tuple(_option(text) for text in stage.options)
        try:
            return self._asked(
                *(stage, timeout_s, *_about(stage), parameters, options, self._architecture),
                children=self._children_of(stage),
            )
        except CompileError as error:
            return CompileError(f"{label(stage)}: {error}")

    def lasting(self, output: Output) -> bool:
        """Return False of what fails: memory, a full disk or a function of the user's may be why."""
        return output.cubin is not None

    def close(self) -> None:
        """Leave the children to other architectures, or end them."""
        super().close()
        with self._lock:
            self._closed = True
            pools, self._pools = self._pools, {}
        for python in pools:
            _leave(python)

    def _known(self, stage: Stage) -> tuple[str, ...] | str:
        """The key of a stage's function, or why there is none; asked for once."""
        about = (stage.source.path, stage.source.sha256, stage.entry, _python(stage))
        with self._lock:
            known = self._keys.get(about)
        if known is None:
            known = self._asked_key(stage)
            with self._lock:
                self._keys[about] = known
        return known

    def _asked_key(self, stage: Stage) -> tuple[str, ...] | str:
        children = self._children_of(stage)
        try:
            answer = children.call("key", *_about(stage), self._architecture, timeout_s=_KEY_TIMEOUT_S)
        except (CompileError, ChildError, CompilerUnavailableError) as error:
            return in_one_line(error)
        return tuple(map(str, answer)) if isinstance(answer, tuple) else repr(answer)

    def _children_of(self, stage: Stage) -> CompileChildren:
        python = _python(stage)
        with self._lock:
            if self._closed:
                raise CompilerUnavailableError("this compiler is closed")
            if python not in self._pools:
                self._pools[python] = _joined(python)
            return self._pools[python]


# --- The children of an interpreter: they serve all architectures, as long as one backend has them.

_SHARED: dict[str, tuple[CompileChildren, int]] = {}
_OF_SHARED = threading.Lock()


def _forget() -> None:
    """Begin anew in a forked process: whoever held the lock was not forked with it."""
    global _OF_SHARED  # noqa: PLW0603 - the one of the process
    _OF_SHARED = threading.Lock()


os.register_at_fork(after_in_child=_forget)


def _joined(python: str) -> CompileChildren:
    with _OF_SHARED:
        children, users = _SHARED.get(python, (None, 0))
        if children is None:
            most = max(1, min(_MOST_CHILDREN, _free_bytes() // _CHILD_BYTES))
            named = python or sys.executable
            children = CompileChildren(TritonBackend.SERVER, named, most, TritonBackend.IDLE_S, python)
        _SHARED[python] = children, users + 1
        return children


def _leave(python: str) -> None:
    with _OF_SHARED:
        children, users = _SHARED.pop(python)
        if users > 1:
            _SHARED[python] = children, users - 1
            return
    children.close()


def _free_bytes() -> int:
    """Memory that may be taken without others losing theirs."""
    for line in Path("/proc/meminfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return _CHILD_BYTES


def _python(stage: Stage) -> str:
    """The interpreter that a stage names; empty for this one."""
    return stage.build[0] if stage.build else ""


def _about(stage: Stage) -> tuple[str, str, str]:
    """The file of a stage, a digest of the text that it must have, and the function."""
    return str(Path(stage.source.path).absolute()), digest(stage.source.text), stage.entry


def _option(text: str) -> tuple[str, bool | int]:
    """An option of Triton from its text, as ``num_warps=4``."""
    name, _, value = text.partition("=")
    return name, value == "true" if value in ("true", "false") else int(value)
