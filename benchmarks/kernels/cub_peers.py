"""Forms in which CUB scans rows, compiled with nvcc, one library per length of row.

    python benchmarks/kernels/cub_peers.py --build FOLDER [--cccl FOLDER] [--architecture 90] [--sizes 64 128]

compiles ahead; ``peers.py --cub-build FOLDER`` finds what was compiled.
"""

import argparse
import ctypes
import hashlib
import os
import subprocess
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from answers import Data
from peer import Peer

HERE = Path(__file__).parent
ROWS, DEVICE = HERE / "cub_rows.cuh", HERE / "cub_device.cuh"
SIZES = tuple(2**k for k in range(6, 14))
_STATIC_SHARED_BYTES = 48 * 1024
_LOADS = ("DIRECT", "VECTORIZE", "TRANSPOSE", "WARP_TRANSPOSE")
_SCANS = ("WARP_SCANS", "RAKING", "RAKING_MEMOIZE")


@dataclass(frozen=True)
class Form:
    """One instantiation.

    Attributes:
        name: of the part of CUB.
        form: its settings, for tables.
        function: of the header, with its template arguments.
        header: that declares it.
    """

    name: str
    form: str
    function: str
    header: Path


def forms(n: int, cub_version: int) -> list[Form]:
    """All that are tried for rows of ``n`` elements, a power of two of 64 or more."""
    found = [*_warp_rows(n), *_warp_items(n), *_block_rows(n), *_chunks(n), *_by_key(n)]
    if cub_version >= 300500:
        found += [*_by_key_tuned(n), *_segmented(n)]
    return list(dict.fromkeys(found))


def _warp_rows(n: int) -> Iterator[Form]:
    """Rows of a warp or of a part of one, in vectors, neighbouring lanes side by side."""
    for width, vector in ((4, "float4"), (2, "float2")):
        for lanes in (4, 8, 16, 32):
            held = n // lanes
            if held < width or held > 64 or (width == 2 and held > 4):
                continue
            for rows in (rows for rows in (1, 2, 4) if rows * held <= 32 or rows == 1):
                for threads in (64, 128, 256, 512):
                    form = f"{lanes} lanes a row, {vector}, {rows} rows a lane, {threads} threads"
                    function = f"launch_warp_rows<{vector}, {n}, {lanes}, {rows}, {threads}"
                    yield Form("cub.WarpScan", form, f"{function}>", ROWS)
                    if width == 4 and threads == 256 and rows == 2:
                        yield Form("cub.WarpScan", f"{form}, persistent", f"{function}, 8>", ROWS)


