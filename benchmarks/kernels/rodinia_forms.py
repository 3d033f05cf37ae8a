"""Rodinia's kernels as plans: launches and arrays as its programs make them, on the inputs of our kernels.

Left out of its programs: allocation, copies to and from the host, and what the host computes. Block sizes and
the pyramid height are those that its sources offer without a change.
"""

import hashlib
import importlib.util
import re
import shutil
import subprocess
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tuner.compiler.compiler import CompiledStage, resources_in
from tuner.kernel_files.kernel_file import KernelFile
from tuner.model.errors import CompileError
from tuner.model.plan import Buffer, Configuration, Plan, Resources, Scalar, Source, Stage, StageArgument
from tuner.problems.base import Deviation
from tuner.problems.lookup import problem_for

# --- judges: the laws of our kernels, or float64 --------------------------------------------------


Array = NDArray[Any]
Arrays = Mapping[str, Array]
Judge = Callable[[Arrays], Deviation]

MODULUS = 2**31 - 1  # INT_MAX, of the generator of its particle filter
POINT = np.dtype(
    {
        "names": ["weight", "coord", "assign", "cost"],
        "formats": [np.float32, np.uint64, np.int64, np.float32],
        "offsets": [0, 8, 16, 24],
        "itemsize": 32,
    }
)
"""The struct Point of its streamcluster, as C lays it out on 64-bit Linux."""

_FILTER_ALLOWED = 1e-10  # as kernels/particle-filter/kernel.toml has it, for its reasons
_GAIN_ALLOWED = 1e-4  # as kernels/streamcluster/kernel.toml has it


def law_judge(plan: Plan, inputs: Arrays, outputs: Callable[[Arrays], Arrays]) -> Judge:
    """By what the kernel file of ours says is right; ``outputs`` names arrays as it does."""
    sizes = {**dict(plan.workload.sizes), "batch": plan.workload.batch}
    problem = problem_for(plan.problem)
    return lambda arrays: problem.residual(np, inputs, outputs(arrays), sizes)


def gain_judge(kernel: KernelFile, plan: Plan, inputs: Arrays) -> Judge:
    """Savings and sums of the last call, of which alone the work array still tells."""
    sizes = {name: int(value) for name, value in plan.workload.sizes}
    n, centres, calls = sizes["N"], sizes["K"], sizes["CALLS"]
    known: dict[str, Array] = {}

    def judge(arrays: Arrays) -> Deviation:
        if not known:
            reference = beside(kernel, "reference.py")
            known.update(reference.gains(**inputs, N=n, K=centres, CALLS=calls))
        work = arrays["work"][: n * (centres + 1)].reshape(n, centres + 1).astype(np.float64)
        saving, gain = known["saving"][-1], known["gain"][-1]
        sums = -work.sum(axis=0)  # what closing a centre costs, and what switching saves, are negative there
        wrong = (arrays["switched"] != 0) != (saving > 0)
        near = saving <= _GAIN_ALLOWED * saving.max()  # rounding may decide of a point at its limit
        return worst(
            {
                "savings": float(np.abs(-work[:, centres] - saving).max() / saving.max()),
                "sums": float(np.abs(sums - gain).max() / gain.max()),
                "points that wrongly switch or stay": float((wrong & ~near).sum()),
            },
            _GAIN_ALLOWED,
        )

    return judge


def tracked(kernel: KernelFile, inputs: Arrays) -> dict[str, Array]:
    """Places after a move, their distribution and the points at which it is searched, in float64."""
    laws = beside(kernel, "laws.py")
    x, y = laws.moved(inputs["x"], inputs["y"])
    cdf = np.cumsum(laws.weights(inputs["frame"], x, y))
    return {"arrayX": x, "arrayY": y, "CDF": cdf / cdf[-1], "u": (np.arange(len(x)) + 0.5) / len(x)}


def naive_judge(given: Arrays) -> Judge:
    """Places that are not those of the first particle whose distribution reaches u."""
    found = np.minimum(np.searchsorted(given["CDF"], given["u"]), len(given["u"]) - 1)

    def judge(arrays: Arrays) -> Deviation:
        wrong = (arrays["xj"] != given["arrayX"][found]) | (arrays["yj"] != given["arrayY"][found])
        return worst({"wrong places": float(wrong.sum())}, _FILTER_ALLOWED)

    return judge


