"""Compilation of stages to cubins: in child processes, each with a time-out, cached on disk by content.

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
from contextlib import AbstractContextManager
from dataclasses import astuple, dataclass, replace
from pathlib import Path

from tuner.compiler.backend import Backend, label
from tuner.compiler.commands import CommandBackend, TritonBackend
from tuner.compiler.cubin import CubinCache, default_directory, read_cubin
from tuner.compiler.nvrtc import Output
from tuner.compiler.nvrtc_backend import SERVER, NvrtcBackend
from tuner.model.errors import CompileError, CompilerUnavailableError
from tuner.model.plan import Progress, Resources, Stage
from tuner.system.processes import forget_in_forks

BACKENDS: dict[str, type[Backend]] = {
    "ptx": CommandBackend,
    "cubin": CommandBackend,
    "triton": TritonBackend,
}
"""The backends of languages other than CUDA C++, made when the first stage of their language comes."""

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

_FORMAT = 5  # of cache entries; part of their keys


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
        log: the compiler's log, warnings and the reports of ptxas.
        symbols: mangled names of the stage's symbols, in their order.
        ptx: of the entry and what it calls; empty where it is not known.
    """

    cubin: bytes
    lowered_name: str
    resources: Resources
    log: str
    symbols: tuple[str, ...] = ()
    ptx: str = ""


class Compiler(AbstractContextManager["Compiler"]):
    """Compiles for one architecture: CUDA C++ with the newest NVRTC that serves it, others by `BACKENDS`.

    Children start with the first stage that is not cached and end when idle. May be used by several threads:
    what two ask for at the same time is compiled once.

    Args:
        architecture: real architecture, e.g. ``sm_90``.
        cache_dir: where cubins are kept; ``cubins`` in the user's cache directory if not given.
        timeout_s: longest wait for one compilation, of each backend its own if not given; an attribute of
            the same name may change it.
        server: ``module:callable`` that makes of a library of NVRTC what compiles in the children.
        idle_s: time without work after which a child ends; of each backend its own if not given.

    Attributes:
        closed: it compiles nothing any more: after ``close``, or an interrupt or any error of a compilation.

    Raises:
        CompilerUnavailableError: no NVRTC serves the architecture.
    """

    def __init__(
        self,
        architecture: str,
        cache_dir: Path | None = None,
        *,
        jobs: int | None = None,
        timeout_s: float | None = None,
        libraries: Sequence[str | Path] | None = None,
        server: str = SERVER,
        idle_s: float | None = None,
    ) -> None:
        self._architecture = architecture
        self._cache = CubinCache(default_directory() if cache_dir is None else cache_dir)
        self._jobs = jobs or usual_jobs()
        self._idle_s = idle_s
        self.timeout_s = timeout_s
        nvrtc = NvrtcBackend(
            architecture, self._jobs, self._cache, libraries=libraries, server=server, idle_s=idle_s
        )
        self.nvrtc_version = nvrtc.version
        self._backends: dict[str, Backend] = {"cuda": nvrtc}
        self.closed = False
        self.forget()
        forget_in_forks(self)

    def forget(self) -> None:
        """Have nothing under way: at first, and in a forked process, where no thread would end it."""
        self._lock = threading.Lock()
        self._under_way: dict[str, Future[Output | CompileError]] = {}

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
            CompilerUnavailableError: a compiler itself fails or is not installed, or this one is closed.
        """
        keys = [self._key(stage) for stage in stages]
        by_key = dict(zip(keys, stages, strict=True))
        stored = {
            key: self._backend(stage).refused(stage) or self._cache.load(key) for key, stage in by_key.items()
        }
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

    def _to_try_again(
        self, stages: Sequence[Stage], outputs: Sequence[Output | CompileError]
    ) -> dict[int, Stage]:
        """The stages by their place that may compile with what nvcc gives them unasked."""
        mended = {
            at: self._backend(stage).another_try(stage, output)
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
        with self._lock:
            self.closed = True
            backends = list(self._backends.values())
        for backend in backends:
            backend.close()

    def __exit__(self, *_: object) -> None:
        self.close()

    def _backend(self, stage: Stage) -> Backend:
        language = stage.source.language
        with self._lock:
            if language not in self._backends:
                if self.closed:
                    raise CompilerUnavailableError("this compiler is closed")
                if language not in BACKENDS:
                    raise CompilerUnavailableError(f"nothing here compiles {language}")
                self._backends[language] = BACKENDS[language](
                    self._architecture, self._jobs, idle_s=self._idle_s
                )
            return self._backends[language]

    def _key(self, stage: Stage) -> str:
        """Digest of all that decides what comes out of the compiler."""
        backend = self._backend(stage)
        origin = (_FORMAT, stage.source.language, backend.version, self._architecture)
        content = json.dumps((*origin, backend.key(stage), stage.code), default=astuple)
        return hashlib.sha256(content.encode()).hexdigest()

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
            backend = self._backend(stage)
            timeout_s = backend.TIMEOUT_S if self.timeout_s is None else self.timeout_s
            output = self._cache.load(key) or _of_what_was_read(stage, backend.compile(stage, timeout_s))
            if isinstance(output, Output) and backend.lasting(output):
                self._cache.store(key, output)
            mine.set_result(output)
        except BaseException as error:
            mine.set_exception(error)
            raise
        finally:
            with self._lock:
                del self._under_way[key]
        return output

    def _result(self, stage: Stage, output: Output | CompileError) -> CompiledStage | CompileError:
        if isinstance(output, CompileError):
            return output
        if output.cubin is None:
            return CompileError(f"{label(stage)}: {self._backend(stage).error(stage, output)}", output.log)
        resources = resources_in(output.log, output.lowered_name, self._architecture)
        if resources is None and stage.source.language != "cuda":  # nobody asked ptxas
            resources = read_cubin(output.cubin).entries[output.lowered_name].resources(self._architecture)
        if resources is None:
            return CompileError(f"{label(stage)}: ptxas reports no resources; is it silenced by an option?")
        # of CUDA C++, configurations have entries of other names: no two have one code
        code = "" if stage.source.language == "cuda" else hashlib.sha256(output.cubin).hexdigest()
        resources = replace(resources, demands=output.demands, code=code)
        return CompiledStage(
            output.cubin, output.lowered_name, resources, output.log, output.symbols, output.ptx
        )


def _of_what_was_read(stage: Stage, output: Output | CompileError) -> Output | CompileError:
    """An answer; an error in its place if files that the stage is made of are not those of its key now."""
    from tuner.kernel_files.source_folder import has_changed  # noqa: PLC0415 - not where all is cached

    if not isinstance(output, Output) or not has_changed(stage.source, stage.build):
        return output
    return CompileError(f"{label(stage)}: a file that it is made of has changed since it was read")


# --- One compilation of stages for each architecture that the NVRTC of this machine serves.


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
