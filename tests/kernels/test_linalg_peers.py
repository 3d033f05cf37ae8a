"""The benchmark against cuBLAS and cuSOLVER: calls, arrays, rounds and ratios, on a fake GPU."""

import json
import random
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import host_build
import pytest
import rodinia_machine
from benchmark_scripts import ROOT, benchmark
from fake_cuda import LIMITS
from fake_linalg_libraries import FakeLibrary
from numpy.typing import NDArray

OPERATIONS = {  # the forms that are right, in their order
    "potrf-batched": [
        "cuSOLVER potrfBatched, lower",
        "cuSOLVER potrfBatched, upper",
        "cuSOLVER potrfBatched, blocks of 2, with trsm and gemm",
    ],
    "getrf-batched": ["cuBLAS getrfBatched"],
    "geqrf-batched": ["cuBLAS geqrfBatched"],
    "trsm-batched": [
        "cuBLAS trsmBatched, lower",
        "cuBLAS trsmBatched, upper, transposed",
        "cuBLAS trsmBatched, lower, transposed, from the right",
        "cuBLAS trsmBatched, upper, from the right",
        "cuBLAS trsmBatched, blocks of 2, with gemm",
    ],
    "gemm-batched": [
        "cuBLAS gemmStridedBatched",
        "cuBLAS gemmStridedBatched, A transposed",
        "cuBLAS gemmStridedBatched, B transposed",
        "cuBLAS gemmStridedBatched, both transposed",
        "cuBLAS gemmBatched",
    ],
}
SCRIPTS = ("linalg_peers", "linalg_large")
OURS_S, THEIRS_S = 1e-5, 3e-5
N, BATCH = 5, 13
on_host = pytest.mark.skipif(host_build.COMPILER is None, reason="needs g++")


class HostCompiler(rodinia_machine.HostCompiler):
    """As much of a compiler as candidates are compiled with."""

    nvrtc_version = "12.9"

    def __enter__(self) -> "HostCompiler":  # noqa: PYI034 - typing.Self needs Python 3.11
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def compile(self, stages: Sequence[Any], progress: object = None) -> list[Any]:
        del progress
        return super().compile(stages)


@pytest.fixture(scope="module")
def peers() -> Iterator[Any]:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "benchmarks" / "kernels"))
        yield benchmark("kernels/linalg_peers")


@pytest.fixture
def measured(peers: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., dict[str, Any]]:
    """Runs the script on a fake GPU whose kernels are computed on the host."""
    cp = rodinia_machine.ComputingCupy()
    stream = cp.current_stream()
    library = FakeLibrary(cp, THEIRS_S)
    contest, sets = peers.contest.__globals__, peers.contest.__globals__["Sets"].restore.__globals__
    monkeypatch.setattr(peers.probe, "open_cupy", lambda _: cp)
    monkeypatch.setattr(peers.probe, "gpu_limits", lambda *_: LIMITS)
    monkeypatch.setattr(peers, "Compiler", lambda _: HostCompiler(cp, OURS_S))
    monkeypatch.setattr(peers, "copy_bandwidth", lambda *_: 4000.0)
    monkeypatch.setattr(peers, "LinalgLibraries", lambda _: contest["LinalgLibraries"](cp, library, library))
    monkeypatch.setattr("linalg_libraries.BLOCKS", (2,))
    monkeypatch.setattr("linalg_contest.LEAST_S", 0.0)
    monkeypatch.setitem(contest, "_LEAD_BYTES", 1)
    monkeypatch.setitem(sets, "MOST", 3)
    monkeypatch.setattr("cold_timing.FLUSH_BYTES", 1)

    def run(*words: str, code: int = 0, **changes: Any) -> dict[str, Any]:
        for name, value in changes.items():
            setattr(library, name, value)
        out = tmp_path / "rows.json"
        command = ["--n", str(N), "--batch", str(BATCH), "--budget", "1e-3", "--out", str(out), *words]
        assert peers.main(command) == code
        assert stream is cp.current_stream()
        found: dict[str, Any] = json.loads(out.read_text())
        return found

    return run