def filter_judge(plan: Plan, given: Arrays) -> Judge:
    """Each step of a frame, from what the step before left.

    The first u is drawn by one thread and read by all blocks, with no barrier between blocks (a race of
    Rodinia's): a block finds the new one or the one before, 0 here. Either is less than 1 / N, which is all
    that is asked. In the same way one thread adds up weights that other blocks divide by their sum. It comes
    to them long after that where all blocks are on the GPU at a time; where it does not, the distribution is
    wrong, and told so.
    """
    n, high = len(given["xj"]), int(dict(plan.workload.sizes)["H"])

    def judge(arrays: Arrays) -> Deviation:
        x, y, cdf, u = (arrays[name] for name in ("arrayX", "arrayY", "CDF", "u"))
        right_x, right_y = _moved(given)
        right = np.cumsum(_weights(given, x, y, high).astype(np.longdouble))
        first = u - np.arange(n) / n
        found = np.minimum(np.searchsorted(cdf, u), n - 1)
        return worst(
            {
                "moves": float(max(_relative(x, right_x), _relative(y, right_y))),
                "distribution": float(np.abs(cdf - right / right[-1]).max()),
                "wrong points of the search": float((~((first > -1e-12) & (first < 1 / n + 1e-12))).sum()),
                "wrong places": float(((arrays["xj"] != x[found]) | (arrays["yj"] != y[found])).sum()),
            },
            _FILTER_ALLOWED,
        )

    return judge


def _moved(given: Arrays) -> tuple[Array, Array]:
    """Its moves: a linear congruential generator in 32 bits, and Box-Muller."""
    state, drawn = given["seed"].astype(np.int64), []
    for _ in range(4):
        state = (state * 1103515245 + 12345 + 2**31) % 2**32 - 2**31  # of an int that overflows
        state = np.sign(state) * (np.abs(state) % MODULUS)
        drawn.append(np.abs(state / MODULUS))
    normal = [np.sqrt(-2 * np.log(drawn[i])) * np.cos(2 * np.pi * drawn[i + 1]) for i in (0, 2)]
    return given["xj"] + 1.0 + 5.0 * normal[0], given["yj"] - 2.0 + 2.0 * normal[1]


def _weights(given: Arrays, x: Array, y: Array, high: int) -> Array:
    """Likelihoods; a pixel outside of the frame is another one of it, or the first, as its index has it."""
    frame, offsets = given["frame"].astype(np.int64), given["offsets"].reshape(-1, 2).astype(np.int64)
    column, row = np.trunc(x).astype(np.int64), np.trunc(y).astype(np.int64)
    total = np.zeros(len(x), np.int64)
    for dy, dx in offsets:
        place = np.abs((column + dx) * high + row + dy)
        pixel = frame[np.where(place >= frame.size, 0, place)]
        total += (pixel - 100) ** 2 - (pixel - 228) ** 2
    return np.exp(total / (50.0 * len(offsets))) / len(x)


def _relative(values: Array, right: Array) -> float:
    return float(np.abs(values - right).max() / np.abs(right).max())


def worst(errors: Mapping[str, float], allowed: float) -> Deviation:
    """The largest of some errors, NaN first."""
    name = max(errors, key=lambda one: np.nan_to_num(errors[one], nan=np.inf))
    return Deviation(float(np.nan_to_num(errors[name], nan=np.inf)), allowed, name, 0)


@cache
def _module(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(
        f"rodinia_{path.parent.name}_{path.stem}".replace("-", "_"), path
    )
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} cannot be imported")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def beside(kernel: KernelFile, name: str) -> ModuleType:
    """A Python file beside a kernel file."""
    return _module(Path(kernel.path).with_name(name))


# --- sources --------------------------------------------------------------------------------------
#
# Nothing of Rodinia is in this project (University of Virginia, BSD licence of three clauses; its
# streamcluster comes from PARSEC). Kernels are looked up by their mangled names: another parameter list is
# another name, and is refused.


WHERE = "git clone https://github.com/yuhc/gpu-rodinia (BSD licence, University of Virginia)"


class RodiniaError(Exception):
    """The folder is not Rodinia, or cannot be compiled; the message says what would be right."""


@dataclass(frozen=True)
class File:
    """A source with kernels.

    Attributes:
        path: below the folder ``cuda`` of Rodinia.
        flags: of its Makefile, beside the architecture.
        symbols: function -> mangled name.
    """

    path: str
    flags: tuple[str, ...]
    symbols: Mapping[str, str]


