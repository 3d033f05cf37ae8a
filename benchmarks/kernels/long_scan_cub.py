"""CUB's DeviceScan for ``long_scan_peers.py``: its forms, compiled with nvcc, and ready to run on a row."""

import ctypes
import functools
import os
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from long_scan_cases import CASES, Case, LongRow
from peer import Peer

HERE = Path(__file__).parent
CTYPES = {
    "float32": "float",
    "float64": "double",
    "int32": "int",
    "int64": "long long",
    "complex64": "Complex",
}
FORMS_PER_UNIT = 4
# Threads and elements of 4 bytes: 48 KB of them are more than static shared memory holds.
TUNINGS = ((128, 16), (128, 24), (256, 16), (256, 24), (384, 16), (512, 12), (512, 20))
DELAYS = ((688, 1140), (350, 450))
ALL_DELAYS = ("sum_tuned<float",)  # what is tried with each of them


@dataclass(frozen=True)
class Form:
    """One instantiation of CUB: its settings, its function, and the cases that it is for."""

    form: str
    function: str
    asked: tuple[str, ...]


def asked_of(case: Case) -> tuple[str, ...]:
    """What cases have in common that the same forms are for."""
    return case.kernel, case.dtype, case.operator, case.form


def forms() -> list[Form]:
    """All that are compiled."""
    found = []
    for asked in dict.fromkeys(map(asked_of, CASES)):
        plain, tuned = _functions(*asked)
        element = CTYPES[asked[1]]
        for words, function in plain.items():
            found += [
                Form(f"{words}, counts of {bits} bits", f"{function}<{element}, {count}>", asked)
                for bits, count in ((32, "int"), (64, "long long"))
            ]
        found += [form for function in tuned for form in _tuned(function, element, asked)]
    return found


def _functions(kernel: str, dtype: str, operator: str, form: str) -> tuple[dict[str, str], list[str]]:
    """Functions of ``cub_long.cuh`` with CUB's own settings, by words for them, and with ours."""
    del dtype
    if kernel == "linear-recurrence":
        return {"default": "recurrence"}, ["recurrence_tuned"]
    if kernel == "scan-flags":
        plain = {"default, flags as keys": "flagged_by_key", "default, pairs": "flagged_pairs"}
        return plain, ["flagged_pairs_tuned"]
    if kernel == "scan-offsets":
        return {
            "default, flags set before": "offsets_by_flags",
            "default, offsets searched": "offsets_by_search",
        }, []
    if operator == "min":
        return {"default": "least"}, []
    return ({"default": "sum"}, ["sum_tuned"]) if form == "inclusive" else ({"default": "exclusive_sum"}, [])


def _tuned(function: str, element: str, asked: tuple[str, ...]) -> Iterator[Form]:
    named = f"{function}<{element}"
    for threads, items in TUNINGS:
        for delay, latency in DELAYS if named in ALL_DELAYS else DELAYS[:1]:
            words = f"{function}: {threads} threads, {items} per thread (of 4 bytes), delay {delay} ns"
            yield Form(words, f"{named}, {threads}, {items}, {delay}, {latency}>", asked)


def compiled(listed: list[Form], architecture: int, folder: Path) -> list[Any]:
    """The functions of the forms, from libraries of a few each that are compiled at a time.

    Raises:
        OSError: there is no nvcc.
        subprocess.CalledProcessError: it fails.
    """
    folder.mkdir(parents=True, exist_ok=True)
    flags = [f"-arch=sm_{architecture}", "-O3", "-std=c++17", f"-I{HERE}", "-shared", "-Xcompiler", "-fPIC"]

    def library(first: int) -> list[Any]:
        part = listed[first : first + FORMS_PER_UNIT]
        text = '#include "cub_long.cuh"\n' + "".join(_definition(k, form) for k, form in enumerate(part))
        source, made = folder / f"cub-long-{first}.cu", folder / f"cub-long-{first}.so"
        source.write_text(text)
        subprocess.run(["nvcc", *flags, "-o", str(made), str(source)], check=True)
        loaded = ctypes.CDLL(str(made.resolve()))
        return [getattr(loaded, f"form_{k}") for k in range(len(part))]

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return [one for part in pool.map(library, range(0, len(listed), FORMS_PER_UNIT)) for one in part]


def _definition(k: int, form: Form) -> str:
    parameters = (
        "void* room, size_t* bytes, const void* const* x, void* y, long long n, long long ends,"
        " cudaStream_t stream"
    )
    call = f"{form.function}(room, bytes, x, y, n, ends, stream)"
    return f'extern "C" int form_{k}({parameters}) {{ return {call}; }}\n'


def peers(cp: Any, functions: list[Any], listed: list[Form]) -> Iterator[tuple[Form, Callable[..., Peer]]]:
    """The forms, and what makes each ready for a row."""

    def ready(form: Form, function: Any, case: Case, data: LongRow) -> Peer:
        inputs = (ctypes.c_void_p * len(data.inputs))(*(x.data.ptr for x in data.inputs))
        stream = ctypes.c_void_p(cp.cuda.get_current_stream().ptr)
        counts = (ctypes.c_longlong(data.n), ctypes.c_longlong(case.ends))
        arrays = (inputs, ctypes.c_void_p(data.output.data.ptr), *counts, stream)
        size = ctypes.c_size_t(0)
        if function(None, ctypes.byref(size), *arrays):
            raise RuntimeError(f"{form.function} does not tell its size")
        room = cp.empty(max(size.value, 1), cp.uint8)
        call = functools.partial(function, ctypes.c_void_p(room.data.ptr), ctypes.byref(size), *arrays)
        return Peer("cub.DeviceScan", form.form, call, lambda: data.output, keep=room)

    for form, function in zip(listed, functions, strict=True):
        yield form, functools.partial(ready, form, function)
