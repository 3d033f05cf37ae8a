"""Compilation of stages to cubins: in child processes, each with a time-out, cached on disk by content.

Every compilation happens in a child process, so that one that hangs or crashes NVRTC costs that configuration
only. What is cached is NVRTC's answer, errors included: the same text fails the same way. Time-outs and
crashes are not, as another try may end otherwise.
"""

import hashlib
import json
import logging
import os
import re
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from ctypes import CDLL, POINTER, byref, c_char_p, c_int, c_size_t, c_void_p, string_at
from dataclasses import dataclass
from functools import cache
from pathlib import Path, PurePath
from types import TracebackType

from tuner.compiler import nvrtc
from tuner.compiler.cubin_cache import CubinCache, default_directory
from tuner.compiler.host_code import Texts, without_host_code
from tuner.compiler.nvrtc import LOADER_NAMES, Output, library_files
from tuner.compiler.toolkit_headers import ToolkitHeaders, another_try, explained, missing_header
from tuner.model.errors import (
    ChildCrashedError,
    ChildError,
    ChildTimeoutError,
    CompileError,
    CompilerUnavailableError,
    InputError,
)
from tuner.model.plan import Progress, Resources, Source, Stage
from tuner.system.processes import Child
from tuner.system.untrusted.compiler_options import check_name_expression, check_options
from tuner.system.untrusted.includes import check_includes


class CompileChildren:
    """Children with one loaded NVRTC library each; may be used by several threads.

    A child starts when all others are busy, up to ``jobs`` of them, and ends when nothing has been asked of
    it for ``idle_s``: each holds about 30 MB of its own (Linux, NVRTC 12.9).

    Args:
        idle_s: seconds without work after which a child ends.
    """

    def __init__(self, server: str, library: str, jobs: int, idle_s: float) -> None:
        self._server = server
        self._library = library
        self._jobs = jobs
        self._idle_s = idle_s
        self._changed = threading.Condition()
        self._idle: list[tuple[float, Child]] = []  # with the time it fell idle, the latest last
        self._children: set[Child] = set()
        self._reaping = False
        self._closed = False

    def __len__(self) -> int:
        """Children that live."""
        with self._changed:
            return len(self._children)

    def call(self, method: str, *args: object, timeout_s: float) -> object:
        """Call a method of the server in a child that has no other work; see ``Child.call``.

        Waiting for a child counts towards no time-out.

        Raises:
            ChildError: as `Child.call`; that child is gone, the others are not touched.
            CompilerUnavailableError: these children are closed, or what the server raised.
        """
        child = self._take()
        try:
            answer: object = child.call(method, *args, timeout_s=timeout_s)
            return answer
        finally:
            self._give_back(child)

    def close(self) -> None:
        """End all children, those at work too; none starts afterwards."""
        with self._changed:
            self._closed = True
            children = list(self._children)
            self._children.clear()
            self._idle.clear()
            self._changed.notify_all()
        for child in children:
            child.close(grace_s=0.0)

    def _take(self) -> Child:
        with self._changed:
            self._changed.wait_for(lambda: self._closed or self._idle or len(self._children) < self._jobs)
            if self._closed:
                raise CompilerUnavailableError("this compiler is closed")
            if self._idle:
                return self._idle.pop()[1]  # the latest: those that idle longest are the ones to end
            child = Child(self._server, self._library, name="compiler")
            self._children.add(child)
            return child

    def _give_back(self, child: Child) -> None:
        with self._changed:
            reused = child.alive and child in self._children
            if reused:
                self._idle.append((time.monotonic(), child))
                if not self._reaping:
                    self._reaping = True
                    threading.Thread(target=self._reap, name="compile-reaper", daemon=True).start()
            else:
                self._children.discard(child)
            self._changed.notify_all()  # the reaper waits here, too
        if not reused:
            child.close(grace_s=0.0)

    def _reap(self) -> None:
        """End children that have idled too long; ends itself when no child idles."""
        while True:
            with self._changed:
                if self._idle:
                    left_s = self._idle[0][0] + self._idle_s - time.monotonic()
                    if left_s > 0:
                        self._changed.wait(left_s)
                        continue
                    _, child = self._idle.pop(0)
                    self._children.discard(child)
                    self._changed.notify_all()
                else:
                    self._reaping = False  # the next child that is given back begins anew
                    return
            child.close()


# --- Chooses the NVRTC library for an architecture: the newest that supports it.

_log = logging.getLogger(__name__)

