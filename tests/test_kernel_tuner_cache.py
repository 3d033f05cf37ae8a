"""Cache files of ``tune_kernel``: what is taken of one, what is measured again, and who may write it."""

import json
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from tuner.cli.main import main
from tuner.kernel_tuner import tune_kernel
from tuner.kernel_tuner.trial_results import CacheFile, Row, Wanted, aim_of, read_cache
from tuner.model.errors import InputError

N = 4096
SOURCE = """
__global__ void scale(float *y, const float *x, int n) {
    int i = blockIdx.x * block_size_x + threadIdx.x;
    if (i < n) { y[i] = 2 * x[i]; }
}
"""
GIVEN: dict[str, Any] = {
    "kernel_name": "scale",
    "kernel_source": SOURCE,
    "problem_size": N,
    "arguments": [np.zeros(N, np.float32), np.ones(N, np.float32), np.int32(N)],
    "tune_params": {"block_size_x": [64, 128]},
    "device": "sim:h200",
    "quiet": True,
}


@pytest.fixture(autouse=True)
def _own_database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The text of a cache file of a whole space, tuned for time."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        path = tmp_path_factory.mktemp("cache") / "k.json"
        with warnings.catch_warnings(action="error"):
            tune_kernel(**GIVEN, cache=path)
        return path.read_text()


@pytest.fixture
def cache(tmp_path: Path, made: str) -> Path:
    """A copy of it."""
    path = tmp_path / "k.json"
    path.write_text(made)
    return path


