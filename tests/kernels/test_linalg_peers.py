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
from fake_cublas_lt import FakeCublasLt
from fake_cuda import LIMITS
from fake_linalg_libraries import FakeLibrary
from numpy.typing import NDArray

LT = ["candidate 1", "candidate 2"]  # of those that cuBLASLt proposes


def strided(*layouts: str) -> list[str]:
    """Products by strides, and what cuBLASLt proposes, in each layout."""
    found = []
    for layout in layouts:
        found.append(f"cuBLAS gemmStridedBatched{layout and f', {layout}'}")
        found += [f"cuBLASLt matmul{layout and f', {layout}'}, {candidate}" for candidate in LT]
    return found


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
        *strided("", "A transposed", "B transposed", "both transposed"),
        "cuBLAS gemmStridedBatched, pedantic",
        "cuBLAS gemmBatched",
        "cuBLAS gemmGroupedBatched",
    ],
    "gemv-batched": [
        "cuBLAS gemvStridedBatched",
        "cuBLAS gemvStridedBatched, A transposed",
        "cuBLAS gemvBatched",
        *strided("one column", "one column, A transposed", "one row", "one row, A transposed"),
    ],
}
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
    lt = FakeCublasLt(library)
    contest, sets = peers.contest.__globals__, peers.contest.__globals__["Sets"].restore.__globals__
    monkeypatch.setattr(peers.probe, "open_cupy", lambda _: cp)
    monkeypatch.setattr(peers.probe, "gpu_limits", lambda *_: LIMITS)
    monkeypatch.setattr(peers, "Compiler", lambda _: HostCompiler(cp, OURS_S))
    monkeypatch.setattr(peers, "copy_bandwidth", lambda *_: 4000.0)
    monkeypatch.setattr(
        peers, "LinalgLibraries", lambda _: contest["LinalgLibraries"](cp, library, library, lt)
    )
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
    ("operation", "dtype"), list(zip(OPERATIONS, ["float32", "float64"] * 3, strict=True))
)
def test_all_forms_answer_right_and_are_timed(measured: Any, operation: str, dtype: str) -> None:
    """Libraries get their arguments in order, both answer right, and the ratio is that of their times."""
    (row,) = measured("--only", operation, "--dtype", dtype)["rows"]
    assert [one["name"] for one in row["peers_tried"]] == OPERATIONS[operation]
    assert all(one["correct"] and one["graph"] for one in row["peers_tried"]), row["peers_tried"]
    assert not row["wrong"]
    assert (row["sets"], row["batch"], row["correct"]) == (3, BATCH, True)
    assert (row["analytical"], row["no_analytical"]) == (None, "analytical = false")
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
        fake = FakeLibrary(cp, THEIRS_S)
        return FakeCublasLt(fake) if stem == "libcublasLt" else fake

    libraries = peers.LinalgLibraries
    monkeypatch.setitem(libraries.__init__.__globals__, "VendorLibrary", library)
    assert libraries(cp).missing == {"cuSOLVER": "libcusolver was not found"}
    assert opened == ["libcublas", "libcublasLt", "libcusolver"]


@on_host
def test_wrong_answers_of_a_library_win_nothing(measured: Any) -> None:
    """A library that answers wrong is no peer, and no target is met against it."""

    def off(answer: NDArray[Any]) -> NDArray[Any]:
        return 1.01 * answer

    (row,) = measured("--only", "gemm-batched", "--dtype", "float64", computed=off)["rows"]
    assert not any(one["correct"] for one in row["peers_tried"])
    assert row["peer"] is None
    assert row["met"] is None
    assert "ratio" not in row["best"]


@on_host
def test_calls_that_cannot_be_captured_are_timed_as_they_are(measured: Any) -> None:
    """A library that refuses to be captured is called set by set."""
    (row,) = measured("--only", "gemv-batched", "--dtype", "float32", _captured=False)["rows"]
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
    found = measured("--only", "gemv-batched", "gemm-batched", "--dtype", "float32", code=130)
    assert [one["why"] for one in found["failed"]] == ["ValueError: no such form"]
    assert "interrupted" in capsys.readouterr().err