SERVER = "tuner.compiler.nvrtc:CompileServer"
"""Import path of the server that loads a library in a child process."""

_TIMEOUT_S = 60.0  # to load a library from a cold disk


@dataclass(frozen=True)
class Library:
    """An NVRTC library.

    Attributes:
        path: file, or name the dynamic loader knows.
        size: bytes of the file, which tell builds of one version apart; 0 for a name.
        version: e.g. ``12.9``.
    """

    path: str
    size: int
    version: str
    architectures: tuple[int, ...]

    @property
    def order(self) -> tuple[int, ...]:
        """The version as numbers."""
        return tuple(map(int, self.version.split(".")))


def choose(
    architecture: str, libraries: Sequence[str | Path] | None, cache: CubinCache, server: str = SERVER
) -> Library:
    """The newest library that serves an architecture; the cache spares loading each to find out.

    Raises:
        CompilerUnavailableError: none serves it; the message says what each serves.
    """
    match = re.fullmatch(r"sm_(\d+)[af]?", architecture)
    if match is None:
        raise CompilerUnavailableError(f"{architecture!r} is not a real architecture such as sm_90")
    number = int(match[1])
    candidates = described(nvrtc.library_files() if libraries is None else libraries, cache, server)
    if libraries is None and not any(number in library.architectures for library in candidates):
        candidates += described(nvrtc.LOADER_NAMES, cache, server)
    serving = [library for library in candidates if number in library.architectures]
    if not serving:
        listed = "; ".join(
            f"{library.path} ({library.version}) serves " + " ".join(f"sm_{a}" for a in library.architectures)
            for library in candidates
        )
        raise CompilerUnavailableError(
            f"no NVRTC compiles for {architecture}: {listed or 'none is installed'}; "
            "the package nvidia-cuda-nvrtc-cu12 serves sm_50 and up"
        )
    return max(serving, key=lambda library: library.order)


def described(libraries: Iterable[str | Path], cache: CubinCache, server: str) -> list[Library]:
    """The libraries that load, each file once; from memory where the file has not changed."""
    remembered = cache.load_libraries()
    learnt = dict(remembered)
    loaded = {}
    for library in map(str, libraries):
        is_file = os.sep in library
        path = os.path.realpath(library) if is_file else library
        try:
            status = Path(path).stat() if is_file else None
            stamp = f"{path} {status.st_size} {status.st_mtime_ns}" if status else ""
            version, architectures = learnt[stamp] if stamp in learnt else _ask(path, server)
        except (OSError, CompilerUnavailableError, ChildError) as error:
            _log.info("NVRTC %s: %s", path, error)
            continue
        if status:  # what a name stands for may change unseen
            learnt[stamp] = version, architectures
        loaded[path] = Library(path, status.st_size if status else 0, version, architectures)
    if learnt != remembered:
        cache.store_libraries(learnt)
    return list(loaded.values())


def _ask(path: str, server: str) -> tuple[str, tuple[int, ...]]:
    """Load a library in a child, which may crash, and have it describe itself."""
    with Child(server, path, name=path) as child:
        version, architectures = child.call("describe", timeout_s=_TIMEOUT_S)
        return version, architectures


# The two lines stay together, also where a unit's entries are compiled at the same time.
_REPORT = re.compile(
    r"\D*(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads\n"
    r"[^\n]*Used (\d+) registers([^\n]*)"
)
_STATIC_SHARED = re.compile(r"(\d+) bytes smem")


def resources_in(log: str, lowered_name: str, architecture: str) -> Resources | None:
    """Return the resources that ptxas reports of an entry (``--ptxas-options=-v``); None without a report."""
    head = f"Function properties for {lowered_name}\n"
    begin = log.find(head)
    report = None if begin < 0 else _REPORT.match(log, begin + len(head))
    if report is None:
        return None
    stack, stores, loads, registers = map(int, report.groups()[:4])
    shared = _STATIC_SHARED.search(report[5])
    return Resources(
        registers_per_thread=registers,
        static_shared_bytes=int(shared[1]) if shared else 0,
        spill_bytes=stores + loads,
        local_bytes=stack,
        architecture=architecture,
    )


# --- The compiler: stages in, cubins and resources out.

MOST_JOBS = 12
"""Children at a time, on however many CPUs: each holds some 30 MB, a run 0.9 GB at most."""

IDLE_S = 2.0
"""Time without work after which a child ends: the pause between two trials, and no more."""

