"""``tuner.tune``: from kernels on arrays to results, on simulated devices."""

import json
import multiprocessing
import pickle
import re
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from cli_process import rows, tuner
from python_kernels import SIM, VADD, arrays, vadd

import tuner as package
from tuner import Result, tune
from tuner.devices import choice
from tuner.measurement.measurer import TrialMeasurer
from tuner.model.errors import DeviceUnavailableError, EmptySpaceError, InputError
from tuner.pool import opening
from tuner.python.tuning import option_words
from tuner.search import tuning as searching
from tuner.search.request import SearchRequest
from tuner.search.setup import MeasurementSetup, open_setup


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> Result:
    """One run for energy, stored."""
    database = tmp_path_factory.mktemp("run") / "tuner.db"
    return tune(vadd(), objective="energy", device=SIM, database=database, progress=False)


def test_the_answer_is_the_lowest_trial(result: Result) -> None:
    """The best configuration has the joules of its trial, with their uncertainty."""
    energies = {row.configuration["block_size_x"]: row.energy_j for row in result.trials}

    assert len(result.trials) == 3
    assert result.energy_j == min(filter(None, energies.values()))
    assert energies[result.best["block_size_x"]] == result.energy_j
    assert result.energy_uncertainty_j is not None
    assert result.time_s is not None
    assert result.modelled
    assert not result.interrupted
    assert result.flags() == f"-Dblock_size_x={result.best['block_size_x']}"


def test_trials_are_columns_for_pandas(result: Result) -> None:
    """Every column has a value for every trial."""
    columns = result.to_dict()

    assert {"number", "block_size_x", "status", "time_s", "energy_j"} <= columns.keys()
    assert {len(column) for column in columns.values()} == {3}
    assert columns["block_size_x"] == [row.configuration["block_size_x"] for row in result.trials]


def test_results_are_shown_saved_and_sent(result: Result, tmp_path: Path) -> None:
    """Text, HTML and JSON hold the answer and say that it is modelled; a copy through pickle is the same."""
    flag = result.flags()
    assert flag in str(result)
    assert "modelled" in str(result)
    assert flag.removeprefix("-D") in repr(result)
    assert result._repr_html_().startswith("<iframe srcdoc=")
    assert "<script" not in result._repr_html_()
    assert all(len(line) <= 60 for line in result.report(60).splitlines())
    result.save(tmp_path / "result.json")
    assert json.loads((tmp_path / "result.json").read_text()) == result.document
    assert pickle.loads(pickle.dumps(result)).best == result.best  # noqa: S301 - made here
    with pytest.raises(InputError, match="no/folder"):
        result.save(tmp_path / "no/folder/x.json")


def test_the_search_can_be_plotted(result: Result) -> None:
    """Time and joules of every trial, and what they are labelled."""
    pytest.importorskip("matplotlib")
    labels = [axes.get_ylabel() for axes in result.plot().axes]

    assert labels == ["time, ms (modelled)", "energy, mJ (modelled)"]


def test_a_run_is_stored_like_any(tmp_path: Path) -> None:
    """The command line shows it, and a second call finds it finished."""
    database = tmp_path / "tuner.db"
    result = tune(vadd(), device=SIM, database=database, progress=False)
    shown = tuner("show", str(result.run), "--database", database)

    assert shown.exit_code == 0, shown.stderr
    assert result.flags() in shown.stdout
    with pytest.raises(InputError, match="nothing to resume"):
        tune(vadd(), device=SIM, database=database, progress=False, resume=True)
    assert rows(database, "runs") == 1