def test_rows_that_do_not_fit_the_time_are_named(measured: Any) -> None:
    """What was left out is in the JSON."""
    found = measured("--only", "gemv-batched", "--limit", "1e-9")
    assert found["left_out"] == [
        {"operation": "gemv-batched", "n": N, "dtype": dtype} for dtype in ("float32", "float64")
    ]
    assert found["rows"] == []


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--only", "potrf"], "invalid choice: 'potrf'"),
        (["--n", "129"], "'129' is no order; orders are 1 to 128"),
        (["--n", "0"], "'0' is no order"),
        (["--batch", "-1"], "'-1' is no batch"),
        (["--budget", "0"], "'0' are no seconds; they must be above 0"),
        (["--limit", "nan"], "'nan' are no seconds"),
        (["--dtype", "float16"], "invalid choice: 'float16'"),
    ],
)
def test_wrong_options_are_refused(
    peers: Any, capsys: pytest.CaptureFixture[str], words: list[str], told: str
) -> None:
    """The message names the value and what would be right."""
    with pytest.raises(SystemExit) as end:
        peers.parsed(words)
    assert end.value.code == 2
    assert told in capsys.readouterr().err


@pytest.mark.parametrize(
    ("case", "least", "aim"),
    [
        (("potrf-batched", 64, "float32"), 3.5, 5.0),
        (("getrf-batched", 96, "float32"), 1.5, 2.5),
        (("geqrf-batched", 128, "float64"), 4.0, None),
        (("trsm-batched", 4, "float64"), 2.3, None),
        (("gemm-batched", 16, "float32"), 2.9, 1.0),
        (("gemm-batched", 32, "float32"), 1.15, 1.0),
        (("gemm-batched", 128, "float32"), 0.95, 1.0),
        (("gemm-batched", 32, "float64"), None, 1.0),
        (("gemv-batched", 16, "float64"), 1.5, None),
        (("gemv-batched", 128, "float64"), 1.0, None),
    ],
)
@pytest.mark.usefixtures("peers")
def test_targets(case: tuple[str, int, str], least: float | None, aim: float | None) -> None:
    """Each row has the target of its operation, order and type; what is only reported is never met."""
    target = case_of(*case).target
    assert (target.least, target.aim) == (least, aim)
    assert target.met(0.0) is (None if least is None else False)
    assert target.met(9.0) is (None if least is None else True)


def test_a_search_goes_from_the_first_to_their_neighbours(peers: Any) -> None:
    """The default comes first; then what differs least from the best, each once."""
    searcher = peers.Searcher(
        LIMITS, HostCompiler(rodinia_machine.ComputingCupy(), OURS_S), peers.Catalog.load(), BATCH
    )
    space, first = searcher.opened(case_of("gemv-batched", 32, "float32"))
    assert (first, space.analytical) == ([space.item.default], None)
    seen, best = list(first), space.item.default
    rng = random.Random(1)  # noqa: S311 - an order
    while more := searcher.more(space, [best], rng):
        differences = [len(set(dict(one).items()) ^ set(dict(best).items())) for one in more]
        assert differences == sorted(differences)
        seen += more
    assert len(seen) == len(set(seen)) == len(space.item.candidates)


@pytest.fixture(scope="module")
def show(peers: Any) -> Any:
    return peers


def row_of(n: int, us: float | None, own_us: float) -> dict[str, Any]:
    """A row as the script writes it."""
    own: dict[str, Any] = {"us": own_us, "spread_us": 0.1, "roofline": 0.5, "error": 0.2}
    own["configuration"] = {"rows": 1, "storage": "half"}
    peer = None
    if us is not None:
        peer = {"us": us, "spread_us": 0.3, "name": "cuSOLVER potrfBatched", "form": "upper"}
        peer |= {"error": 0.4, "graph": False}
        own["ratio"] = {"median": us / own_us, "low": 2.9, "high": 3.1}
        own["ratio_same_layout"] = {"median": 3.5, "low": 3.4, "high": 3.6}
    row = {"operation": "potrf-batched", "dtype": "float32", "n": n, "peer": peer, "least": 3.5}
    met = None if us is None else us / own_us >= 3.5
    return {**row, "default": own, "analytical": None, "best": own, "met": met}


def document_of(*rows: dict[str, Any]) -> dict[str, Any]:
    gpu = {"name": "A GPU", "driver_version": "580.1"}
    origin = {"provenance": {"gpus": [gpu], "date": "2026-11-23T10:00:00+00:00"}, "copy_gb_s": 4000.4}
    return {**origin, "libraries": {"cuSOLVER": "12000"}, "rows": list(rows)}