def changed(path: Path, change: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
    """Change a file as another program would; returns what it holds."""
    found = read_cache(path)
    change(found)
    path.write_text(json.dumps(found))
    return found


def as_kernel_tuner_reads(text: str) -> dict[str, Any]:
    """Read a cache file in the way of Kernel Tuner 1.x (``util.read_cache``)."""
    text = text.strip()
    if not text.endswith("}\n}"):
        text = text.removesuffix(",") + "}\n}"
    return dict(json.loads(text))


@pytest.mark.parametrize(
    ("argument", "value"),
    [
        ("kernel_source", SOURCE.replace("2 *", "3 *")),
        ("arguments", [np.zeros(N, np.float64), np.ones(N, np.float32), np.int32(N)]),
        ("arguments", [np.zeros(2 * N, np.float32), np.ones(N, np.float32), np.int32(N)]),
        ("arguments", [np.zeros(N, np.float32), np.ones(N, np.float32), np.int32(N - 1)]),
        ("grid_div_x", ["block_size_x * 2"]),
        ("defines", {"block_size_x": 64}),
        ("compiler_options", ["-DX=1"]),
        ("smem_args", {"size": 1024}),
        ("block_size_names", ["b"]),
        ("answer", [2 * np.ones(N, np.float32), None, None]),
    ],
    ids=lambda one: one if isinstance(one, str) and "\n" not in one else "",
)
@pytest.mark.filterwarnings("ignore:.*arguments")
def test_results_of_another_call_are_refused(cache: Path, argument: str, value: object) -> None:
    """What decides a time is held against the file's, and the message names the argument."""
    before = cache.read_text()
    with pytest.raises(InputError, match=rf"cache: .* made with other .*{argument}.* name another file"):
        tune_kernel(**GIVEN | {argument: value}, cache=cache)
    assert cache.read_text() == before


def test_what_chooses_only_is_no_other_call(cache: Path, made: str) -> None:
    """Restrictions and values may change; of the file only what they allow counts, and the rest stays."""
    results, env = tune_kernel(
        **GIVEN | {"tune_params": {"block_size_x": [128, 256]}},
        restrictions=["block_size_x != 64"],
        cache=cache,
    )
    assert sorted(one["block_size_x"] for one in results) == [128, 256]
    assert env["best_config"]["block_size_x"] in (128, 256)
    stored = read_cache(cache)["cache"]
    assert set(stored) == {"64", "128", "256"}
    assert stored["64"] == json.loads(made)["cache"]["64"]
    assert "tuner" not in results[0]


def test_what_a_run_needs_is_measured_where_the_file_lacks_it(cache: Path) -> None:
    """Times are no joules: they are measured again for energy, and for a metric of it."""
    for more in (
        {"objective": "energy"},
        {"metrics": {"J": "energy"}, "objective": "J", "objective_higher_is_better": False},
    ):
        changed(cache, lambda found: [one.pop("energy", None) for one in found["cache"].values()])
        with pytest.warns(UserWarning, match="2 results lack what .* they are measured again"):
            _, env = tune_kernel(**GIVEN, **more, cache=cache)
        assert env["best_config"]["energy"] > 0
    with warnings.catch_warnings(action="error"):
        results, _ = tune_kernel(**GIVEN, metrics={"twice": "2 * time"}, cache=cache)
    assert all(one["twice"] == 2 * one["time"] for one in results), "metrics are computed of what is known"


@pytest.mark.parametrize("wrong", [0.0, 0, -1, float("nan"), float("inf"), None, "soon", [1], True])
def test_one_bad_entry_is_named_and_measured_again(cache: Path, wrong: object) -> None:
    """No time that cannot be is the best, and the other results are used."""
    found = changed(cache, lambda one: one["cache"]["64"].update(time=wrong, times=None))
    with pytest.warns(UserWarning, match=r"cache\['64'\].*not used, and measured again"):
        results, env = tune_kernel(**GIVEN, cache=cache)
    assert all(one["time"] > 0 for one in results)
    assert env["best_config"]["time"] > 0
    assert results[1]["time"] == found["cache"]["128"]["time"]
    assert read_cache(cache)["cache"]["64"]["time"] > 0


@pytest.mark.parametrize("entry", [3, None, {}, {"block_size_x": 128, "time": 1.0}, {"time": 1.0}], ids=str)
def test_what_is_no_entry_is_named(cache: Path, entry: object) -> None:
    """Of another key, without its values, or no object at all."""
    changed(cache, lambda found: found["cache"].update({"64": entry}))
    with pytest.warns(UserWarning, match=r"cache\['64'\]"):
        results, _ = tune_kernel(**GIVEN, cache=cache)
    assert [one["block_size_x"] for one in results] == [64, 128]


def test_the_mean_of_its_times_is_the_time_of_an_entry(cache: Path) -> None:
    """An entry without it is as good as one with it; one with a failure has failed, whatever else it has."""
    changed(cache, lambda found: found["cache"]["64"].update(time=None, times=[1.0, 2.0]))
    changed(cache, lambda found: found["cache"]["128"].update(why="RuntimeFailedConfig"))
    results, env = tune_kernel(**GIVEN, cache=cache)
    assert results[0]["time"] == pytest.approx(1.5)
    assert results[1]["__error__"] == "RuntimeFailedConfig"
    assert env["best_config"]["block_size_x"] == 64


def test_a_metric_that_is_no_number_refuses_nothing(cache: Path, tmp_path: Path) -> None:
    """Python writes NaN; neither going on from the file nor its import stumbles over it."""
    changed(cache, lambda found: [one.update(m=float("nan")) for one in found["cache"].values()])
    results, _ = tune_kernel(**GIVEN, cache=cache)
    assert len(results) == 2
    changed(cache, lambda found: found["cache"]["64"].update(time=0.0, times=None))
    done = CliRunner().invoke(main, ["import", str(cache), "--output", str(tmp_path / "k.zip")])
    assert done.exit_code == 0, done.output
    assert "1 trials" in done.output
    assert "left out: cache['64']: time is 0.0" in done.output


def test_a_file_of_kernel_tuner_is_taken_with_what_is_not_known_of_it(cache: Path) -> None:
    """It says nothing of source, types or options, as do files of earlier versions: each call tells."""

    def foreign(found: dict[str, Any]) -> None:
        del found["tuner"]
        for one in found["cache"].values():
            del one["tuner"]

    before = changed(cache, foreign)["cache"]
    for _ in range(2):
        with pytest.warns(
            UserWarning, match="2 results do not say what they were made with .kernel_source, "
        ):
            results, _ = tune_kernel(**GIVEN, cache=cache)
        assert [one["time"] for one in results] == [one["time"] for one in before.values()]
        assert read_cache(cache)["cache"] == before


def test_kernel_tuner_reads_the_file_open_or_closed(cache: Path, made: str) -> None:
    """The results are the last key, as it writes on behind them; what is ours are further keys."""
    closed = as_kernel_tuner_reads(made)
    assert list(closed)[-1] == "cache"
    assert list(closed)[:6] == [
        *("device_name", "kernel_name", "problem_size", "tune_params_keys", "tune_params", "objective")
    ]
    file = cache_file(cache, closed)
    file.begin()
    file.add({"block_size_x": 256, "time": 1.0})
    assert list(as_kernel_tuner_reads(cache.read_text())["cache"]) == ["64", "128", "256"]


def cache_file(path: Path, header: dict[str, Any]) -> CacheFile:
    """A file of a call as ``open_cache`` makes it."""
    wanted = Wanted(header["tuner"], aim_of("time", None, None, None), None, lambda _: True)
    return CacheFile(path, {k: v for k, v in header.items() if k not in ("tuner", "cache")}, wanted)


@pytest.mark.parametrize("closes", [(False, False), (True, False), (True, True)])
def test_two_processes_may_write_one_new_file(tmp_path: Path, made: str, closes: tuple[bool, bool]) -> None:
    """Every result of both is in it, whoever begins, ends or is killed first."""
    path, header = tmp_path / "new.json", json.loads(made)

    def write(first: int, *, close: bool) -> None:
        file = cache_file(path, header)
        file.begin()
        rows: list[Row] = [{"block_size_x": value, "time": 0.5 + value} for value in range(first, 28, 2)]
        for row in rows:
            file.add(row)
        if close:
            file.close([row | {"time": 9.0} for row in rows])

    with ThreadPoolExecutor(2) as pool:
        for done in [pool.submit(write, place, close=close) for place, close in enumerate(closes)]:
            done.result()
    found = as_kernel_tuner_reads(path.read_text())["cache"]
    assert set(found) == set(map(str, range(28)))
    for place, close in enumerate(closes):
        assert {found[str(value)]["time"] == 9.0 for value in range(place, 28, 2)} == {close}
    assert [one.name for one in tmp_path.iterdir() if "json" in one.name] == ["new.json"]


def test_a_line_that_a_killed_process_has_begun_is_dropped(cache: Path, made: str) -> None:
    """What another process adds then is whole."""
    file = cache_file(cache, json.loads(made))
    file.begin()
    with cache.open("a") as other:
        other.write('\n"32": {"block_size_x": 3')
    file.add({"block_size_x": 256, "time": 1.0})
    assert set(as_kernel_tuner_reads(cache.read_text())["cache"]) == {"64", "128", "256"}