_FORMAT = 4  # of cache entries; part of their keys
_MOST_HOST_PASSES = 20  # of one compilation: a log has a hundred errors at most
_FIRST_WITH_CACHE = (12, 9)  # of NVRTC's own; what it takes from there comes without the reports of ptxas


def usual_jobs() -> int:
    """Compilations at a time, unless told otherwise: the CPUs this process may use, up to `MOST_JOBS`.

    Two at least, so that one that hangs does not hold up all others.
    """
    return max(2, min(MOST_JOBS, len(os.sched_getaffinity(0))))


@dataclass(frozen=True)
class CompiledStage:
    """One compiled stage.

    Attributes:
        cubin: code for the architecture.
        lowered_name: mangled name to look the function up by.
        resources: what it takes of a multiprocessor.
        log: NVRTC's log, warnings and the reports of ptxas.
        symbols: mangled names of the stage's symbols, in their order.
        ptx: of the entry and what it calls; empty where it is not known.
    """

    cubin: bytes
    lowered_name: str
    resources: Resources
    log: str
    symbols: tuple[str, ...] = ()
    ptx: str = ""


class Compiler:
    """Compiles for one architecture with the newest NVRTC that serves it.

    Children start with the first stage that is not cached and end when idle. May be used by several threads:
    what two ask for at the same time is compiled once.

    Args:
        architecture: real architecture, e.g. ``sm_90``.
        cache_dir: where cubins are kept; ``cubins`` in the user's cache directory if not given.
        timeout_s: longest wait for one compilation; an attribute of the same name may change it.
        server: ``module:callable`` that makes of a library what compiles in the children.
        idle_s: time without work after which a child ends.

    Raises:
        CompilerUnavailableError: no NVRTC serves the architecture.
    """

    def __init__(
        self,
        architecture: str,
        cache_dir: Path | None = None,
        *,
        jobs: int | None = None,
        timeout_s: float = 60.0,
        libraries: Sequence[str | Path] | None = None,
        server: str = SERVER,
        idle_s: float = IDLE_S,
    ) -> None:
        self._architecture = architecture
        self._cache = CubinCache(default_directory() if cache_dir is None else cache_dir)
        self._jobs = jobs or usual_jobs()
        self.timeout_s = timeout_s
        self._library = choose(architecture, libraries, self._cache, server)
        self._children = CompileChildren(server, self._library.path, self._jobs, idle_s)
        self._headers = ToolkitHeaders(self._library.version)
        self._checked: set[str] = set()  # sources
        self._lock = threading.Lock()
        self._under_way: dict[str, Future[Output | CompileError]] = {}

    @property
    def nvrtc_version(self) -> str:
        """Version of the NVRTC in use, e.g. ``12.9``."""
        return self._library.version

    def compile(
        self, stages: Sequence[Stage], progress: Progress | None = None
    ) -> list[CompiledStage | CompileError]:
        """Compile stages; those that are equal in all that matters to the compiler, once.

        Args:
            stages: what to compile.
            progress: called in this thread with (done, total) distinct compilations.

        Returns:
            For each stage, in order, the code or the error (one bad configuration stops no other).

        Raises:
            CompilerUnavailableError: NVRTC itself fails, or this compiler is closed.
        """
        keys = self._keys(stages)
        by_key = dict(zip(keys, stages, strict=True))
        stored = {key: self._refused(stage) or self._cache.load(key) for key, stage in by_key.items()}
        outputs: dict[str, Output | CompileError] = {k: v for k, v in stored.items() if v is not None}

        def report() -> None:
            if progress is not None:
                progress(len(outputs), len(by_key))

        def finish(key: str, output: Output | CompileError) -> None:
            outputs[key] = output
            report()

        report()
        self._compile_missing({k: stage for k, stage in by_key.items() if k not in outputs}, finish)
        results = [self._result(stage, outputs[key]) for key, stage in zip(keys, stages, strict=True)]
        again = self._to_try_again(stages, [outputs[key] for key in keys])
        for at, result in zip(again, self.compile(list(again.values())) if again else (), strict=True):
            results[at] = result
        return results

    @staticmethod
    def _to_try_again(stages: Sequence[Stage], outputs: Sequence[Output | CompileError]) -> dict[int, Stage]:
        """The stages by their place that may compile with what nvcc gives them unasked."""
        mended = {
            at: another_try(stage, output.log)
            for at, (stage, output) in enumerate(zip(stages, outputs, strict=True))
            if isinstance(output, Output) and output.cubin is None
        }
        return {at: stage for at, stage in mended.items() if stage is not None}

    def compile_one(self, stage: Stage) -> CompiledStage:
        """Compile one stage.

        Raises:
            CompileError: it does not compile, within the time-out.
            CompilerUnavailableError: NVRTC itself fails, or this compiler is closed.
        """
        (result,) = self.compile([stage])
        if isinstance(result, CompileError):
            raise result
        return result

    def close(self) -> None:
        """End the children, those at work too; nothing is compiled afterwards."""
        self._children.close()

    def __enter__(self) -> "Compiler":  # noqa: PYI034 - typing.Self needs Python 3.11
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _refused(self, stage: Stage) -> CompileError | None:
        """Return the error for a stage with options, names or includes that no kernel may use, or None.

        The reader of a kernel file refuses it before, and names the key.
        """
        source = stage.source
        try:
            check_options(stage.options, source.include_paths)
            for expression in (stage.entry, *_names_of_symbols(stage)):
                check_name_expression(expression)
            if source.sha256 not in self._checked:
                check_includes(source.path, source.text, source.headers, source.include_paths)
                self._checked.add(source.sha256)
        except InputError as error:
            return CompileError(f"{_label(stage)}: {error}")
        return None

    def _keys(self, stages: Sequence[Stage]) -> list[str]:
        """Digests of all that decides what comes out of the compiler."""
        sources: dict[Source, str] = {}
        keys = []
        for stage in stages:
            if stage.source not in sources:
                sources[stage.source] = stage.source.sha256
            content = (
                _FORMAT,
                self._library.version,
                self._library.size,
                self._options(stage),
                PurePath(stage.source.path).name,  # __FILE__, and the messages
                stage.entry,
                sources[stage.source],
                *((_names_of_symbols(stage),) if stage.symbols else ()),
                *self._headers.stamps(stage.source),
            )
            keys.append(hashlib.sha256(json.dumps(content).encode()).hexdigest())
        return keys

    def _options(self, stage: Stage) -> tuple[str, ...]:
        uncached = ("--no-cache",) if self._library.order >= _FIRST_WITH_CACHE else ()
        return (f"--gpu-architecture={self._architecture}", "--ptxas-options=-v", *uncached, *stage.options)

    def _compile_missing(
        self, missing: Mapping[str, Stage], finish: Callable[[str, Output | CompileError], None]
    ) -> None:
        """Compile in children and cache; ``finish`` is told each as it is done."""
        if not missing:
            return
        pool = ThreadPoolExecutor(min(self._jobs, len(missing)), thread_name_prefix="compile")
        try:
            futures = {pool.submit(self._output, key, stage): key for key, stage in missing.items()}
            for future in as_completed(futures):
                finish(futures[future], future.result())
        except BaseException:  # Ctrl-C, or an error of the caller's progress: leave nothing at work
            pool.shutdown(wait=False, cancel_futures=True)
            self.close()
            raise
        finally:
            pool.shutdown()

    def _output(self, key: str, stage: Stage) -> Output | CompileError:
        """Compile and cache, or wait for the thread that compiles the same."""
        with self._lock:
            others = self._under_way.get(key)
            mine: Future[Output | CompileError] = Future()
            if others is None:
                self._under_way[key] = mine
        if others is not None:
            return others.result()
        try:
            output = self._cache.load(key) or self._compile_in_child(stage)
            if isinstance(output, Output) and not missing_header(output.log):  # it may be installed later
                self._cache.store(key, output)
            mine.set_result(output)
        except BaseException as error:
            mine.set_exception(error)
            raise
        finally:
            with self._lock:
                del self._under_way[key]
        return output

    def _compile_in_child(self, stage: Stage) -> Output | CompileError:
        """Compile as written, then without what NVRTC calls code of the host, as long as it finds more."""
        name = PurePath(stage.source.path).name
        texts: Texts = ((name, stage.source.text), *self._headers.in_memory(stage.source))
        first = answer = self._compile_texts(stage, texts)
        for _ in range(_MOST_HOST_PASSES):
            if not isinstance(answer, Output) or answer.cubin is not None:
                break
            others = without_host_code(texts, answer.log)
            if others is None:
                break
            texts, answer = others, self._compile_texts(stage, others)
        if answer is first or not isinstance(first, Output) or not isinstance(answer, Output):
            return answer
        if answer.cubin is None and missing_header(first.log):  # it may have what the code lacks
            return answer._replace(log=f"{answer.log}\n{first.log}")
        return answer

    def _compile_texts(self, stage: Stage, texts: Texts) -> Output | CompileError:
        try:
            answer = self._children.call(
                "compile",
                *texts[0],
                texts[1:],
                stage.entry,
                (*self._options(stage), *self._headers.options(stage.source)),
                *((_names_of_symbols(stage),) if stage.symbols else ()),
                timeout_s=self.timeout_s,
            )
        except ChildTimeoutError:
            return CompileError(f"{_label(stage)}: not compiled within {self.timeout_s:.3g} s")
        except ChildCrashedError as error:
            return CompileError(f"{_label(stage)}: {error}")
        if not isinstance(answer, Output):
            raise TypeError(f"a compile child answered {type(answer)}")
        return answer

    def _result(self, stage: Stage, output: Output | CompileError) -> CompiledStage | CompileError:
        if isinstance(output, CompileError):
            return output
        if output.cubin is None:
            named = "entry or symbol" if stage.symbols else "entry"
            error = explained(_first_error(output.log, named), stage, self._library.version)
            header = missing_header(output.log)
            if header and header not in error:  # left out with code of the host
                error += f"; {header}, which it includes, is not here"
            return CompileError(f"{_label(stage)}: {error}", output.log)
        resources = resources_in(output.log, output.lowered_name, self._architecture)
        if resources is None:
            return CompileError(f"{_label(stage)}: ptxas reports no resources; is it silenced by an option?")
        return CompiledStage(
            output.cubin, output.lowered_name, resources, output.log, output.symbols, output.ptx
        )


