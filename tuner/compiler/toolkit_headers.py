"""Headers of CUDA for NVRTC, which brings none: those of wheels, then of a toolkit.

Only sources that include what does not lie beside them are compiled with these folders; the stamps of the
folders are part of the keys of their cubins, so that other headers never meet a cubin of these.
"""

import contextlib
import hashlib
import importlib.util
import itertools
import os
import re
import shutil
import sys
from collections.abc import Iterable, Iterator
from functools import cached_property
from pathlib import Path

from tuner.model.plan import Source

_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*[<"]([^>"\n]+)[>"]', re.MULTILINE)
_MISSING = re.compile(r'(?:could not|cannot) open source file "([^"]+)"')
_VERSION = re.compile(r"#define\s+CUDART_VERSION\s+(\d+)")
_STAMPED = ("cuda_runtime_api.h", "crt/mma.h", "cub/version.cuh", "cuda/std/__cccl/version.h")
"""Files that differ between versions; of others, sizes and times are looked at."""

_MOST_STAMPED = 100_000  # files of a folder; a toolkit has about 6,000
_COMPONENTS = ("cuda_nvcc", "cuda_cccl", "curand")  # folders of the wheels of CUDA 12
_STANDARD = re.compile(r"[a-z_]+|(assert|complex|float|limits|math|stddef|stdint|stdio|stdlib|string)\.h")
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
_HOST_CODE = "code of the host, with its #include lines, stands between #ifndef __CUDACC_RTC__ and #endif"


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
        folders = [*source.include_paths, *(map(str, self.folders) if self._serves(source) else ())]
        return tuple(f"--include-path={folder}" for folder in folders)

    def stamps(self, source: Source) -> tuple[str, ...]:
        """Return the texts that the headers of a source add to the key of its cubins."""
        return (*source.include_paths, *(self._stamps if self._serves(source) else ()))

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


def missing_header(log: str) -> str:
    """The header that a log says is missing; empty where none is."""
    match = _MISSING.search(log)
    return "" if match is None else match[1]


def with_package(error: str, nvrtc_version: str) -> str:
    """An error of the compiler, with what brings the header that it misses."""
    header = missing_header(error)
    if not header:
        if _BUILT_IN in error:
            return (
                f"{error}; macros reach NVRTC's own headers: give a tunable or size with a short name another"
            )
        return f"{error}; {_HOST_CODE}" if "considered a host function" in error else error
    major = int(nvrtc_version.split(".", maxsplit=1)[0])
    for pattern, packages in _PACKAGES:
        if re.match(pattern, header):
            package = packages.get(major, packages[13])
            return f"{error}; pip install {package} brings it, or a CUDA toolkit (CUDA_HOME)"
    if _STANDARD.fullmatch(header):
        return (
            f"{error}; NVRTC has no C++ standard library: <cuda/std/...> stands for it in kernels, and "
            f"{_HOST_CODE}"
        )
    return f"{error}; include_paths in [kernel] names folders of headers"


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