FILES = {
    "lud": File(
        "lud/cuda/lud_kernel.cu",
        ("-O3", "-use_fast_math"),
        {f"lud_{part}": f"_Z{4 + len(part)}lud_{part}Pfii" for part in ("diagonal", "perimeter", "internal")},
    ),
    "hotspot": File("hotspot/hotspot.cu", (), {"calculate_temp": "_Z14calculate_tempiPfS_S_iiiiffffff"}),
    "streamcluster": File(
        "streamcluster/streamcluster_cuda.cu",
        ("-O3",),
        {"kernel_compute_cost": "_Z19kernel_compute_costiilP5PointiiPfS1_PiPb"},
    ),
    "particlefilter-float": File(
        "particlefilter/ex_particle_CUDA_float_seq.cu",
        ("-O3", "-use_fast_math"),
        {
            "likelihood_kernel": "_Z17likelihood_kernelPdS_S_S_S_PiS0_S_PhS_S_iiiiiiS0_S_",
            "sum_kernel": "_Z10sum_kernelPdi",
            "normalize_weights_kernel": "_Z24normalize_weights_kernelPdiS_S_S_Pi",
            "find_index_kernel": "_Z17find_index_kernelPdS_S_S_S_S_S_i",
        },
    ),
    "particlefilter-naive": File(
        "particlefilter/ex_particle_CUDA_naive_seq.cu",
        ("-O3", "-use_fast_math"),
        {"kernel": "_Z6kernelPdS_S_S_S_S_i"},
    ),
}


def sources(folder: Path, names: Sequence[str]) -> dict[str, Source]:
    """The files of some peers, from Rodinia's folder or its folder ``cuda``.

    Raises:
        RodiniaError: some are missing; the message names them.
    """
    root = folder / "cuda" if (folder / "cuda").is_dir() else folder
    missing = [FILES[name].path for name in names if not (root / FILES[name].path).is_file()]
    if missing:
        raise RodiniaError(
            f"{folder}: not Rodinia's sources: there is no {', no '.join(missing)}, neither there nor in"
            f" {folder / 'cuda'}; get them by {WHERE}"
        )
    return {name: _source(root / FILES[name].path) for name in names}


def _source(path: Path) -> Source:
    headers = [one for one in sorted(path.parent.iterdir()) if one.suffix in {".cu", ".cuh", ".h"}]
    beside = ((one.name, one.read_text(errors="replace")) for one in headers if one != path)
    return Source(str(path), path.read_text(errors="replace"), tuple(beside))


