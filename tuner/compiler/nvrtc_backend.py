"""The backend of CUDA C++: NVRTC, the newest of this machine that serves the architecture.

Code of the host is left out: NVRTC compiles no function and no variable without an execution or memory space,
and names the line of each. What nvcc takes as it is, a file with ``main``, so compiles here without a change;
lines keep their numbers.
"""

import contextlib
import hashlib
import importlib.util
import itertools
import logging
import os
import re
import shutil
import sys
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cache, cached_property
from pathlib import Path, PurePath

from tuner.compiler import nvrtc
from tuner.compiler.backend import Backend, file_name, first_error, label
from tuner.compiler.cubin import CubinCache, default_directory
from tuner.compiler.nvrtc import LOADER_NAMES, Output, library_files
from tuner.kernel_files.cuda_source.tokens import spans_of
from tuner.model.errors import ChildError, CompileError, CompilerUnavailableError, InputError
from tuner.model.plan import Source, Stage
from tuner.system.processes import Child
from tuner.system.untrusted.compiler_options import check_name_expression, check_options
from tuner.system.untrusted.includes import check_includes

# --- Headers: CUDA's, of wheels and toolkits, and stand-ins for those of C and C++; NVRTC brings none.
#
# Only sources that include what does not lie beside them are compiled with these folders; the stamps of the
# folders are part of the keys of their cubins, so that other headers never meet a cubin of these.
#
# A source that fails for what nvcc would have given it unasked is compiled once more, with an ``#include`` of
# it in front, or with its macros there.

STAND_INS = Path(__file__).with_name("headers")
"""Stand-ins for headers of C and C++ and for ``cuda.h`` in device code; they come before CUDA's own."""

