"""Rodinia's CUDA sources in a folder of the user, and their kernels, compiled with nvcc as they are.

Nothing of Rodinia is in this project (University of Virginia, BSD licence of three clauses; its streamcluster
comes from PARSEC). Kernels are looked up by their mangled names: another parameter list is another name, and
is refused.
"""

import hashlib
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from tuner.compiler.compiler import CompiledStage, resources_in
from tuner.model.errors import CompileError
from tuner.model.plan import Resources, Source, Stage

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
