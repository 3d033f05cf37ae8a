"""Compiles stages to cubins: in parallel, each with a time-out, cached on disk by content.

Every compilation happens in a child process, so that one that hangs or crashes NVRTC costs that configuration
only. What is cached is NVRTC's answer, errors included: the same text fails the same way. Time-outs and
crashes are not, as another try may end otherwise.
"""

import hashlib
import json
import os
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path, PurePath
from types import TracebackType

from tuner.compiler.children import CompileChildren
from tuner.compiler.cubin_cache import CubinCache, default_directory
from tuner.compiler.nvrtc import Output
from tuner.compiler.nvrtc_choice import SERVER, choose
from tuner.compiler.ptxas_report import resources_in
from tuner.compiler.toolkit_headers import ToolkitHeaders, missing_header, with_package
from tuner.devices.base import Progress
from tuner.model.errors import ChildCrashedError, ChildTimeoutError, CompileError, InputError
from tuner.model.plan import Resources, Source, Stage
from tuner.untrusted.compiler_options import check_name_expression, check_options
from tuner.untrusted.includes import check_includes

MOST_JOBS = 12
"""Children at a time, on however many CPUs: each holds some 30 MB, a run 0.9 GB at most."""

IDLE_S = 2.0
"""Time without work after which a child ends: the pause between two trials, and no more."""

_FORMAT = 3  # of cache entries; part of their keys
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
        jobs: compilations at a time; the CPUs this process may use, up to `MOST_JOBS`, if not given.
        timeout_s: longest wait for one compilation.
        libraries: NVRTC libraries to choose from; those found on this machine if not given.
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
        self._timeout_s = timeout_s
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
        wanted = dict(zip(keys, stages, strict=True))
        stored = {key: self._refused(stage) or self._cache.load(key) for key, stage in wanted.items()}
        outputs: dict[str, Output | CompileError] = {k: v for k, v in stored.items() if v is not None}

        def report() -> None:
            if progress is not None:
                progress(len(outputs), len(wanted))

        def finish(key: str, output: Output | CompileError) -> None:
            outputs[key] = output
            report()

        report()
        self._compile_missing({k: stage for k, stage in wanted.items() if k not in outputs}, finish)
        return [self._result(stage, outputs[key]) for key, stage in zip(keys, stages, strict=True)]

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
        """Why a stage is not compiled: what no kernel may ask for, whatever way it came here.

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
        try:
            answer = self._children.call(
                "compile",
                PurePath(stage.source.path).name,
                stage.source.text,
                self._headers.in_memory(stage.source),
                stage.entry,
                (*self._options(stage), *self._headers.options(stage.source)),
                *((_names_of_symbols(stage),) if stage.symbols else ()),
                timeout_s=self._timeout_s,
            )
        except ChildTimeoutError:
            return CompileError(f"{_label(stage)}: not compiled within {self._timeout_s:g} s")
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
            error = with_package(_first_error(output.log, named), self._library.version)
            return CompileError(f"{_label(stage)}: {error}")
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
