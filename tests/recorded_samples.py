"""Small recorded spaces, made by hand."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from tuner.model.jobs import DeviceIdentity, DeviceLimits
from tuner.model.plan import Configuration, TunableValue, Work
from tuner.model.trial import Energy, Flag, Measurement, Status, Trial, WorkloadResult
from tuner.recordings.files import RecordingFile, write
from tuner.recordings.values import RecordedSpace, RecordedWorkload
from tuner.space.occupancy import candidate, launch

LIMITS = DeviceLimits(
    compute_capability=(9, 0),
    multiprocessors=132,
    warp_size=32,
    max_threads_per_block=1024,
    max_threads_per_sm=2048,
    max_warps_per_sm=64,
    max_blocks_per_sm=32,
    registers_per_sm=65536,
    registers_per_block=65536,
    max_registers_per_thread=255,
    register_alloc_unit=256,
    warp_alloc_granularity=4,
    shared_bytes_per_sm=233472,
    shared_bytes_per_block=232448,
    shared_alloc_unit=128,
    shared_reserved_bytes=1024,
    memory_bytes=150109880320,
    l2_bytes=62914560,
)
GPU = DeviceIdentity("cuda:0", "NVIDIA H200", "GPU-1", "580", "13.0", modelled=False)
DATE = "2026-11-21T19:25:25+00:00"


def workload(
    name: str = "scan-lf:N=64",
    blocks: Sequence[int] = (32, 64, 128),
    *,
    launches: bool = True,
    batch: int = 1024,
    fingerprint: str = "",
) -> RecordedWorkload:
    """A workload whose tunable L is the block size, and whose tunable ``store`` is a text."""
    kernel, _, sizes = name.partition(":")
    found = []
    for block in blocks:
        stage = launch(LIMITS, blocks=8, threads_per_block=block, shared_bytes=128, registers_per_thread=20)
        found.append(
            candidate(
                Configuration((("L", block), ("store", "direct"))),
                [stage] if launches else [],
                {"threads_per_block": "L"},
                work=Work(1e6, 2e6, 3.0, 1024.0, "MData/s", 1e6) if launches else None,
            )
        )
    tunables: dict[str, tuple[TunableValue, ...]] = {"L": tuple(blocks), "store": ("direct", "staged")}
    return RecordedWorkload(
        name=name,
        kernel=kernel,
        family="scan",
        sizes={key: int(value) for key, value in (pair.split("=") for pair in sizes.split(",") if pair)},
        batch=batch,
        fingerprint=fingerprint,
        tunables=tunables,
        roles={"threads_per_block": "L"},
        default=found[0].configuration,
        candidates=tuple(found),
    )


def measured(
    time_s: float, joules: float | None = None, *, lanes: int = 1, flags: tuple[Flag, ...] = ()
) -> Measurement:
    """A valid measurement of a window of 0.2 s."""
    energy = None if joules is None else Energy(joules, joules * 0.03, joules / time_s, "counter", "gpu")
    return Measurement(
        results=(WorkloadResult(Status.OK, time_s, time_s / 100),) * lanes,
        makespan_s=time_s,
        makespan_spread_s=time_s / 100,
        makespan_uncertainty_s=time_s / 1000,
        energy=energy,
        rounds=100,
        window_s=0.2,
        flags=flags,
        energy_total_j=0.0 if joules is None else 100 * joules,
    )


def failed(status: Status = Status.LAUNCH_ERROR, detail: str = "refused") -> Measurement:
    """A measurement of a trial that failed."""
    return Measurement((WorkloadResult(status, detail=detail),))


def space(
    one: RecordedWorkload | None = None,
    results: Sequence[Measurement] = (measured(3e-3, 0.3), measured(1e-3, 0.2), measured(2e-3, 0.1)),
    *,
    limits: DeviceLimits | None = LIMITS,
    clocks_mhz: Sequence[int | None] = (None,),
    identity: DeviceIdentity = GPU,
    provenance: Mapping[str, Any] | None = None,
) -> RecordedSpace:
    """A space of one workload; the results are those of its candidates, at every clock."""
    one = one or workload()
    energy = any(result.energy is not None for result in results)
    return RecordedSpace(
        (one,),
        identity,
        limits,
        {
            Trial((found.configuration,), clock_mhz): result
            for clock_mhz in clocks_mhz
            for found, result in zip(one.candidates, results, strict=False)
        },
        "counter" if energy else "",
        {"date": DATE, "window_s": 0.2} if provenance is None else provenance,
    )


def written(path: Path, *spaces: RecordedSpace) -> RecordingFile:
    """The spaces as a file, opened."""
    write(path, spaces)
    return RecordingFile(path)


def cache(**changes: Any) -> dict[str, Any]:
    """A Kernel Tuner cache of two tunables, of which one is a text, with one failed configuration."""
    return {
        "device_name": "NVIDIA A100",
        "kernel_name": "convolution_kernel",
        "problem_size": [4096, 4096],
        "tune_params_keys": ["block_size_x", "layout"],
        "tune_params": {"block_size_x": [16, 32], "layout": ["row", "column"]},
        "objective": "time",
        "cache": {
            "16,row": {
                "block_size_x": 16,
                "layout": "row",
                "time": 2.0,
                "times": [1.0, 2.0, 3.0],
                "compile_time": 800.0,
                "verification_time": 10.0,
                "benchmark_time": 120.0,
            },
            "32,row": {"block_size_x": 32, "layout": "row", "time": 1.0},
            "32,column": {"block_size_x": 32, "layout": "column", "time": "RuntimeFailedConfig"},
        },
        **changes,
    }


def cache_file(path: Path, **changes: Any) -> Path:
    """A Kernel Tuner cache on disk."""
    path.write_text(json.dumps(cache(**changes)))
    return path


def damage(document: Any, data: st.DataObject) -> None:
    """Replace one value of a document, at any depth, by another kind of value."""
    place = document
    while True:
        keys = list(place) if isinstance(place, dict) else list(range(len(place)))
        key = data.draw(st.sampled_from(keys))
        if not isinstance(place[key], dict | list) or not place[key] or data.draw(st.booleans()):
            break
        place = place[key]
    wrong: tuple[Any, ...] = (None, -1, 0, 1.5, "", "x", True, [], {}, [1], [[1]], {"all": []}, 10**30)
    place[key] = data.draw(st.sampled_from(wrong))
