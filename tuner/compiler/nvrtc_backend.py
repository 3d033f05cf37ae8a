"""The backend of CUDA C++: NVRTC, the newest of this machine that serves the architecture.

Code of the host is left out: NVRTC compiles no function and no variable without an execution or memory space,
and names the line of each. What nvcc takes as it is, a file with ``main``, so compiles here without a change;
lines keep their numbers.
"""

import logging
import os
import re
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from tuner.compiler import nvrtc
from tuner.compiler.backend import Backend, file_name, first_error, label
from tuner.compiler.cubin_cache import CubinCache, default_directory
from tuner.compiler.nvrtc import LOADER_NAMES, Output, library_files
from tuner.compiler.toolkit_headers import ToolkitHeaders, another_try, explained, missing_header
from tuner.kernel_files.cuda_source.tokens import spans_of
from tuner.model.errors import ChildError, CompileError, CompilerUnavailableError, InputError
from tuner.model.plan import Stage
from tuner.system.processes import Child
from tuner.system.untrusted.compiler_options import check_name_expression, check_options
from tuner.system.untrusted.includes import check_includes

# --- Code of the host in the source of a kernel.

Texts = tuple[tuple[str, str], ...]
"""Name and text of a source, which is the first, and its headers."""

_OF_HOST = re.compile(
    r"^(.+)\((\d+)\): error: A (function|namespace scope variable) without (?:execution|memory) space"
    r" annotations[^\n]*\n([^\n]*)\n([ \t]*)\^",
    re.MULTILINE,
)
_NOT_FOUND = re.compile(
    r'^(.+)\((\d+)\): (?:catastrophic )?error: (?:could not|cannot) open source file "', re.MULTILINE
)
_USING = re.compile(r'^(.+)\((\d+)\): error: namespace "std" has no member "\w+"\n[ \t]*using ', re.MULTILINE)
_LAUNCHES = re.compile(r"<<<|\bmain\s*\(")
_OF_DEVICE = re.compile(r"\b__(?:global|device|constant)__\b")
_LINE = re.compile(r"[ \t]*#[ \t]*line[ \t]+(\d+)")
_OPEN, _CLOSE = frozenset("({["), frozenset(")}]")


_OWN_HEADER = re.compile(r'[ \t]*#[ \t]*include[ \t]*"')


def without_host_code(texts: Texts, log: str) -> Texts | None:
    """The texts without what a log calls code of the host; None where it calls nothing so.

    Headers in angle brackets that are not there count, too, in a file that launches kernels: they may be the
    host's.
    """
    places: dict[str, list[tuple[int, int, str]]] = {}
    for name, line, kind, shown, caret in _OF_HOST.findall(log):
        places.setdefault(name, []).append((int(line), len(caret) - (len(shown) - len(shown.lstrip())), kind))
    if _LAUNCHES.search(texts[0][1]):
        for name, line in (*_NOT_FOUND.findall(log), *_USING.findall(log)):
            places.setdefault(name, []).append((int(line), 0, ""))
    changed = tuple((name, _blanked(text, places.get(name, ()))) for name, text in texts)
    return None if changed == texts else changed


def _blanked(text: str, places: Sequence[tuple[int, int, str]]) -> str:
    """The text with spaces for the statements at some lines and columns behind their indent."""
    if not places:
        return text
    starts = _line_starts(text)
    spans = spans_of(text)
    for line, column, kind in places:
        if line not in starts:
            continue
        begin = starts[line]
        end = text.find("\n", begin)
        row = text[begin : end if end >= 0 else len(text)]
        if not kind:
            if _OWN_HEADER.match(row):  # may hold what the kernel's code depends on
                continue
            text = text[:begin] + " " * len(row) + text[begin + len(row) :]
            continue
        offset = begin + len(row) - len(row.lstrip()) + max(0, column)
        first, last = _statement(spans, offset, kind)
        if _OF_DEVICE.search(text, first, last):  # an error in what it is made of has led NVRTC there
            continue
        text = text[:first] + re.sub(r"[^\n]", " ", text[first:last]) + text[last:]
    return text