def test_the_tables_say_what_was_measured(show: Any, tmp_path: Path) -> None:
    """Rows are sorted, later files count, and the page keeps what stands around the tables."""
    page, first, second = (tmp_path / name for name in ("page.md", "1.json", "2.json"))
    page.write_text(f"before\n{show.BEGIN}old\n{show.END}after\n")
    first.write_text(json.dumps(document_of(row_of(64, 90.0, 30.0), row_of(4, 1.0, 1.0))))
    second.write_text(json.dumps(document_of(row_of(4, 8.0, 2.0), row_of(8, None, 5.0))))
    assert show.main(["--show", str(first), str(second), "--docs", str(page)]) == 0
    text = page.read_text()
    assert text.startswith(
        f"before\n{show.BEGIN}\n### A GPU\n\nA GPU, driver 580.1, cuSOLVER 12000, 2026-11-23;"
    )
    assert text.endswith(f"{show.END}after\n")
    assert "1 of 2 targets are met." in text
    assert "**potrf-batched, float32**, target ≥ 3.5 × at n = 4, 8, 64" in text
    rows = [line for line in text.splitlines() if line.startswith(("| 4 ", "| 8 ", "| 64 "))]
    assert [line.split(" | ")[0] for line in rows] == ["| 4", "| 8", "| 64"]
    assert "cuSOLVER potrfBatched, upper, no graph | 8.0 ± 0.3 | 2.0 ± 0.1 | – | 2.0 ± 0.1" in rows[0]
    assert "4.00 (2.90–3.10) | 3.50 | 50 % | 0.2, 0.4 | rows=1, storage=half | yes |" in rows[0]
    assert rows[1].startswith("| 8 | – | – | 5.0 ± 0.1 |")
    assert rows[2].endswith("**no** |")


def test_each_gpu_has_its_tables(show: Any) -> None:
    """Rows of one GPU neither replace nor join those of another."""
    other = document_of(row_of(4, 8.0, 2.0))
    other["provenance"] = {"gpus": [{"name": "Another", "driver_version": "1"}], "date": "2026-11-26"}
    text = show.tables([document_of(row_of(4, 1.0, 1.0)), other, document_of(row_of(8, 8.0, 2.0))])
    first, second = text.split("### Another")
    assert first.count("| 4 |") == first.count("| 8 |") == second.count("| 4 |") == 1
    assert "1 of 2 targets are met." in first
    assert "1 of 1 targets are met." in second


def test_a_page_without_a_place_is_refused(
    show: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing is written to a page that lacks the lines; without rows the tables say so."""
    page, results = tmp_path / "page.md", tmp_path / "rows.json"
    page.write_text("nothing\n")
    results.write_text(json.dumps(document_of()))
    assert show.main(["--show", str(results), "--docs", str(page)]) == 2
    assert page.read_text() == "nothing\n"
    told = capsys.readouterr()
    assert "Not measured yet." in told.out
    assert "needs the lines <!-- linalg peers --> and" in told.err


def test_the_page_shows_the_stored_results(show: Any) -> None:
    """The brief tables of the page are those of the files, or it says that there are none."""
    stored = sorted((ROOT / "benchmarks" / "results").glob("linalg-peers-*.json"))
    text = show.brief([json.loads(path.read_text()) for path in stored])
    assert text.join(show.BRIEF) in (ROOT / "docs/lab/kernels/linear-algebra.md").read_text()


def test_a_brief_table_has_the_weakest_order(show: Any, tmp_path: Path) -> None:
    """The least ratio counts, beside the largest one and what was missed; unmeasured orders do not."""
    page, results = tmp_path / "page.md", tmp_path / "rows.json"
    page.write_text("old".join(show.BRIEF))
    rows = (row_of(64, 90.0, 30.0), row_of(4, 8.0, 2.0), row_of(8, None, 5.0))
    results.write_text(json.dumps(document_of(*rows)))
    assert show.main(["--show", str(results), "--brief", "--docs", str(page)]) == 0
    told = "90.0 ± 0.3 | 30.0 ± 0.1 | 3.00 (2.90–3.10) | 50 % | 4.00 (n = 4) | 64 |\n"
    begin = "| potrf-batched, float32 | 64 | cuSOLVER potrfBatched, upper, no graph | "
    assert page.read_text().count(begin + told) == 1
    assert show.brief([document_of()]).count("| ---") == 9
    assert show.brief([]) == show.UNMEASURED


@pytest.mark.parametrize(
    ("case", "count"),
    [
        (("potrf-batched", 4, "float32"), 256),
        (("gemv-batched", 4, "float32"), 209),
        (("trsm-batched", 32, "float64"), 4),
        (("getrf-batched", 96, "float64"), 1),
        (("gemv-batched", 128, "float64"), 4),
        (("gemm-batched", 128, "float64"), 1),
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