def test_an_interrupted_run_returns_what_it_knows_and_resumes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C ends the search orderly; the same kernels go on from there."""
    measure, left = TrialMeasurer.measure, iter(range(2))

    def tired(self: TrialMeasurer, *given: Any) -> Any:
        if next(left, None) is None:
            raise KeyboardInterrupt
        return measure(self, *given)

    monkeypatch.setattr(TrialMeasurer, "measure", tired)
    words: dict[str, Any] = {"device": SIM, "database": tmp_path / "db", "progress": False}
    first = tune(vadd(), **words)
    monkeypatch.setattr(TrialMeasurer, "measure", measure)
    second = tune(vadd(), resume=True, **words)

    assert first.interrupted
    assert len(first.trials) == 2
    assert not second.interrupted
    assert second.document["resumed"] == 2
    assert len(second.trials) == 3


def test_kernels_are_tuned_together() -> None:
    """A kernel on arrays beside one of the catalogue."""
    found = tune([vadd(), "scan-lf:N=4"], device=SIM, budget=3, store=False, progress=False)

    assert found.workloads == ("vadd:n=4096", "scan-lf:N=4")
    assert found.run is None
    assert set(found.configurations) == set(found.workloads)
    assert "vadd:n=4096.block_size_x" in found.to_dict()
    with pytest.raises(InputError, match=r"2 workloads were tuned: use configurations\['vadd:n=4096'\]"):
        _ = found.best


def test_kernels_of_one_name_are_told_apart() -> None:
    """The same function twice, on other arrays."""
    small = {name: value if name == "n" else value[:64] for name, value in arrays().items()} | {"n": 64}
    found = tune([vadd(), vadd(arguments=small)], device=SIM, budget=2, store=False, progress=False)

    assert found.workloads == ("vadd:n=4096", "vadd-2:n=64")


def test_template_arguments_and_data_that_is_removed() -> None:
    """Tunables in braces are template arguments; files of arrays are gone when the call returns."""
    source = VADD.replace("__global__", "template <int P> __global__").replace("block_size_x", "P")
    kernel = vadd(source=source, name="vadd<{P}>", grid="ceil_div(n, P)", block="P", tunables=None)
    seen: list[Path] = []
    real = type(kernel).kernel_file

    def spy(self: Any, folder: Path, *args: Any) -> Any:
        seen.append(folder)
        return real(self, folder, *args)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(kernel), "kernel_file", spy)
        found = tune(kernel, {"P": [32, 64]}, device=SIM, store=False, progress=False)

    assert found.best.keys() == {"P"}
    assert seen
    assert not seen[0].exists()


def test_without_a_gpu_a_warning_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """Modelled numbers are not returned silently where nobody named a simulated device."""
    monkeypatch.setattr(choice, "driver_problem", lambda: "no NVIDIA driver (a test)")
    monkeypatch.setattr(choice, "nvidia_device_file", lambda: None)
    with pytest.warns(UserWarning, match="no GPU answers: sim:jetson-tx1 stood in.*modelled"):
        tune(vadd(), budget=1, store=False, progress=False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tune(vadd(), budget=1, store=False, progress=False, device=SIM)


class OpenedError(Exception):
    """A device was asked for."""


def test_the_gpu_that_arrays_are_on_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """Unless a device is named; kernels with arrays on several are refused."""

    def run(*_: Any, device: str | None, **__: Any) -> None:
        raise OpenedError(device)

    monkeypatch.setattr(searching, "run_request", run)
    first, second, host = vadd(), vadd(), vadd()
    first.gpu, second.gpu = 1, 0
    for kernel, named, taken in ((first, None, "cuda:1"), (first, SIM, SIM), (host, None, None)):
        with pytest.raises(OpenedError) as opened:
            tune(kernel, device=named, store=False, progress=False)
        assert opened.value.args == (taken,)
    with pytest.raises(InputError, match=r"are on several GPUs .*GPU 1.*GPU 0\); name the device"):
        tune([first, second], store=False, progress=False)


def test_threads_may_tune() -> None:
    """A call needs no main thread."""
    words: dict[str, Any] = {"device": SIM, "budget": 2, "store": False, "progress": False}
    with ThreadPoolExecutor(1) as pool:
        found = pool.submit(tune, vadd(), **words).result()

    assert len(found.trials) == 2


def test_kernel_files_are_tuned_by_name() -> None:
    """What a kernel file says, several launches too, is there in Python."""
    file = Path(__file__).parent.parent / "examples" / "vector-add" / "kernel.toml"
    words: dict[str, Any] = {"device": SIM, "budget": 2, "store": False, "progress": False}
    found = tune("vector-add:N=65536", kernel_files=[file], **words)

    assert found.best.keys() == {"block_size_x", "vector", "loads"}


def test_progress_goes_to_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    """Standard output is the caller's."""
    tune(vadd(), device=SIM, budget=2, store=False)
    out, err = capsys.readouterr()

    assert not out
    assert "first answer" in err


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ({"kernels": []}, "kernels: none is given"),
        ({"kernels": [3]}, "kernels: 3 is neither"),
        ({"kernels": None}, "kernels: None is neither"),
        ({"kernels": "scan-lf:N=4", "clocks": 900}, "clocks: must be text, not 900"),
        ({"kernels": ["scan-lf:N=4", "scan-lf:N=64"], "tunables": {"P": [1]}}, "give them to tuner.Kernel"),
        ({"kernels": "scan-lff:N=4"}, "did you mean 'scan-lf'"),
        ({"kernels": "scan-lf:N=4", "window": 1.0}, "unknown option 'window'; did you mean 'window_s'"),
        ({"kernels": "scan-lf:N=4", "objective": "joules"}, "objective"),
        ({"kernels": "scan-lf:N=4", "policy": "gredy"}, "greedy"),
    ],
)
def test_bad_calls_are_refused(words: dict[str, Any], says: str) -> None:
    """The message names the argument and what would be right."""
    with pytest.raises(InputError, match=says):
        tune(device=SIM, store=False, progress=False, **words)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ({"on": "foo"}, "on='foo': write local, local:N, dask://HOST:PORT or slurm"),
        ({"on": "local:2", "device": "cuda:0"}, "device='cuda:0': with on, each worker has its own GPU"),
        ({"on": "local", "device": "sim:h200"}, "on='local': write how many sim:h200 there are to be"),
        ({"on": "local:2", "allow_simulated": True}, "what is simulated by device='sim:NAME'"),
        ({"window_s": -1}, "window_s: -1: write a number from 0.01 to 600"),
        ({"policy": "greedy", "patience": 3}, "patience is no option of the policy greedy"),
    ],
)
def test_errors_speak_of_arguments(words: dict[str, Any], says: str) -> None:
    """Not of the options of the command line, which the caller has not written."""
    with pytest.raises(InputError, match=re.escape(says)) as caught:
        tune("scan-lf:N=64", store=False, progress=False, **words)
    assert "--" not in str(caught.value)