def _warp_items(n: int) -> Iterator[Form]:
    """Rows of a warp or of a part of one by ``WarpLoad``, a thread's elements neighbours in memory."""
    for lanes in (8, 16, 32):
        if not 2 <= n // lanes <= 32:
            continue
        for way in ("TRANSPOSE", "VECTORIZE"):
            for threads in (128, 256):
                if way == "TRANSPOSE" and 4 * threads * (n // lanes) > _STATIC_SHARED_BYTES:
                    continue
                arguments = f"{n}, {lanes}, {threads}, cub::WARP_LOAD_{way}, cub::WARP_STORE_{way}"
                yield Form(
                    "cub.WarpScan",
                    f"{lanes} lanes a row, {n // lanes} neighbours a lane, {way.lower()}, {threads} threads",
                    f"launch_warp_items<{arguments}>",
                    ROWS,
                )


def _block_rows(n: int) -> Iterator[Form]:
    """One ``BlockScan`` for a row."""
    for threads in (32, 64, 128, 256, 512, 1024):
        if not 1 <= n // threads <= 32:
            continue
        for way in _LOADS:
            if n // threads == 1 and way != "DIRECT":
                continue
            for scan in _SCANS if way in ("VECTORIZE", "WARP_TRANSPOSE") else _SCANS[:1]:
                arguments = (
                    f"{n}, {threads}, cub::BLOCK_LOAD_{way}, cub::BLOCK_STORE_{way}, cub::BLOCK_SCAN_{scan}"
                )
                form = f"{threads} threads, {n // threads} per thread, {way.lower()}, {scan.lower()}"
                yield Form("cub.BlockScan", form, f"launch_block_row<{arguments}>", ROWS)


def _chunks(n: int) -> Iterator[Form]:
    """Rows of a block in chunks of float4: by ``BlockScan`` with a carry, by warps that exchange totals."""
    for threads in (32, 64, 128, 256, 512, 1024):
        if not 1 <= n // (4 * threads) <= 16:
            continue
        for blocks in (1, min(32, 1024 // threads), min(32, 2048 // threads)):
            form = f"{threads} threads, chunks of float4, {blocks} blocks"
            for scan in _SCANS[:2]:
                function = f"launch_block_chunks<{n}, {threads}, {blocks}, cub::BLOCK_SCAN_{scan}>"
                yield Form("cub.BlockScan", f"{form}, {scan.lower()}", function, ROWS)
            if threads > 32:
                function = f"launch_warps_of_row<{n}, {threads}, {blocks}>"
                yield Form("cub.WarpScan", f"{form}, one barrier", function, ROWS)


def _by_key(n: int) -> Iterator[Form]:
    """The whole batch by one segmented scan; the row's number by a shift is the key."""
    log, name = n.bit_length() - 1, "cub.DeviceScan by key"
    for key, width in (("unsigned", 32), ("unsigned short", 16), ("unsigned char", 8)):
        yield Form(name, f"keys of {width} bits by a shift", f"by_key<{log}, {key}>", DEVICE)
    yield Form(name, "index, row starts by a mask", f"by_index<{log}>", DEVICE)


def _by_key_tuned(n: int) -> Iterator[Form]:
    """The same with other tunings; the default for keys of 16 bits is 128 threads with 22 elements each."""
    log = n.bit_length() - 1
    for threads, items in ((128, 12), (128, 16), (128, 19), (128, 24), (192, 16), (256, 11), (256, 16)):
        for delay, latency in ((312, 865), (0, 865)):
            yield Form(
                "cub.DeviceScan by key",
                f"keys of 16 bits by a shift, {threads} threads, {items} per thread, delay {delay} ns",
                f"by_key_tuned<{log}, {threads}, {items}, {delay}, {latency}>",
                DEVICE,
            )


def _segmented(n: int) -> Iterator[Form]:
    """The whole batch by ``DeviceSegmentedScan``, as it comes and with other tunings."""
    log, name = n.bit_length() - 1, "cub.DeviceSegmentedScan"
    yield Form(name, "default", f"segmented<{log}>", DEVICE)
    one_row = [(threads, n // threads) for threads in (32, 64, 128, 256, 512) if 1 <= n // threads <= 32]
    for threads, items in (*one_row, (128, 8), (128, 16)):
        segments = max(1, threads * items // n)
        form = f"{threads} threads, {items} per thread, {segments} rows a block"
        if segments == 1 or (threads, items) not in one_row:
            way = "cub::BLOCK_LOAD_WARP_TRANSPOSE, cub::BLOCK_STORE_WARP_TRANSPOSE"
            function = f"segmented_tuned<{log}, {threads}, {items}, {way}, {segments}>"
            yield Form(name, form, function, DEVICE)


class CubPeers:
    """Compiles the forms of several lengths in the background, and hands them out ready to time."""

    def __init__(self, cp: Any, sizes: Sequence[int], cccl: Path | None, folder: Path) -> None:
        self._cp = cp
        self.version, self._builds = build(sizes, cccl, folder, int(cp.cuda.Device().compute_capability))

    def peers(self, data: Data) -> list[Peer]:
        """Every form for the rows of ``data``."""
        library, listed = self._builds[data.n].result()
        return [self._peer(data, form, getattr(library, f"form_{k}")) for k, form in enumerate(listed)]

    def _peer(self, data: Data, form: Form, function: Any) -> Peer:
        cp, batch = self._cp, data.batch
        x, y = (ctypes.c_void_p(array.data.ptr) for array in (*data.inputs, data.output))
        stream = ctypes.c_void_p(cp.cuda.get_current_stream().ptr)
        if form.header == ROWS:
            run, room = _checked(function, x, y, batch, stream), None
        else:
            size = ctypes.c_size_t(0)
            _checked(function, None, ctypes.byref(size), x, y, batch, stream)()
            room = cp.empty(max(size.value, 1), cp.uint8)
            address = ctypes.c_void_p(room.data.ptr)
            run = _checked(function, address, ctypes.byref(size), x, y, batch, stream)
        return Peer(form.name, form.form, run, lambda: data.output, keep=room)


def _checked(function: Any, *arguments: Any) -> Callable[[], None]:
    def run() -> None:
        status = function(*arguments)
        if status:
            raise RuntimeError(f"{function.__name__} answers CUDA error {status}")

    return run


def build(
    sizes: Sequence[int], cccl: Path | None, folder: Path, architecture: int
) -> "tuple[int, dict[int, Future[tuple[ctypes.CDLL, list[Form]]]]]":
    """CUB's version, and libraries and their forms by length, being compiled.

    Raises:
        OSError: there is no nvcc.
        subprocess.CalledProcessError: it fails.
    """
    flags = [f"-arch=sm_{architecture}", "-O3", "-std=c++17", *([f"-I{cccl}"] if cccl else ())]
    version = cub_version(flags)
    folder.mkdir(parents=True, exist_ok=True)
    pool = ThreadPoolExecutor(os.cpu_count())

    def one(n: int) -> tuple[ctypes.CDLL, list[Form]]:
        listed = forms(n, version)
        return ctypes.CDLL(str(_compiled(listed, version, flags, folder / f"cub-{n}"))), listed

    builds = {n: pool.submit(one, n) for n in sizes}
    pool.shutdown(wait=False)
    return version, builds


def cub_version(flags: Sequence[str]) -> int:
    """Of the headers that nvcc finds, e.g. 300500 for 3.5.0."""
    answer = subprocess.run(
        ["nvcc", *flags, "-E", "-x", "cu", "-"],
        input="#include <cub/version.cuh>\nCUB_VERSION\n",
        capture_output=True,
        text=True,
        check=True,
    )
    return int(answer.stdout.split()[-1])


def _compiled(listed: Sequence[Form], version: int, flags: Sequence[str], stem: Path) -> Path:
    """The library of some forms; one that was compiled from the same text is taken again."""
    text = "".join(f"#include <{header.name}>\n" for header in (ROWS, DEVICE))
    for k, form in enumerate(listed):
        row = "const float* x, float* y, int batch, cudaStream_t stream", "x, y, batch, stream"
        room = "void* room, size_t* bytes, ", "room, bytes, "
        declared, given = row if form.header == ROWS else (room[0] + row[0], room[1] + row[1])
        text += f'extern "C" int form_{k}({declared}) {{ return {form.function}({given}); }}\n'
    hashed = "".join([text, ROWS.read_text(), DEVICE.read_text(), flags[0], str(version)])
    stem = stem.with_name(f"{stem.name}-{hashlib.sha256(hashed.encode()).hexdigest()[:16]}")
    source, library = stem.with_suffix(".cu"), stem.with_suffix(".so")
    if not library.exists():
        source.write_text(text)
        partial = stem.with_suffix(".part")
        subprocess.run(
            ["nvcc", *flags, f"-I{HERE}", "-shared", "-Xcompiler", "-fPIC", "-o", str(partial), str(source)],
            check=True,
        )
        partial.rename(library)
    return library


def main() -> None:
    """Compile ahead."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--build", type=Path, required=True)
    parser.add_argument("--cccl", type=Path, help="headers of CCCL, where those of nvcc are not to be used")
    parser.add_argument("--architecture", type=int, default=90)
    parser.add_argument("--sizes", nargs="*", type=int, default=SIZES)
    options = parser.parse_args()
    version, builds = build(options.sizes, options.cccl, options.build, options.architecture)
    print(f"CUB {version}")
    for n, future in builds.items():
        print(f"N={n}: {len(future.result()[1])} forms", flush=True)


if __name__ == "__main__":
    main()