_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*[<"]([^>"\n]+)[>"]', re.MULTILINE)
_MISSING = re.compile(r'(?:could not|cannot) open source file "([^"]+)"')
_VERSION = re.compile(r"#define\s+CUDART_VERSION\s+(\d+)")
_STAMPED = ("cuda_runtime_api.h", "crt/mma.h", "cub/version.cuh", "cuda/std/__cccl/version.h")
"""Files that differ between versions; of others, sizes and times are looked at."""

_MOST_STAMPED = 100_000  # files of a folder; a toolkit has about 6,000
_COMPONENTS = ("cuda_nvcc", "cuda_cccl", "curand")  # folders of the wheels of CUDA 12
_HOST_HEADERS = re.compile(  # device code has nothing of them
    r"(io|f|s|o|i|str)stream|iosfwd|iomanip|streambuf|vector|string|string_view|(unordered_)?(map|set)|list|deque"
    r"|forward_list|queue|stack|memory|random|thread|mutex|future|condition_variable|exception|stdexcept"
    r"|system_error|filesystem|regex|locale|any|typeinfo|typeindex|valarray|execution|csignal|cerrno"
    r"|(unistd|errno|signal|pthread|omp|mpi|fcntl|getopt|dirent|dlfcn|malloc|windows)\.h|sys/\w+\.h|arpa/\w+\.h"
)
_INSTEAD = {
    "iostream": "printf writes in kernels (<cstdio>)",
    "random": "<curand_kernel.h> has random numbers for kernels",
    "vector": "kernels have arrays of a fixed size (<array>), and pointers",
}
_HOST_NAMES = {  # of headers of which device code has a part
    "stdio.h": "FILE f?open f?close f?printf f?scanf f?read f?write fputs fgets fflush f?seek f?tell feof"
    " rewind snprintf sprintf sscanf std(in|out|err) puts? putchar getchar gets perror remove",
    "stdlib.h": "s?rand rand_r drand48 exit abort atexit ato[ifl] atoll strto\\w+ getenv system qsort bsearch"
    " calloc realloc",
    "string.h": "str\\w+ mem(cmp|move|chr)",
    "time.h": "time difftime mktime localtime gmtime strftime clock_gettime timespec gettimeofday",
    "algorithm": "(stable_|partial_)?sort nth_element shuffle transform remove_if for_each unique",
    "functional": "function bind hash reference_wrapper",
    "utility": "string vector cout cerr endl (unordered_)?(map|set) (unique|shared)_ptr make_(unique|shared)"
    " runtime_error exception ofstream ifstream stringstream to_string",
}
_UNKNOWN = re.compile(r'(?:identifier|namespace "std" has no member(?: class)?) "(\w+)"(?: is undefined)?')
_ALL_OF_CUB = "cub/cub.cuh"
_PARTS_OF_CUB = {  # what a kernel can use; the rest launches kernels, which NVRTC refuses
    "block": "adjacent_difference discontinuity exchange histogram load merge_sort radix_rank radix_sort"
    " reduce scan shuffle store",
    "warp": "exchange load merge_sort reduce scan store",
}
_PACKAGES = (
    (r"(cub|thrust|cuda|nv)/", {12: "nvidia-cuda-cccl-cu12", 13: "nvidia-cuda-cccl"}),
    (r"crt/", {12: "nvidia-cuda-nvcc-cu12", 13: "nvidia-cuda-crt"}),
    (r"curand", {12: "nvidia-curand-cu12", 13: "nvidia-curand"}),
    (
        r"(cuda_\w+|cooperative_groups(/.*)?|mma|cuComplex|\w*_types|math_constants|vector_functions)(\.h|\.hpp)",
        {12: "nvidia-cuda-runtime-cu12", 13: "nvidia-cuda-runtime"},
    ),
)


_BUILT_IN = "__nv_nvrtc_builtin_header.h("
_DEFINE = re.compile(r"(?:-D|--define-macro=)([A-Za-z]\w*)(\([^)]*\))?(?:=(.*))?", re.DOTALL)
_HOST_CODE = "code of the host, with its #include lines, stands between #ifndef __CUDACC_RTC__ and #endif"
_CUT = "#line 1\n"
_OF_STD = "cmath cstdint limits type_traits utility algorithm cstddef cstdlib cstdio cstring"
_LACKS = (  # what NVRTC says, and the stand-ins that may have it
    (r'identifier "(\w+)" is undefined', ("math.h", "limits.h", "float.h", "stdint.h")),
    (r'more than one instance of overloaded function "(\w+)" matches', ("math.h",)),
    (r'namespace "std" has no member "(\w+)"', tuple(_OF_STD.split())),
)


class ToolkitHeaders:
    """The folders that serve one NVRTC; looked for when a source asks for the first time.

    Args:
        nvrtc_version: e.g. ``12.9``; headers of its major version are taken.
    """

    def __init__(self, nvrtc_version: str) -> None:
        self._major = int(nvrtc_version.split(".", maxsplit=1)[0])
        self._needs: dict[str, bool] = {}

    @cached_property
    def folders(self) -> tuple[Path, ...]:
        """Folders to include from, the first first."""
        return tuple(found_folders(self._major))

    @cached_property
    def _stamps(self) -> tuple[str, ...]:
        return tuple(f"{folder} {_stamp(folder)}" for folder in self.folders)

    def options(self, source: Source) -> tuple[str, ...]:
        """NVRTC options for a source: its own include paths, and these folders where it needs them."""
        stand_ins = (STAND_INS,) if source.system_headers else ()
        folders = [*source.include_paths, *((*stand_ins, *self.folders) if self._serves(source) else ())]
        return tuple(f"--include-path={folder}" for folder in folders)

    def stamps(self, source: Source) -> tuple[str, ...]:
        """Return the texts that the headers of a source add to the key of its cubins."""
        if not self._serves(source):
            return source.include_paths
        stand_ins = (_stand_ins_sha256(),) if source.system_headers else ()
        return (*source.include_paths, *self._stamps, *stand_ins)

    def in_memory(self, source: Source) -> tuple[tuple[str, str], ...]:
        """The headers handed over as text: those beside a source, and the parts of cub for kernels."""
        if not self._serves(source) or _ALL_OF_CUB not in _included(source):
            return source.headers
        parts = next((text for text in map(_parts_of_cub, self.folders) if text), "")
        return (*source.headers, (_ALL_OF_CUB, parts)) if parts else source.headers

    def _serves(self, source: Source) -> bool:
        """Return True if a source has include paths, or includes files that are not beside it."""
        if source.sha256 not in self._needs:
            beside = {name for name, _ in source.headers}
            self._needs[source.sha256] = bool(source.include_paths) or not _included(source) <= beside
        return self._needs[source.sha256]


def found_folders(major: int) -> Iterator[Path]:
    """Folders of headers on this machine: of wheels, then of toolkits; another major version last."""
    roots = dict.fromkeys(path.resolve() for path in _candidates() if (path / "cuda_runtime_api.h").is_file())
    versions = {root: _major_version(root) for root in roots}
    chosen = [root for root in roots if versions[root] == major] or list(roots)[:1]
    for folder in (*chosen, *(_components() if major == 12 else ())):  # noqa: PLR2004 - later wheels share one
        yield folder
        if (folder / "cccl").is_dir():
            yield folder / "cccl"


def another_try(stage: Stage, log: str) -> Stage | None:
    """A stage that did not compile, with what nvcc would have given it; None where that is no help.

    nvcc includes some headers unasked. NVRTC's own header stands in front of a source, where macros of
    options reach it: ``-DT=128`` spoils ``template <typename T>`` there.
    """
    source, lines, options = stage.source, "", stage.options
    if _BUILT_IN in log:
        macros = [match for match in map(_DEFINE.fullmatch, options) if match and match[1] != "NDEBUG"]
        options = tuple(option for option in options if option not in {match[0] for match in macros})
        lines = "".join(f"#define {m[1]}{m[2] or ''} {'1' if m[3] is None else m[3]}\n" for m in macros)
    elif source.system_headers:
        lacked = ((name, headers) for pattern, headers in _LACKS for name in re.findall(pattern, log))
        has = {h for name, headers in lacked for h in headers if re.search(rf"\b{name}\b", _stand_ins()[h])}
        lines = "".join(f"#include <{header}>\n" for header in sorted(has - _included(source)))
    if not lines:
        return None
    return replace(stage, source=replace(source, text=f"{lines}{_CUT}{source.text}"), options=options)


def missing_header(log: str) -> str:
    """The header that a log says is missing; empty where none is."""
    match = _MISSING.search(log)
    return "" if match is None else match[1]


def explained(error: str, stage: Stage, nvrtc_version: str) -> str:
    """An error of the compiler, with what to do about a header or a name that it misses."""
    header, source = missing_header(error), stage.source
    if not header:
        return _of_the_host(error, source) or _of_a_template(error, stage) or _of_macros(error, stage)
    if header.startswith("cuda/std/") and (stand_in := _stand_in_of(error)):
        line = _line_of(stand_in, source.text)
        place = f"{PurePath(source.path).name}({line}): error: " if line else ""
        error = f"{place}<{stand_in}> stands on libcu++, and its {header} is not here"
    major = int(nvrtc_version.split(".", maxsplit=1)[0])
    for pattern, packages in _PACKAGES:
        if re.match(pattern, header):
            package = packages.get(major, packages[13])
            return f"{error}; pip install {package} brings it, or a CUDA toolkit (CUDA_HOME)"
    if (STAND_INS / header).is_file():
        return f"{error}; [kernel] system_headers = false leaves out what stands in for it"
    if _HOST_HEADERS.fullmatch(header):
        instead = f"{_INSTEAD[header]}; " if header in _INSTEAD else ""
        return f"{error}; <{header}> is for the host, device code has nothing of it; {instead}{_HOST_CODE}"
    if re.fullmatch("[a-z_]+", header):
        return f"{error}; <cuda/std/...> stands for the C++ standard library in kernels, and {_HOST_CODE}"
    return f"{error}; include_paths in [kernel] names folders of headers"


def _of_the_host(error: str, source: Source) -> str:
    """An error for a name that only the host has, with why; empty for another one."""
    if "considered a host function" in error:
        return f"{error}; {_HOST_CODE}"
    unknown = _UNKNOWN.search(error)
    if unknown is None:
        return ""
    for header, patterns in _HOST_NAMES.items():
        if not re.fullmatch("|".join(f"(?:{pattern})" for pattern in patterns.split()), unknown[1]):
            continue
        c_header, plain = f"c{header.removesuffix('.h')}", header.endswith(".h")
        written = c_header if plain and _line_of(c_header, source.text) else header
        line = _line_of(written, source.text)
        if line or '"std"' in error:
            brought = f", whatever line {line} includes" if line else ""
            return f"{error}; {unknown[1]} is for the host, device code has none{brought}; {_HOST_CODE}"
    return ""


def _of_a_template(error: str, stage: Stage) -> str:
    """An error for a name that the kernel has as a template parameter, with why; empty for another one."""
    unknown = _UNKNOWN.search(error)
    kernel, instance, _ = stage.entry.partition("<")
    if unknown is None or not instance or '"std"' in error:
        return ""
    declared = (
        rf"template\s*<[^;{{}}>]*\b{unknown[1]}\b[^;{{}}>]*>[^;{{}}]*\b{kernel.rpartition('::')[2]}\s*\("
    )
    if not re.search(declared, stage.source.text):
        return ""
    return (
        f"{error}; {unknown[1]} is a template parameter of {kernel} and no macro: other functions that use it"
        " need one of their own"
    )


def _of_macros(error: str, stage: Stage) -> str:
    """An error, with a word on macros where it lies in a header that may have their names for its own."""
    stand_in = _stand_ins().get(_stand_in_of(error), "")
    moved, cut, _ = stage.source.text.partition(_CUT)  # from the options, by `another_try`
    names = re.findall(r"^#define (\w+)", moved if cut else "", re.MULTILINE)
    names += [match[1] for match in map(_DEFINE.fullmatch, stage.options) if match]
    if _BUILT_IN in error or error.startswith("/"):  # NVRTC's, or one that lies in a folder
        names = [name for name in names if len(name) == 1 or re.search(rf"\b{name}\b", stand_in)]
    else:
        names = []
    if not names:
        return error
    return f"{error}; macros reach headers: give the tunable or size {' or '.join(names)} another name"


def _line_of(header: str, text: str) -> int:
    """The number of the line of a text that includes a header; 0 where none does."""
    match = re.search(rf'^[ \t]*#[ \t]*include[ \t]*[<"]{re.escape(header)}[>"]', text, re.MULTILINE)
    return text.count("\n", 0, match.start()) + 1 if match else 0


def _stand_in_of(error: str) -> str:
    """The name of the stand-in that an error lies in; empty elsewhere."""
    name, found, _ = error.removeprefix(f"{STAND_INS}/").partition("(")
    return name if found and error.startswith(str(STAND_INS)) else ""


@cache
def _stand_ins() -> dict[str, str]:
    """The texts of the stand-ins by their names."""
    return {path.name: path.read_text() for path in sorted(STAND_INS.iterdir()) if path.is_file()}


@cache
def _stand_ins_sha256() -> str:
    return hashlib.sha256(
        "\0".join(f"{name}\0{text}" for name, text in _stand_ins().items()).encode()
    ).hexdigest()


def _included(source: Source) -> set[str]:
    texts = (source.text, *(text for _, text in source.headers))
    return {name for text in texts for name in _INCLUDE.findall(text)}


def _parts_of_cub(folder: Path) -> str:
    """A header of all parts of cub in a folder that a kernel can use; empty where there are none."""
    names = [f"cub/{part}/{part}_{name}.cuh" for part, text in _PARTS_OF_CUB.items() for name in text.split()]
    return "".join(f"#include <{name}>\n" for name in names if (folder / name).is_file())


def _candidates() -> Iterator[Path]:
    for entry in _wheels():
        yield entry / "cuda_runtime" / "include"  # the wheel of CUDA 12
        yield from sorted(entry.glob("cu[0-9]*/include"), reverse=True)  # those from CUDA 13 on
    roots = [Path(os.environ[name]) for name in ("CUDA_HOME", "CUDA_PATH") if os.environ.get(name)]
    nvcc = shutil.which("nvcc")
    roots += [Path(nvcc).resolve().parents[1]] if nvcc else []
    for root in [*roots, *sorted(Path("/usr/local").glob("cuda*"), reverse=True)]:
        yield root / "include"
        yield from sorted(root.glob("targets/*/include"))
    yield from sorted(Path(sys.prefix).glob("targets/*/include"))  # conda's toolkits


def _components() -> Iterable[Path]:
    """Wheels of CUDA 12 that hold what a toolkit has in one folder."""
    folders = (entry / name / "include" for entry in _wheels() for name in _COMPONENTS)
    return [folder for folder in folders if folder.is_dir()]


def _wheels() -> list[Path]:
    spec = importlib.util.find_spec("nvidia")
    return [Path(entry) for entry in (spec.submodule_search_locations or ())] if spec else []


def _major_version(root: Path) -> int:
    match = _VERSION.search((root / "cuda_runtime_api.h").read_text(errors="replace"))
    return int(match[1]) // 1000 if match else 0


def _stamp(folder: Path) -> str:
    """Digest of what tells a folder's files from other ones: a header that is changed compiles again."""
    digest = hashlib.sha256()
    for name in _STAMPED:
        if (folder / name).is_file():
            digest.update(name.encode())
            digest.update((folder / name).read_bytes())
    for name, size, changed_ns in sorted(itertools.islice(_files_in(str(folder)), _MOST_STAMPED)):
        digest.update(f"\0{os.path.relpath(name, folder)} {size} {changed_ns}".encode(errors="replace"))
    return digest.hexdigest()


def _files_in(folder: str) -> Iterator[tuple[str, int, int]]:
    """(path, bytes, time of the last change in ns) of each file below a folder."""
    pending = [folder]
    while pending:
        with contextlib.suppress(OSError), os.scandir(pending.pop()) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    pending.append(entry.path)
                elif entry.is_file():
                    status = entry.stat()
                    yield entry.path, status.st_size, status.st_mtime_ns


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
        asked: dict[str, Child] = {}
        try:
            self._library = choose(architecture, libraries, cache, server, asked)
            super().__init__(architecture, jobs, self._library.path, server=server, idle_s=idle_s)
            if self._library.path in asked:
                self._children.adopt(asked.pop(self._library.path))
        finally:
            for child in asked.values():
                child.close()
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
    architecture: str,
    libraries: Sequence[str | Path] | None,
    cache: CubinCache,
    server: str = SERVER,
    asked: dict[str, Child] | None = None,
) -> Library:
    """The newest library that serves an architecture; the cache spares loading each to find out.

    Children that had to load one live on in ``asked``, by its path, if that is given.

    Raises:
        CompilerUnavailableError: none serves it; the message says what each serves.
    """
    match = re.fullmatch(r"sm_(\d+)[af]?", architecture)
    if match is None:
        raise CompilerUnavailableError(f"{architecture!r} is not a real architecture such as sm_90")
    number = int(match[1])
    candidates = described(nvrtc.library_files() if libraries is None else libraries, cache, server, asked)
    if libraries is None and not any(number in library.architectures for library in candidates):
        candidates += described(nvrtc.LOADER_NAMES, cache, server, asked)
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


def described(
    libraries: Iterable[str | Path], cache: CubinCache, server: str, asked: dict[str, Child] | None = None
) -> list[Library]:
    """The libraries that load, each file once; from memory where the file has not changed.

    Children that had to load one live on in ``asked``, by its path, if that is given.
    """
    remembered = cache.load_libraries()

    def ask(path: str) -> tuple[str, tuple[int, ...]]:
        with contextlib.ExitStack() as ends:
            child = ends.enter_context(Child(server, path, name="compiler", whole=True))  # it may crash
            version, architectures = child.call("describe", timeout_s=_TIMEOUT_S)
            if asked is not None:
                asked[path] = child
                ends.pop_all()
            return version, architectures

    def look(path: str) -> tuple[str, Library] | None:
        try:
            status = Path(path).stat() if os.sep in path else None
            stamp = f"{path} {status.st_size} {status.st_mtime_ns}" if status else ""
            version, architectures = remembered[stamp] if stamp in remembered else ask(path)
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