def test_commands_in_errors_stay_commands() -> None:
    """What stands between backticks is to be typed in a shell."""
    with pytest.raises(DeviceUnavailableError) as caught, option_words():
        raise DeviceUnavailableError(
            "choose --device sim:h200, or `tuner run --allow-simulated`; --max-slowdown"
        )
    assert str(caught.value) == "choose device='sim:h200', or `tuner run --allow-simulated`; max_slowdown"


def test_no_configuration_left_is_an_error() -> None:
    """A restriction that forbids everything is named."""
    with pytest.raises(EmptySpaceError, match="block_size_x < 0"):
        tune(vadd(), restrictions="block_size_x < 0", device=SIM, store=False, progress=False)


def test_the_package_stays_light() -> None:
    """The names are there without importing what they need."""
    assert {"Kernel", "Result", "tune"} <= set(package.__all__)


def test_the_example_of_the_documentation_runs(capsys: pytest.CaptureFixture[str]) -> None:
    """The page's vector addition is what it says: at most twelve lines beside those of CUDA."""
    page = (Path(__file__).parent.parent / "docs" / "python.md").read_text()
    code = page.split("```python\n", 1)[1].split("```", 1)[0]
    python = code.replace(code.split('"""')[1], "")
    lines = [line for line in python.splitlines() if line.strip()]
    quick = code.replace("10_000_000", "1000").replace("1024]})", f'1024]}}, device="{SIM}", store=False)')
    exec(compile(quick, "docs/python.md", "exec"), {})  # noqa: S102 - a page of this project

    assert len(lines) <= 12
    assert capsys.readouterr().out.startswith("{'block_size_x': ")


def test_trials_are_spread_over_a_pool(monkeypatch: pytest.MonkeyPatch) -> None:
    """``on`` opens a pool in the place of the device, and the GPU of arrays is not asked for."""
    asked = []

    @contextmanager
    def open_pool(
        on: str, device: str | None, request: SearchRequest, *_: object
    ) -> Iterator[MeasurementSetup]:
        asked.append((on, device))
        with open_setup(SIM, request) as setup:
            yield setup

    monkeypatch.setattr(opening, "open_pool", open_pool)
    tune(vadd(), device=SIM, on="local:2", store=False, progress=False)
    kernel = vadd()
    monkeypatch.setattr(kernel, "gpu", 1)
    with pytest.warns(UserWarning, match="modelled"):
        tune(kernel, on="local", store=False, progress=False)
    assert asked == [("local:2", SIM), ("local", None)]


def test_a_worker_that_imports_the_script_does_not_tune(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a guard, a script that a worker process imports is told what it needs."""
    monkeypatch.setattr(multiprocessing.current_process(), "_inheriting", True, raising=False)
    with pytest.raises(InputError, match=r"on='local:2': .* below `if __name__ == '__main__':`"):
        tune(vadd(), device=SIM, on="local:2", store=False, progress=False)
