"""The pieces of the cluster form, and what is told of them, without a GPU."""

import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import host_build
import numpy as np
import pytest
from benchmark_scripts import ROOT, siblings_importable

from tuner.compiler.compiler import CompiledStage, Compiler

PEERS = ROOT / "benchmarks" / "results" / "peers-h200.json"
HOST = {"n": 8192, "n1": 64, "p": 16, "b": 4}


@pytest.fixture(autouse=True)
def scripts(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The scripts import each other by bare names."""
    with siblings_importable(monkeypatch):
        yield


def numbers(batch: int, n: int) -> Any:
    return np.random.default_rng(n).standard_normal((batch, 2 * n), np.float32).view(np.complex64)


def test_shapes_are_those_of_the_kernel() -> None:
    """Every shape up to the longest of the kernel file is of its space; a multiprocessor holds its blocks."""
    from tuner.kernel_files.catalog import Catalog  # noqa: PLC0415 - the catalogue is read once, by this test

    parts, kernel = import_module("cluster_parts"), Catalog.load().kernel("fft-large")
    for shape in parts.SHAPES:
        assert shape.blocks * (shape.shared_bytes + 1024) <= parts.SHARED_BYTES, shape
        assert shape.b * shape.threads * shape.p == shape.n, shape
        if shape.n > 2**17 or shape.b == 2:
            continue  # the kernel file leaves these out
        workload = kernel.workload({"N": shape.n})
        values = {"form": "cluster", "N1": shape.n1, "P1": shape.p, "L1": shape.threads, "r1": shape.p}
        values |= {"order": shape.order, "B": shape.b, "scratch": 4, "store": 8, "sync": "async"}
        (stage,) = kernel.plan(workload, kernel.configuration(workload, values)).stages
        *_, piece = parts.pieces(shape)
        (same,) = piece.plan.stages
        assert (same.entry, same.shared_bytes, same.block) == (stage.entry, stage.shared_bytes, stage.block)


@pytest.mark.skipif(host_build.COMPILER is None, reason="needs g++")
def test_pieces_leave_every_point_in_its_place() -> None:
    """What is timed moves each point to where the benchmark expects it, in any order of threads."""
    parts = import_module("cluster_parts")
    shape = parts.Shape(**HOST)
    x = numbers(2, shape.n)
    x.flags.writeable = False
    runs = [(piece, piece.plan.stages[0]) for piece in parts.pieces(shape) if piece.places is not None]
    host_build.build(parts.source(), [stage.entry for _, stage in runs])
    for piece, stage in runs:
        y = np.full_like(x, np.nan)
        b = stage.cluster
        launch = (len(x) * shape.b // b, shape.threads * b, shape.shared_bytes * b)
        host_build.run(parts.source(), stage.entry, *launch, [x, y], order="shuffle")
        assert parts.is_right(np, piece, x, y), piece.name


@pytest.mark.skipif(host_build.COMPILER is None, reason="needs g++")
def test_blocks_that_stay_send_every_point() -> None:
    """Exchanges alone leave each point in its place, and a missing one is seen."""
    parts = import_module("cluster_parts")
    shape = parts.Shape(**HOST)
    for form in parts.FORMS:
        (stage,) = parts.exchange_alone(shape, form, 4, 3).stages
        y = np.full((2, shape.n), np.nan, np.complex64)
        launch = (2, shape.threads * shape.b, shape.shared_bytes * shape.b)
        host_build.run(parts.source(), stage.entry, *launch, [y, 3, 0])
        assert parts.has_exchanged(np, shape, 2, y), form
    y[1, 5] = 0
    assert not parts.has_exchanged(np, shape, 2, y)


def test_pieces_compile_for_clusters() -> None:
    """The longest shape compiles for sm_90 without spills, blocks that stay too."""
    parts = import_module("cluster_parts")
    shape = parts.SHAPES[-1]
    plans = [piece.plan for piece in parts.pieces(shape) if piece.places is not None]
    plans += [parts.exchange_alone(shape, form, 4, 1) for form in parts.FORMS]
    plans.append(parts.meet_alone(shape, 1, in_order=True))
    for made in Compiler("sm_90").compile([stage for plan in plans for stage in plan.stages]):
        assert isinstance(made, CompiledStage), made
        assert made.resources.local_bytes == 0


def test_the_first_half_of_the_rounds_chooses_the_bound() -> None:
    """Of each N, the right exchange that was fastest at first is the bound, beside the recorded answer."""
    tables, parts = import_module("cluster_tables"), import_module("cluster_parts")

    def piece(name: str, chosen_ms: float, of_copy: float, correct: bool = True) -> dict[str, Any]:
        return {"piece": name, "chosen_ms": chosen_ms, "of_copy": of_copy, "correct": correct}

    one, two, wrong = (f"{parts.EXCHANGE}{form})" for form in parts.FORMS[:3])
    pieces = [piece(one, 2, 0.9), piece(two, 1, 0.8), piece(wrong, 0.5, 1, False), piece(parts.WHOLE, 3, 0.7)]
    row = {"n": 65536, "b": 16, "pieces": pieces}
    (found,) = tables.bounds([row], tables.recorded_answers(PEERS))
    assert found["bound"]["piece"] == two
    assert found["recorded"]["configuration"]["form"] == "cluster"
    _, line = tables.bound_lines([found])
    assert " ".join(line.split()) == ("65536 80.0 % (B = 16, 8 B, st.async) 70.0 % (B = 16) 68.8 % (cluster)")


def test_results_of_the_same_kind_of_gpu_stand_beside() -> None:
    """An H100 is held against what H100s left, an unknown GPU against nothing."""
    tables = import_module("cluster_tables")
    assert tables.recorded_on([{"name": "NVIDIA H100 80GB HBM3"}]).name == "peers-h100.json"
    assert tables.recorded_on([{"name": "NVIDIA A100"}]) is None
    assert tables.recorded_answers(None) == {}


RAW = """==PROF== Connected to process 7
"ID","Kernel Name","dram__bytes_read.sum","smsp__average_warps_issue_stalled_barrier_per_issue_active.ratio"
"","","Mbyte","inst"
"0","fft_cluster","1,537.5","2.25"
"""


def test_counters_are_read_with_their_units() -> None:
    """Numbers have units; what is no counter is left out; what warps wait for is named."""
    module = import_module("cluster_counters")
    values = module.parsed(RAW)
    assert values["dram__bytes_read.sum"] == {"value": 1537.5, "unit": "Mbyte"}
    assert set(values) == set(RAW.splitlines()[1].replace('"', "").split(",")[2:])
    assert module.lines(65536, {"form": "cluster"}, values)[1:] == [
        "  device memory, read: 1,537.50 Mbyte",
        "  warps that wait per instruction issued, barrier: 2.25",
    ]
    assert module.parsed("==ERROR== nothing") == {}


def test_counters_that_are_not_permitted_are_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: Any
) -> None:
    """Without ncu, or without the permission, the reason is told and the exit code is 2."""
    module = import_module("cluster_counters")
    answers = {65536: {"form": "cluster"}}
    monkeypatch.setattr(module.shutil, "which", lambda _: None)
    with pytest.raises(SystemExit, match="2"):
        module.counters(answers, {}, tmp_path / "x.json")
    assert "not on PATH" in capsys.readouterr().err
    refused = SimpleNamespace(stdout="==ERROR== ERR_NVGPUCTRPERM", stderr="", returncode=1)
    monkeypatch.setattr(module.shutil, "which", lambda name: name)
    monkeypatch.setattr(module.subprocess, "run", lambda *_, **__: refused)
    with pytest.raises(SystemExit, match="2"):
        module.counters(answers, {}, tmp_path / "x.json")
    assert "does not permit" in capsys.readouterr().err


def test_reading_counters_leaves_the_clocks_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nsight Compute is told not to hold the clocks of the GPU."""
    module = import_module("cluster_counters")
    calls: list[list[str]] = []

    def run(command: list[str], **_: Any) -> SimpleNamespace:
        calls.append(command)
        return SimpleNamespace(stdout=RAW, stderr="", returncode=0)

    monkeypatch.setattr(module.subprocess, "run", run)
    module.read("ncu", 65536, {"form": "cluster"})
    (command,) = calls
    assert command[command.index("--clock-control") + 1] == "none"


def test_a_length_without_a_shape_is_refused(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    """The message names the option and the lengths that there are."""
    monkeypatch.setattr(sys, "argv", ["cluster_exchange.py", "--out", "x.json", "--lengths", "100"])
    with pytest.raises(SystemExit, match="2"):
        import_module("cluster_exchange").main()
    assert "--lengths: no shape of [100]; there are 16384, 32768" in capsys.readouterr().err