def case_of(operation: str, n: int, dtype: str) -> Any:
    """A row; the folder of the script is on the path."""
    return import_module("linalg_libraries").Case(operation, n, dtype)


@on_host
@pytest.mark.parametrize(
    ("operation", "dtype"),
    list(zip(OPERATIONS, ["float32", "float64", "float64", "float32", "float64"], strict=True)),
)
def test_all_forms_answer_right_and_are_timed(measured: Any, operation: str, dtype: str) -> None:
    """Libraries get their arguments in order, both answer right, and the ratio is that of their times."""
    (row,) = measured("--only", operation, "--dtype", dtype)["rows"]
    assert [one["name"] for one in row["peers_tried"]] == OPERATIONS[operation]
    assert all(one["correct"] and one["graph"] for one in row["peers_tried"]), row["peers_tried"]
    assert not row["wrong"]
    assert (row["sets"], row["batch"], row["correct"]) == (3, BATCH, True)
    stated = operation in {"trsm-batched", "gemm-batched"}
    why = "" if stated else "analytical = false"
    assert (row["analytical"] is not None, row["no_analytical"]) == (stated, why)
    for name in ("default", "best"):
        ratio = row[name]["ratio"]
        assert ratio["low"] == pytest.approx(ratio["high"])
        assert ratio["median"] == pytest.approx(THEIRS_S / OURS_S)
        assert row[name]["us"] == pytest.approx(1e6 * OURS_S)
        assert row[name]["roofline"] == pytest.approx(row["bytes"] / OURS_S / 4e12)