class NvccCompiler:
    """Compiles stages of the files with nvcc; cubins are kept in a folder by all that they are made of.

    Args:
        architecture: e.g. ``sm_90``.
        folder: of cubins; those in it need no nvcc.
        nvcc: the program; that of the path if not given.
    """

    def __init__(self, architecture: str, folder: Path, nvcc: str | None = None) -> None:
        self._architecture = architecture
        self._folder = folder
        self._nvcc = nvcc or shutil.which("nvcc")
        folder.mkdir(parents=True, exist_ok=True)

    def compile(self, stages: Sequence[Stage]) -> list[CompiledStage | CompileError]:
        """For each stage, in order, the code or the error.

        Raises:
            RodiniaError: there is no nvcc for what is not in the folder.
        """
        units = list(dict.fromkeys((stage.source, stage.options) for stage in stages))
        with ThreadPoolExecutor() as pool:
            made = dict(zip(units, pool.map(lambda unit: self._unit(*unit), units), strict=True))
        return [self._stage(stage, made[stage.source, stage.options]) for stage in stages]

    def _stage(self, stage: Stage, unit: "tuple[bytes, str] | CompileError") -> CompiledStage | CompileError:
        if isinstance(unit, CompileError):
            return unit
        cubin, log = unit
        symbol = _symbols()[stage.entry]
        if f".text.{symbol}\0".encode() not in cubin:
            return CompileError(
                f"{stage.source.path}: there is no {stage.entry} with Rodinia 3.1's parameters ({symbol})"
            )
        found = resources_in(log, symbol, self._architecture)
        return CompiledStage(cubin, symbol, found or Resources(0, architecture=self._architecture), log)

    def _unit(self, source: Source, options: tuple[str, ...]) -> "tuple[bytes, str] | CompileError":
        """A cubin and the log of ptxas."""
        key = hashlib.sha256("\0".join((source.sha256, self._architecture, *options)).encode()).hexdigest()
        stem = self._folder / f"{Path(source.path).stem}-{self._architecture}-{key[:16]}"
        cubin, log = stem.with_suffix(".cubin"), stem.with_suffix(".log")
        if not (cubin.exists() and log.exists()):
            partial = stem.with_suffix(".part")
            done = subprocess.run(
                self._command(source, options, partial), capture_output=True, text=True, check=False
            )
            if done.returncode:
                return CompileError(f"nvcc does not compile {source.path}:\n{_errors(done.stderr)}")
            log.write_text(f"{self.version()}\n{done.stdout}{done.stderr}")
            partial.rename(cubin)
        return cubin.read_bytes(), log.read_text()

    def _command(self, source: Source, options: tuple[str, ...], to: Path) -> list[str]:
        release = re.search(r"release (\d+)", self.version())
        # CUDA 13 has no cudaThreadSynchronize; the files call it outside of their kernels.
        gone = release is not None and int(release[1]) >= 13
        renamed = ["-DcudaThreadSynchronize=cudaDeviceSynchronize"] if gone else []
        flags = [f"-arch={self._architecture}", "-Xptxas=-v", "-w", *options, *renamed]
        return [str(self._nvcc), "-cubin", *flags, "-o", str(to), source.path]

    def version(self) -> str:
        """The last lines of ``nvcc --version``.

        Raises:
            RodiniaError: there is no nvcc.
        """
        if self._nvcc is None:
            raise RodiniaError(
                "nvcc is not on the path: install the CUDA toolkit, or compile where it is with"
                " --build-only --cubins FOLDER --architecture sm_90, and hand that folder over"
            )
        answer = subprocess.run([self._nvcc, "--version"], capture_output=True, text=True, check=True)
        return ", ".join(line for line in answer.stdout.splitlines() if "release" in line or "Build" in line)

    def versions(self) -> list[str]:
        """Of nvcc, by the logs of the cubins that are kept."""
        return sorted({log.read_text().splitlines()[0] for log in self._folder.glob("*.log")})


def _symbols() -> dict[str, str]:
    return {name: symbol for file in FILES.values() for name, symbol in file.symbols.items()}


def _errors(output: str) -> str:
    """The lines that matter of what nvcc writes."""
    lines = output.strip().splitlines()
    return "\n".join([line for line in lines if "error" in line][:5] or lines[-5:])


Inputs = Mapping[str, Array]


@dataclass(frozen=True)
class Form:
    """One way to run some kernels.

    Attributes:
        name: whose kernels, with their settings.
        plan: launches and arrays.
        inputs: what arrays of role ``in`` and ``inout`` hold before a run; the latter are restored, untimed.
        judge: tells how far the arrays are from right after a run.
        cleared: arrays that are set to zero before every launch; timed.
        timed: names of the stages that are timed; all where empty.
    """

    name: str
    plan: Plan
    inputs: Inputs
    judge: Judge
    cleared: tuple[str, ...] = ()
    timed: tuple[str, ...] = ()


def lud(source: Source, kernel: KernelFile, ours: Plan, inputs: Inputs) -> Iterator[Form]:
    """Factorisation by blocks of BLOCK_SIZE; N is a multiple of it."""
    del kernel
    n = _sizes(ours)["N"]
    for size in (16, 32, 8):
        if n % size:
            continue
        stages: list[Stage] = []
        launch = _Launches("lud", source, (f"-DRD_WG_SIZE={size}",))
        for offset in range(0, n, size):
            arguments = ("A", _int(n), _int(offset))
            stages.append(launch("lud_diagonal", (1,), (size,), arguments))
            rest = (n - offset) // size - 1
            if rest:
                stages.append(launch("lud_perimeter", (rest,), (2 * size,), arguments))
                stages.append(launch("lud_internal", (rest, rest), (size, size), arguments))
        buffers = (Buffer("A", "float32", (n, n), "inout"),)
        judge = law_judge(ours, inputs, lambda arrays: {"A": arrays["A"]})
        yield _form(f"lud, BLOCK_SIZE {size}", ours, stages, buffers, inputs, judge)


HEIGHTS = {16: (2, 1, 3, 4, 5), 32: (2, 1, 3, 4, 5, 6, 8), 8: (1, 2)}