def _line_starts(text: str) -> dict[int, int]:
    """The offset of each line, by the number that ``#line`` gives it."""
    starts: dict[int, int] = {}
    number, offset = 1, 0
    for line in text.splitlines(keepends=True):
        starts[number] = offset
        offset += len(line)
        stated = _LINE.match(line)
        number = int(stated[1]) if stated else number + 1
    return starts


def _statement(spans: Sequence[tuple[int, int, str]], offset: int, kind: str) -> tuple[int, int]:
    """First and last offset of the declaration that an offset lies in."""
    at = next((i for i, (_, end, _) in enumerate(spans) if end > offset), len(spans) - 1)
    first = at
    depth = 0
    while first > 0:
        sign = spans[first - 1][2]
        depth += (sign in _CLOSE) - (sign in _OPEN)
        if depth < 0 or (depth == 0 and sign == ";") or sign == "}":
            break
        if sign == ":" and spans[first - 2][2] in ("public", "private", "protected"):
            break
        first -= 1
    depth, last = 0, at
    while last < len(spans):
        sign = spans[last][2]
        depth += (sign in _OPEN) - (sign in _CLOSE)
        if depth < 0:
            last -= 1
            break
        if depth == 0 and (sign == ";" or (sign == "}" and kind == "function")):
            break
        last += 1
    return spans[first][0], spans[min(last, len(spans) - 1)][1]


# --- The backend.

SERVER = "tuner.compiler.nvrtc:CompileServer"
"""Import path of the server that loads a library in a child process."""

_MOST_HOST_PASSES = 20  # of one compilation: a log has a hundred errors at most
_FIRST_WITH_CACHE = (12, 9)  # of NVRTC's own; what it takes from there comes without the reports of ptxas


class NvrtcBackend(Backend):
    """Compiles CUDA C++ with the newest NVRTC that serves an architecture.

    Args:
        architecture: real architecture, e.g. ``sm_90``.
        jobs: children at a time.
        libraries: files of NVRTC to choose from; those of this machine if not given.
        cache: remembers what they serve.
        server: ``module:callable`` that makes of a library what compiles in the children.
        idle_s: time without work after which a child ends.

    Raises:
        CompilerUnavailableError: no NVRTC serves the architecture.
    """

    def __init__(
        self,
        architecture: str,
        jobs: int,
        cache: CubinCache,
        *,
        libraries: Sequence[str | Path] | None = None,
        server: str = SERVER,
        idle_s: float | None = None,
    ) -> None:
        self._library = choose(architecture, libraries, cache, server)
        super().__init__(architecture, jobs, self._library.path, server=server, idle_s=idle_s)
        self._headers = ToolkitHeaders(self._library.version)
        self._checked: set[str] = set()  # sources

    @property
    def version(self) -> str:
        """Version of the NVRTC in use, e.g. ``12.9``."""
        return self._library.version

    def refused(self, stage: Stage) -> CompileError | None:
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
            return CompileError(f"{label(stage)}: {error}")
        return None

    def key(self, stage: Stage) -> tuple[object, ...]:
        """The build of NVRTC, its own options, and the headers of CUDA that the source includes."""
        return self._library.size, self._options(stage), *self._headers.stamps(stage.source)

    def compile(self, stage: Stage, timeout_s: float) -> Output | CompileError:
        """Compile as written, then without what NVRTC calls code of the host, as long as it finds more."""
        texts: Texts = ((file_name(stage), stage.source.text), *self._headers.in_memory(stage.source))
        first = answer = self._compile_texts(stage, texts, timeout_s)
        for _ in range(_MOST_HOST_PASSES):
            if not isinstance(answer, Output) or answer.cubin is not None:
                break
            others = without_host_code(texts, answer.log)
            if others is None:
                break
            texts, answer = others, self._compile_texts(stage, others, timeout_s)
        if answer is first or not isinstance(first, Output) or not isinstance(answer, Output):
            return answer
        if answer.cubin is None and missing_header(first.log):  # it may have what the code lacks
            return answer._replace(log=f"{answer.log}\n{first.log}")
        return answer

    def lasting(self, output: Output) -> bool:
        """Return False where a header is missing: it may be installed later."""
        return not missing_header(output.log)

    def another_try(self, stage: Stage, output: Output) -> Stage | None:
        """The stage with what nvcc gives it unasked, where that may help."""
        return another_try(stage, output.log)

    def error(self, stage: Stage, output: Output) -> str:
        """The first error, with what is known about it."""
        named = "entry or symbol" if stage.symbols else "entry"
        first = re.sub(r"(is considered a host function), and .*", r"\1", first_error(output.log))
        first = re.sub(r"^__nv_name_map\(\d+\): ", f"{named}: ", first)  # NVRTC's word for name expressions
        error = explained(first, stage, self._library.version)
        header = missing_header(output.log)
        if header and header not in error:  # left out with code of the host
            error += f"; {header}, which it includes, is not here"
        return error

    def _options(self, stage: Stage) -> tuple[str, ...]:
        uncached = ("--no-cache",) if self._library.order >= _FIRST_WITH_CACHE else ()
        return (f"--gpu-architecture={self._architecture}", "--ptxas-options=-v", *uncached, *stage.options)

    def _compile_texts(self, stage: Stage, texts: Texts, timeout_s: float) -> Output | CompileError:
        return self._asked(
            stage,
            timeout_s,
            *texts[0],
            texts[1:],
            stage.entry,
            (*self._options(stage), *self._headers.options(stage.source)),
            *((_names_of_symbols(stage),) if stage.symbols else ()),
        )