def _names_of_symbols(stage: Stage) -> tuple[str, ...]:
    return tuple(symbol for symbol, _ in stage.symbols)


def _label(stage: Stage) -> str:
    return f"stage {stage.name!r}, {stage.entry} of {stage.source.path}"


def _first_error(log: str, named: str) -> str:
    """The first error of a log, with file and line where the compiler states them."""
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    first = next((line for line in lines if re.search(r"\berror\b", line)), lines[0] if lines else "no log")
    first = re.sub(r"(is considered a host function), and .*", r"\1", first)  # what follows is NVRTC's advice
    return re.sub(r"^__nv_name_map\(\d+\): ", f"{named}: ", first)  # NVRTC's word for name expressions


# --- One compilation of stages for each architecture that the NVRTC of this machine serves.

_MANGLED = "_Z"


def served_architectures() -> tuple[str, ...]:
    """The architectures that an NVRTC of this machine compiles for, as ``sm_90``; none without NVRTC."""
    cache = CubinCache(default_directory())
    libraries = described(library_files(), cache, SERVER) or described(LOADER_NAMES, cache, SERVER)
    return tuple(
        f"sm_{number}" for number in sorted({number for each in libraries for number in each.architectures})
    )


def compiled_for(
    stages: Mapping[str, Sequence[Stage]], progress: Progress | None = None
) -> dict[str, list[CompiledStage | CompileError]]:
    """Compile stages for architectures, several at a time.

    Returns:
        For each architecture and stage the code or the error.

    Raises:
        CompilerUnavailableError: no NVRTC serves an architecture.
    """

    def compiled(architecture: str) -> list[CompiledStage | CompileError]:
        with Compiler(architecture, jobs=1) as compiler:
            return compiler.compile(stages[architecture])

    results: dict[str, list[CompiledStage | CompileError]] = {}
    with ThreadPoolExecutor(min(usual_jobs(), max(1, len(stages)))) as pool:
        futures = {pool.submit(compiled, architecture): architecture for architecture in stages}
        for future in as_completed(futures):
            results[futures[future]] = future.result()
            if progress is not None:
                progress(len(results), len(stages))
    return {architecture: results[architecture] for architecture in stages}


def demangled(name: str) -> str | None:
    """A mangled name as C++ writes it, by the C++ library of this machine.

    Returns:
        None where the name is not mangled, or the library is not here.
    """
    demangle = _demangler() if name.startswith(_MANGLED) else None
    return None if demangle is None else demangle(name)


@cache
def _demangler() -> Callable[[str], str | None] | None:
    try:
        demangle, release = getattr(CDLL("libstdc++.so.6"), "__cxa_demangle"), CDLL(None).free
    except (OSError, AttributeError):
        return None
    demangle.restype, release.argtypes = c_void_p, [c_void_p]
    demangle.argtypes = [c_char_p, c_char_p, POINTER(c_size_t), POINTER(c_int)]

    def call(name: str) -> str | None:
        pointer = demangle(os.fsencode(name), None, None, byref(c_int()))
        if not pointer:
            return None
        try:
            return string_at(pointer).decode()
        finally:
            release(pointer)

    return call