def hotspot(source: Source, kernel: KernelFile, ours: Plan, inputs: Inputs) -> Iterator[Form]:
    """Steps of the heat equation, with the constants of our kernel; a pyramid is some steps of a launch."""
    del kernel
    sizes = _sizes(ours)
    rows, columns, steps = sizes["ROWS"], sizes["COLUMNS"], sizes["STEPS"]
    width, height = 0.016 / columns, 0.016 / rows
    capacity = 0.5 * 1.75e6 * 0.0005 * width * height
    rx, ry = width / (2.0 * 100 * 0.0005 * height), height / (2.0 * 100 * 0.0005 * width)
    rz = 0.0005 / (100 * width * height)
    step = 0.5 * capacity / (2 / rx + 2 / ry + 1 / rz)
    constants = tuple(Scalar("float32", value) for value in (capacity, rx, ry, rz, step, 0.001))
    shape = (rows, columns)
    buffers = (
        Buffer("temperatures 0", "float32", shape, "inout"),
        Buffer("temperatures 1", "float32", shape, "out"),
        Buffer("power", "float32", shape, "in"),
    )
    given = {"temperatures 0": inputs["before"], "power": inputs["power"]}
    for size, heights in HEIGHTS.items():
        for high in (high for high in heights if high <= steps):
            launch = _Launches("hotspot", source, (f"-DRD_WG_SIZE={size}",))
            inner = size - 2 * high
            grid = (-(-columns // inner), -(-rows // inner))
            stages = []
            for place, first in enumerate(range(0, steps, high)):
                arrays = ("power", f"temperatures {place % 2}", f"temperatures {1 - place % 2}")
                counts = tuple(map(_int, (columns, rows, high, high)))
                arguments = (_int(min(high, steps - first)), *arrays, *counts, *constants)
                stages.append(launch("calculate_temp", grid, (size, size), arguments))
            last = f"temperatures {len(stages) % 2}"
            judge = law_judge(ours, inputs, lambda arrays, last=last: {"after": arrays[last]})
            name = f"hotspot, BLOCK_SIZE {size}, pyramid height {high}"
            yield _form(name, ours, stages, buffers, given, judge)


def streamcluster(source: Source, kernel: KernelFile, ours: Plan, inputs: Inputs) -> Iterator[Form]:
    """Costs of candidates one after another; the sums, which the host makes in its program, are left out."""
    sizes = _sizes(ours)
    n, dim, centres, calls = (sizes[name] for name in ("N", "DIM", "K", "CALLS"))
    stride = centres + 1
    points = np.zeros(n, POINT)
    medians = np.arange(centres) * (n // centres)  # the points that are centres
    points["weight"], points["cost"] = inputs["weight"], inputs["cost"]
    points["assign"] = medians[inputs["centre"]]
    table = np.zeros(n, np.int32)
    table[medians] = np.arange(centres)
    given = {
        "points": points.view(np.uint8),
        "coordinates": inputs["points"].reshape(-1),
        "table": table,
    }
    buffers = (
        Buffer("points", "uint8", (POINT.itemsize * n,), "in"),
        Buffer("coordinates", "float32", (dim * n,), "in"),
        Buffer("table", "int32", (n,), "in"),
        Buffer("work", "float32", ((n + 1) * stride,), "out"),
        Buffer("switched", "uint8", (n,), "out"),
    )
    judge = gain_judge(kernel, ours, inputs)
    for threads in (512, 64, 128, 256, 1024):
        launch = _Launches("streamcluster", source)
        stages = [
            launch(
                "kernel_compute_cost",
                (-(-n // threads),),
                (threads,),
                (
                    *(_int(n), _int(dim), Scalar("int64", call * 7919 % n), "points", _int(centres)),
                    *(_int(stride), "coordinates", "work", "table", "switched"),
                ),
            )
            for call in range(calls)
        ]
        form = _form(f"streamcluster, {_threads(threads, 512)}", ours, stages, buffers, given, judge)
        yield replace(form, cleared=("work", "switched"))


def filter_float(source: Source, kernel: KernelFile, ours: Plan, inputs: Inputs) -> Iterator[Form]:
    """A frame of the filter with all of its steps on the device; in double, whatever its name says."""
    del kernel
    sizes = _sizes(ours)
    n, high, wide, fixed = sizes["N"], sizes["H"], sizes["W"], 512  # a constant of its source, not a macro
    offsets = np.array([(dy, dx) for dx in range(-4, 5) for dy in range(-4, 5) if dx * dx + dy * dy < 25])
    given = {
        "frame": np.ascontiguousarray(inputs["frame"].T).reshape(-1),  # its first axis is x
        "xj": inputs["x"],
        "yj": inputs["y"],
        "seed": np.random.default_rng(1).integers(1, MODULUS, n).astype(np.int32),
        "offsets": offsets.astype(np.int32).reshape(-1),
        "u": np.zeros(n),
    }
    double = ("arrayX", "arrayY", "CDF", "weights")
    buffers = (
        *(Buffer(name, "float64", (n,), "out") for name in double),
        *(Buffer(name, "float64", (n,), "inout") for name in ("xj", "yj", "u")),
        *(Buffer(name, "float64", (n,), "scratch") for name in ("likelihood", "sums")),
        Buffer("pixels", "int32", (n * len(offsets),), "scratch"),
        Buffer("seed", "int32", (n,), "inout"),
        Buffer("offsets", "int32", (2 * len(offsets),), "in"),
        Buffer("frame", "uint8", (wide * high,), "in"),
    )
    whole, one, none = _int(n), _int(1), _int(0)
    likelihood = (
        *("arrayX", "arrayY", "xj", "yj", "CDF", "pixels", "offsets", "likelihood", "frame", "u", "weights"),
        *(whole, _int(len(offsets)), _int(wide * high), none, _int(high), one, "seed", "sums"),
    )
    normalise = ("weights", whole, "sums", "CDF", "u", "seed")
    find = ("arrayX", "arrayY", "CDF", "u", "xj", "yj", "weights", whole)
    for threads in (512, 64, 128, 256):
        launch, blocks = _Launches("particlefilter-float", source), -(-n // fixed)
        stages = [
            launch("likelihood_kernel", (blocks,), (fixed,), likelihood),
            launch("sum_kernel", (blocks,), (fixed,), ("sums", whole)),
            launch("normalize_weights_kernel", (blocks,), (fixed,), normalise),
            launch("find_index_kernel", (-(-n // threads),), (threads,), find),
        ]
        name = f"particlefilter float, search by {_threads(threads, 512)}"
        yield _form(name, ours, stages, buffers, given, filter_judge(ours, given))


def filter_naive(source: Source, kernel: KernelFile, ours: Plan, inputs: Inputs) -> Iterator[Form]:
    """The search of a frame, the only part of this variant on the device; in double."""
    n = _sizes(ours)["N"]
    given = tracked(kernel, inputs)
    buffers = (
        *(Buffer(name, "float64", (n,), "in") for name in ("arrayX", "arrayY", "CDF", "u")),
        *(Buffer(name, "float64", (n,), "out") for name in ("xj", "yj")),
    )
    for threads in (128, 64, 256, 512):
        launch = _Launches("particlefilter-naive", source)
        arguments = ("arrayX", "arrayY", "CDF", "u", "xj", "yj", _int(n))
        stages = [launch("kernel", (-(-n // threads),), (threads,), arguments)]
        name = f"particlefilter naive, {_threads(threads, 128)}"
        yield _form(name, ours, stages, buffers, given, naive_judge(given))


class _Launches:
    """Makes stages of one file, compiled with one set of options."""

    def __init__(self, name: str, source: Source, options: tuple[str, ...] = ()) -> None:
        self._source = source
        self._options = (*FILES[name].flags, *options)

    def __call__(
        self, entry: str, grid: Sequence[int], block: Sequence[int], arguments: Iterable[StageArgument]
    ) -> Stage:
        gx, gy, gz = (*grid, 1, 1)[:3]
        bx, by, bz = (*block, 1, 1)[:3]
        extents = (gx, gy, gz), (bx, by, bz)
        return Stage(entry, self._source, entry, self._options, *extents, 0, tuple(arguments))


def _form(  # noqa: PLR0917 - what a form is made of
    name: str,
    ours: Plan,
    stages: Sequence[Stage],
    buffers: tuple[Buffer, ...],
    inputs: Inputs,
    judge: Judge,
) -> Form:
    plan = replace(ours, configuration=Configuration({}), stages=tuple(stages), buffers=buffers)
    return Form(name, replace(plan, baseline=None, reference=None), inputs, judge)


def _sizes(plan: Plan) -> dict[str, int]:
    return {name: int(value) for name, value in plan.workload.sizes}


def _int(value: int) -> Scalar:
    return Scalar("int32", value)


def _threads(count: int, documented: int) -> str:
    return f"{count} threads{' (its own)' if count == documented else ''}"