def _names_of_symbols(stage: Stage) -> tuple[str, ...]:
    return tuple(symbol for symbol, _ in stage.symbols)


def served_architectures() -> tuple[str, ...]:
    """The architectures that an NVRTC of this machine compiles for, as ``sm_90``; none without NVRTC."""
    cache = CubinCache(default_directory())
    libraries = described(library_files(), cache, SERVER) or described(LOADER_NAMES, cache, SERVER)
    return tuple(
        f"sm_{number}" for number in sorted({number for each in libraries for number in each.architectures})
    )


# --- Chooses the NVRTC library for an architecture: the newest that supports it.

_log = logging.getLogger(__name__)

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

    def look(path: str) -> tuple[str, Library] | None:
        try:
            status = Path(path).stat() if os.sep in path else None
            stamp = f"{path} {status.st_size} {status.st_mtime_ns}" if status else ""
            version, architectures = remembered[stamp] if stamp in remembered else _ask(path, server)
        except (OSError, CompilerUnavailableError, ChildError) as error:
            _log.info("NVRTC %s: %s", path, error)
            return None
        return stamp, Library(path, status.st_size if status else 0, version, architectures)

    paths = [os.path.realpath(path) if os.sep in path else path for path in map(str, libraries)]
    with ThreadPoolExecutor() as pool:  # to load one takes a tenth of a second
        found = [each for each in pool.map(look, dict.fromkeys(paths)) if each is not None]
    # what a name stands for may change unseen
    learnt = remembered | {stamp: (one.version, one.architectures) for stamp, one in found if stamp}
    if learnt != remembered:
        cache.store_libraries(learnt)
    return [library for _, library in found]


def _ask(path: str, server: str) -> tuple[str, tuple[int, ...]]:
    """Load a library in a child, which may crash, and have it describe itself."""
    with Child(server, path, name=path) as child:
        version, architectures = child.call("describe", timeout_s=_TIMEOUT_S)
        return version, architectures