def test_all_libraries_are_opened(peers: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that CuPy loads, or their names among what is missing."""
    cp = rodinia_machine.ComputingCupy()
    opened: list[str] = []

    def library(stem: str, versions: Sequence[int]) -> Any:
        assert versions
        opened.append(stem)
        if stem == "libcusolver":
            raise OSError(f"{stem} was not found")
        return FakeLibrary(cp, THEIRS_S)

    libraries = peers.LinalgLibraries
    monkeypatch.setitem(libraries.__init__.__globals__, "VendorLibrary", library)
    assert libraries(cp).missing == {"cuSOLVER": "libcusolver was not found"}
    assert opened == ["libcublas", "libcusolver"]


@on_host
def test_wrong_answers_of_a_library_win_nothing(measured: Any) -> None:
    """A library that answers wrong is no peer, and no target is met against it."""

    def off(answer: NDArray[Any]) -> NDArray[Any]:
        return 1.01 * answer

    (row,) = measured("--only", "geqrf-batched", "--dtype", "float64", computed=off)["rows"]
    assert not any(one["correct"] for one in row["peers_tried"])
    assert row["peer"] is None
    assert row["met"] is None
    assert "ratio" not in row["best"]


@on_host
def test_calls_that_cannot_be_captured_are_timed_as_they_are(measured: Any) -> None:
    """A library that refuses to be captured is called set by set."""
    (row,) = measured("--only", "getrf-batched", "--dtype", "float32", _captured=False)["rows"]
    assert {one["graph"] for one in row["peers_tried"]} == {False}
    assert row["peer"]["us"] == pytest.approx(1e6 * THEIRS_S)
    assert row["best"]["graph"]


@on_host
def test_ctrl_c_keeps_the_rows_so_far(
    measured: Any, peers: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What was measured before stays in the JSON, and the code says that it was interrupted."""
    rows: list[int] = []

    def contest(*_: object) -> dict[str, Any]:
        if rows:
            raise KeyboardInterrupt
        rows.append(1)
        raise ValueError("no such form")

    monkeypatch.setattr(peers, "contest", contest)
    found = measured("--only", "getrf-batched", "geqrf-batched", "--dtype", "float32", code=130)
    assert [one["why"] for one in found["failed"]] == ["ValueError: no such form"]
    assert "interrupted" in capsys.readouterr().err


def test_rows_that_do_not_fit_the_time_are_named(measured: Any) -> None:
    """What was left out is in the JSON."""
    found = measured("--only", "getrf-batched", "--limit", "1e-9")
    assert found["left_out"] == [
        {"operation": "getrf-batched", "n": N, "dtype": dtype} for dtype in ("float32", "float64")
    ]
    assert found["rows"] == []


@pytest.mark.parametrize(
    ("script", "words", "told"),
    [
        ("linalg_peers", ["--only", "potrf"], "invalid choice: 'potrf'"),
        ("linalg_large", ["--only", "potrf-batched"], "invalid choice: 'potrf-batched'"),
        ("linalg_peers", ["--n", "129"], "'129' is no order; orders are 1 to 128"),
        ("linalg_peers", ["--n", "0"], "'0' is no order"),
        ("linalg_large", ["--n", "1"], "'1' is no order; orders are 2 to 32768"),
        ("linalg_large", ["--n", "65536"], "'65536' is no order"),
        ("linalg_peers", ["--batch", "-1"], "'-1' is no batch"),
        *((script, ["--budget", "0"], "'0' are no seconds; they must be above 0") for script in SCRIPTS),
        ("linalg_peers", ["--limit", "nan"], "'nan' are no seconds"),
        ("linalg_large", ["--limit", "inf"], "'inf' are no seconds"),
        *((script, ["--dtype", "float16"], "invalid choice: 'float16'") for script in SCRIPTS),
    ],
)
@pytest.mark.usefixtures("peers")
def test_wrong_options_are_refused(
    capsys: pytest.CaptureFixture[str], script: str, words: list[str], told: str
) -> None:
    """The message names the value and what would be right."""
    with pytest.raises(SystemExit) as end:
        benchmark(f"kernels/{script}").parsed(words)
    assert end.value.code == 2
    assert told in capsys.readouterr().err


@pytest.mark.parametrize(
    ("case", "least"), [(("trsm-batched", 100, "float64"), 1.2), (("gemm-batched", 50, "float32"), 1.0)]
)
@pytest.mark.usefixtures("peers")
def test_targets(case: tuple[str, int, str], least: float) -> None:
    """Each row has the target of its operation and order."""
    assert case_of(*case).target == least


def test_a_search_goes_from_the_first_to_their_neighbours(peers: Any) -> None:
    """First are the default and another of each text; then what differs least from the best, each once."""
    searcher = peers.Searcher(
        LIMITS, HostCompiler(rodinia_machine.ComputingCupy(), OURS_S), peers.Catalog.load(), BATCH
    )
    space, first = searcher.opened(case_of("getrf-batched", 32, "float32"))
    assert (first[0], space.analytical) == (space.item.default, None)
    assert [dict(one)["exchange"] for one in first] == ["shuffle", "shared"]
    seen, best = list(first), space.item.default
    rng = random.Random(1)  # noqa: S311 - an order
    while more := searcher.more(space, [best], rng):
        differences = [len(set(dict(one).items()) ^ set(dict(best).items())) for one in more]
        assert differences == sorted(differences)
        seen += more
    assert len(seen) == len(set(seen)) == len(space.item.candidates)


@pytest.mark.parametrize(
    ("case", "count"),
    [
        (("potrf-batched", 4, "float32"), 256),
        (("getrf-batched", 96, "float64"), 1),
    ],
)
def test_sets_exceed_the_cache(peers: Any, case: tuple[str, int, str], count: int) -> None:
    """Small arrays are many sets, so that none is in the L2 when its turn comes; large ones are few."""
    kernel = peers.Catalog.load().kernel(case[0])
    workload = kernel.workload(case_of(*case).sizes, batch=10_000)
    plan = kernel.plan(workload, kernel.default(workload))
    made: list[int] = []

    class Counted:
        """Allocates nothing."""

        def __getattr__(self, name: str) -> Any:
            return lambda *_: made.append(1) if name == "empty" else None

    arrays_of_sets = peers.contest.__globals__["Sets"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(arrays_of_sets.restore.__globals__, "_drawn", lambda *_: None)
        sets = arrays_of_sets(Counted(), plan)
    assert sets.count == count
    assert len(made) == len(plan.buffers) * count
