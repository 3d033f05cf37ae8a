"""``tuner gate``: what is held against what, the verdicts and how sure they are, and a pipeline with it."""

import json
import math
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import numpy as np
import pytest
import yaml
from benchmark_scripts import benchmark
from cli_process import COMMAND, document, tuner

from tuner.cli.main import main
from tuner.database.answer_lock import AnswerLock, LockedAnswer, LockedWorkload, Quantity, written
from tuner.database.runs import Store
from tuner.devices.gpu_users import VARIABLE
from tuner.devices.simulated.device import SimulatedDevice
from tuner.kernel_files.catalog import load_kernel_file
from tuner.measurement.paired import NO_WORSE, SURE, UNDECIDED, WORSE, anytime_ratio, decided
from tuner.model.errors import DeviceError
from tuner.model.objective import Objective
from tuner.model.trial import Energy, Flag, Measurement, Status, WorkloadResult
from tuner.search.gate import compared, locked_sets, pinned_of_lock
from tuner.system.ownership import identity_of

ROOT = Path(__file__).parent.parent
EXAMPLE = ROOT / "examples" / "vector-add"
DEVICE = ("--device", "sim:h200")
SIZE = 2**26
FILE = "kernels/add.toml"


def measured(time_s: float, joules: float | None = None, status: Status = Status.OK) -> Measurement:
    energy = None if joules is None else Energy(joules, 0.0, 1.0, "played", "gpu")
    return Measurement((WorkloadResult(status, time_s, detail="why"),), time_s, energy=energy)


# --- The interval.


@pytest.mark.parametrize("scatter", [1e-4, 0.01, 0.2])
def test_the_interval_holds_at_all_looks_together(scatter: float) -> None:
    """Of 300 runs of ten looks not more than a hundredth ever rules out the truth, however they scatter."""
    generator, missed = np.random.default_rng(52), 0
    for _ in range(300):
        costs = np.exp(generator.normal(0.0, scatter, (80, 2)))
        turns = [(measured(old), measured(1.03 * new)) for old, new in costs.tolist()]
        looks = [anytime_ratio(turns[:count], Objective("time")) for count in range(8, 81, 8)]
        missed += any(abs(look.value / 1.03 - 1) > look.turns_interval for look in looks if look is not None)

    assert missed <= 300 * SURE


def test_a_steady_drift_cancels() -> None:
    """There and back meet the same drift; fewer than four values tell nothing."""
    times = [math.exp(0.01 * number) for number in range(32)]
    turns = [
        (measured(times[i]), measured(1.02 * times[i + 1]))
        if i % 4 == 0
        else (measured(times[i + 1]), measured(1.02 * times[i]))
        for i in range(0, 32, 2)
    ]
    drifting = anytime_ratio(turns, Objective("time"))

    assert drifting is not None
    assert drifting.value == pytest.approx(1.02)
    assert drifting.turns_interval < 1e-9
    few = anytime_ratio(turns[:6], Objective("time"))
    assert few is not None
    assert few.interval == math.inf
    assert anytime_ratio(turns[:1], Objective("time")) is None
    assert anytime_ratio(turns, Objective("energy")) is None


# --- The decision.

GATE = benchmark("gate_verdicts")


@pytest.mark.parametrize("noise", GATE.CASES)
@pytest.mark.parametrize(
    ("effect", "right"), [(0.0, NO_WORSE), (0.01, NO_WORSE), (0.05, WORSE), (0.1, WORSE)]
)
def test_planted_regressions_are_found(noise: str, effect: float, right: str) -> None:
    """Below the margin nothing is worse, above it everything, within the time limit."""
    shares = GATE.row(noise, effect, 6)

    assert shares[right.replace(" ", "_")] == 1.0
    assert shares["longest_s"] <= GATE.LIMIT_S


def test_the_published_shares_are_within_the_targets() -> None:
    """500 runs: false alarms at most 1 %, found 99 % and more, undecided 5 % at most, within 60 s."""
    stored = json.loads((ROOT / "benchmarks" / "results" / "gate-verdicts.json").read_text())
    assert stored["runs"] == 500
    assert {(row["noise"], row["effect"]) for row in stored["rows"]} == {
        (noise, effect) for noise in GATE.CASES for effect in GATE.EFFECTS
    }
    for row in stored["rows"]:
        assert row["longest_s"] <= 60.0
        if row["effect"] <= 0.01:
            assert row["worse"] <= 0.01
        if row["effect"] >= 0.05:
            assert row["worse"] >= 0.99
        if row["effect"] != GATE.MARGIN:
            assert row["undecided"] <= 0.05


def played(new: Callable[[int], Measurement], old: Measurement, margins: Mapping[str, float]) -> Any:
    """A comparison with a second for each window, and the order that it measured in."""
    order: list[bool] = []

    def measure(is_new: bool) -> Measurement:
        order.append(is_new)
        return new(len(order)) if is_new else old

    return compared(measure, margins, lambda: float(len(order)), 60.0), order


def test_sides_take_turns_there_and_back() -> None:
    """Two that do not count, then old, new, new, old as often as it takes."""
    gated, order = played(lambda _: measured(1.01), measured(1.0), {"time": 0.03})

    assert (gated.verdict, gated.turns, gated.device_s) == (NO_WORSE, 8, 18.0)
    assert order == [False, True] + 4 * [False, True, True, False]


@pytest.mark.parametrize(
    ("old", "new", "verdict", "says"),
    [
        (measured(1.0), measured(1.0, status=Status.WRONG_ANSWER), WORSE, "the new one does not run: wrong"),
        (measured(1.0, status=Status.TIMEOUT), measured(1.0), NO_WORSE, "the old one does not run here"),
        (*2 * [measured(1.0, status=Status.LAUNCH_ERROR)], UNDECIDED, "neither side runs here: launch-error"),
        (measured(1.0), measured(1.0), UNDECIDED, "energy at the margin, or too unsure"),
        (measured(1.0, 1.0), measured(1.1, 1.0), WORSE, "time beyond the margin"),
        (measured(1.0, 1.0), measured(1.0, 1.2), WORSE, "energy beyond the margin"),
        (measured(1.0, 1.0), measured(0.5, 0.5), NO_WORSE, "energy within the margin"),
        (measured(1.0, 1.0), measured(1.03, 1.03), UNDECIDED, "time and energy at the margin"),
        (measured(1.0, 1.0), measured(1.03, 1.0), UNDECIDED, "time at the margin"),
    ],
)
def test_every_cost_has_its_margin(old: Measurement, new: Measurement, verdict: str, says: str) -> None:
    """The worst cost decides; a side that fails is told, and no joules are no verdict."""
    gated, order = played(lambda _: new, old, {"time": 0.03, "energy": 0.03})

    assert (gated.verdict, says in gated.why) == (verdict, True), gated.why
    assert len(order) <= 60


def test_it_says_when_a_runner_is_too_noisy() -> None:
    """Within the time limit; what spoilt windows is told with their number."""
    generator = np.random.default_rng(3)
    flag = Flag.parse("throttled: sw-thermal-slowdown")
    noisy = measured(1.0)
    gated, order = played(
        lambda _: replace(noisy, makespan_s=float(generator.uniform(0.5, 2.0)), flags=(flag,)),
        noisy,
        {"time": 0.03},
    )

    assert (gated.verdict, len(order)) == (UNDECIDED, 58)
    assert gated.why == "time at the margin, or too unsure within the time limit"
    assert gated.notes == ("throttled in 28 of 56 windows: sw-thermal-slowdown",)


@pytest.mark.parametrize(("fails", "verdict"), [("old", UNDECIDED), ("new", WORSE)])
def test_a_side_that_ran_and_fails_later_decides_nothing_for_the_other(fails: str, verdict: str) -> None:
    """An old one that does not run any more proves nothing of the new one."""
    windows = iter([*6 * [measured(1.0)], *6 * [measured(1.0, status=Status.TIMEOUT)]])

    def measure(is_new: bool) -> Measurement:
        return next(windows) if is_new == (fails == "new") else measured(1.0)

    gated = compared(measure, {"time": 0.03}, iter(range(99)).__next__, 60.0)
    assert (gated.verdict, gated.why) == (
        verdict,
        f"the {fails} one does not run{' here' * (fails == 'old')}: timeout: why",
    )


@pytest.mark.parametrize(
    ("change", "interval", "verdict"),
    [(0.04, 0.005, WORSE), (0.02, 0.005, NO_WORSE), (0.03, 0.001, UNDECIDED), (0.0, math.inf, UNDECIDED)],
)
def test_the_interval_is_on_one_side_of_the_margin(change: float, interval: float, verdict: str) -> None:
    """Else it is undecided."""
    assert decided(change, interval, 0.03) == verdict


# --- What is held against what.


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with a kernel that was committed, and a lock file of it; the user stands in it."""
    folder = tmp_path / "repository"
    (folder / "kernels").mkdir(parents=True)
    for file, name in (("kernel.toml", "add.toml"), ("vector_add.cu", "vector_add.cu")):
        (folder / "kernels" / name).write_text((EXAMPLE / file).read_text())
    lock(folder, vector=4)
    for name in ("GIT_DIR", "GIT_INDEX_FILE", "GIT_WORK_TREE"):
        monkeypatch.delenv(name, raising=False)
    for name in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{name}_NAME", "a")
        monkeypatch.setenv(f"GIT_{name}_EMAIL", "a@b.c")
    monkeypatch.chdir(folder)
    git("init", "--quiet", "--initial-branch=main", ".")
    commit()
    return folder


def git(*words: str) -> None:
    subprocess.run(["git", *words], check=True, capture_output=True)


def commit() -> None:
    git("add", ".")
    git("commit", "--quiet", "--message=one")


def lock(folder: Path, **values: int) -> None:
    """Write a lock file with a configuration of the kernel that is in a folder."""
    kernel = load_kernel_file(folder / FILE)
    workload = kernel.workload({"N": SIZE})
    configuration = {**kernel.default(workload), **values}
    part = LockedWorkload(str(workload), workload.batch, kernel.fingerprint, configuration)
    gpu, driver = "NVIDIA H200 (modelled)", "model-3"
    answer = LockedAnswer((part,), gpu, driver, "time", Quantity(1e-4), "2026-11-29", "0.2.0", modelled=True)
    (folder / "tuner.lock").write_text(written([answer]))


def make_slower(folder: Path, factor: float = 1.1) -> None:
    """Change the kernel so that the model says it moves more bytes."""
    file = folder / FILE
    if factor != 1.0:
        file.write_text(file.read_text().replace('bytes = "12 * N"', f'bytes = "{12 * factor} * N"'))


def parsed(path: str | Path) -> ET.Element:
    return ET.parse(path).getroot()  # noqa: S314 - just written


def verdicts(*words: str | Path, code: int | None = None) -> Any:
    """The document that the command writes, and its exit code held against the verdict."""
    result = tuner("gate", *words, *DEVICE, "--json", "-")
    assert result.stdout, result.stderr
    found = json.loads(result.stdout)
    expected = {NO_WORSE: 0, WORSE: 1, UNDECIDED: 3}[found["verdict"]]
    assert result.exit_code == (expected if code is None else code), result.stderr
    return found


@pytest.mark.parametrize("base", ["main", "../copy"])
def test_files_before_a_change_are_those_of_the_base(base: str, here: Path) -> None:
    """A revision of git or a folder; nothing is measured where nothing has changed, new kernels pass."""
    git("clone", "--quiet", ".", "../copy")
    assert verdicts(FILE, "--base", base)["workloads"][0]["verdict"] == "unchanged"

    make_slower(here)
    (changed,) = verdicts(FILE, "--base", base, "--energy", "3%")["workloads"]
    assert (changed["verdict"], changed["workload"]) == (WORSE, f"add:N={SIZE}")
    energy = next(cost for cost in changed["costs"] if cost["objective"] == "energy")
    assert energy["change"] == pytest.approx(0.06, abs=0.03)

    (here / FILE).rename(here / "kernels" / "other.toml")
    assert verdicts("kernels/other.toml", "--base", base)["workloads"][0]["verdict"] == "new"


def test_a_lock_file_pins_both_sides(here: Path) -> None:
    """What it pinned before against what it pins now; without a base, by the commit that wrote it."""
    make_slower(here)
    assert verdicts("--against", "tuner.lock", "--kernel", FILE)["verdict"] == WORSE
    (served,) = verdicts("--against", "tuner.lock", "--base", "main", FILE)["workloads"]
    assert (served["verdict"], served["costs"][0]["change"] > 0.5) == (WORSE, True)
    assert "serves nothing until `tuner lock`: defaults" in served["notes"][1]

    git("checkout", "--quiet", ".")
    lock(here, vector=1)
    (slower,) = verdicts("--against", "tuner.lock", "--base", "main", FILE)["workloads"]
    assert slower["costs"][0]["change"] > 0.3
    lock(here, vector=4)
    git("rm", "--quiet", "--cached", "tuner.lock")
    git("commit", "--quiet", "--message=two")
    (faster,) = verdicts("--against", "tuner.lock", "--base", "main", FILE)["workloads"]
    assert faster["costs"][0]["change"] < -0.3  # than the default, as nothing was pinned


def test_each_batch_of_a_lock_file_is_held_against_its_own() -> None:
    """Of a batch that was not locked before, against that of another one."""
    identity = SimulatedDevice("h200").identity
    part = LockedWorkload("add:N=64", 1, "key", {"vector": 1})
    rest = ("model-3", "time", Quantity(1e-4), "2026-11-29", "0.2.0")
    now, then = (
        AnswerLock(
            Path("tuner.lock"),
            tuple(
                LockedAnswer(
                    (replace(part, batch=batch, configuration={"vector": v}),),
                    identity.name,
                    *rest,
                    modelled=True,
                )
                for batch, v in batches.items()
            ),
        )
        for batches in ({1: 1, 8: 2, 9: 4}, {8: 3, 1: 5})
    )
    sets = locked_sets((now, then), ["add"], identity)
    assert sets == [(f"add:N=64,batch={batch}",) for batch in (1, 8, 9)]
    assert locked_sets((now, then), ["add:N=64,batch=8"], identity) == sets[1:2]
    pinned = [[pinned_of_lock(one, specs, identity, "time") for one in (now, then)] for specs in sets]
    values = [[one and one.configurations["add:N=64"]["vector"] for one in pair] for pair in pinned]
    assert values == [[1, 5], [2, 3], [4, 3]]


def test_a_run_keeps_what_it_measured(here: Path) -> None:
    """Its files and its answer, from a document or a database; changed files that it lacks are refused."""
    search = ("--kernel", FILE, *DEVICE, "--budget", "3", "--database", "../runs.db")
    run = document("run", *search)
    Path("run.json").write_text(json.dumps(run))
    ways = [("../runs.db", FILE), ("run.json",), ("1", "--database", "../runs.db")]
    assert {verdicts("--against", *way)["workloads"][0]["verdict"] for way in ways} == {"unchanged"}

    tuner("lock", FILE, *DEVICE, "--database", "../runs.db", "--output", "found.lock")
    commit()
    assert verdicts("--against", "found.lock", FILE)["workloads"][0]["verdict"] == "unchanged"

    make_slower(here, 2.0)
    assert verdicts("--against", "found.lock", FILE)["verdict"] == WORSE
    for way in ways:
        (slower,) = verdicts("--against", *way)["workloads"]
        assert (slower["verdict"], slower["costs"][0]["change"] > 0.1) == (WORSE, True)

    run["workloads"][0]["kernel_file"]["files"] = {}
    Path("run.json").write_text(json.dumps(run))
    refused = tuner("gate", "--against", "run.json", FILE, *DEVICE)
    assert refused.exit_code == 2
    assert "have changed since run.json" in refused.stderr
    assert verdicts("--against", "run.json", "--base", "main", FILE)["verdict"] == WORSE


def test_a_configuration_that_is_gone_gives_way_to_the_default(here: Path) -> None:
    """The verdict says so."""
    file = here / FILE
    file.write_text(file.read_text().replace("vector = [1, 2, 4]", "vector = [1, 2]"))

    (slower,) = verdicts("--against", "tuner.lock", FILE)["workloads"]

    assert slower["notes"] == [
        "modelled",
        f"{FILE} does not allow the configuration of tuner.lock: its default is measured",
    ]
    assert slower["costs"][0]["change"] > 0.3


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--base", "nowhere", FILE), "--base nowhere: fatal: Needed a single revision"),
        (("--base", "main", "../beyond.toml"), "../beyond.toml: is not below /"),
        (("--against", "tuner.lock", "scan-lf:N=64"), "no answer of scan-lf:N=64 is locked for NVIDIA H200"),
        (("--against", "added.lock", FILE), "git has no commit of it; name --base"),
        (("--against", "empty.db", FILE), "no answer of add:N=67108864 is stored"),
        (("--against", "broken.lock", FILE), "broken.lock: "),
        (("--against", "stale.lock", "--kernel", FILE), "locked with other files"),
    ],
)
def test_what_cannot_be_compared_is_refused(words: tuple[str, ...], says: str, here: Path) -> None:
    """The message names the file or the option, and what would be right."""
    make_slower(here)
    for name in ("broken", "added", "stale"):
        Path(f"{name}.lock").write_text((here / "tuner.lock").read_text())
    Path("broken.lock").write_text("<<<<<<< ours\n")
    for name, file in (("beyond.toml", FILE), ("vector_add.cu", "kernels/vector_add.cu")):
        Path("..", name).write_text(Path(file).read_text())
    git("add", "stale.lock", "kernels")
    git("commit", "--quiet", "--message=two")
    Store(Path("empty.db")).close()
    refused = tuner("gate", *words, *DEVICE)

    assert refused.exit_code == 2, refused.output
    assert says in " ".join(refused.stderr.split())


# --- Trouble with the GPU.


def test_without_a_gpu_nothing_is_decided(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No simulated GPU stands in: modelled numbers would let anything pass."""
    monkeypatch.setattr("tuner.devices.cuda.probe.driver_problem", lambda: "no driver (a test)")
    monkeypatch.setattr("tuner.devices.choice.driver_problem", lambda: "no driver (a test)")
    make_slower(here)
    result = tuner("gate", "--base", "main", FILE, "--junit", "gate.xml")

    assert result.exit_code == 3, result.output
    assert "no GPU answers" in result.stdout or "does not answer" in result.stdout
    assert parsed("gate.xml").get("errors") == "1"


def test_a_gpu_that_disappears_decides_nothing(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The workloads that were not decided before are undecided, with the reason."""
    make_slower(here)
    runs = iter(range(30))
    real = SimulatedDevice.run

    def run(self: SimulatedDevice, *words: Any) -> Any:
        if next(runs, None) is None:
            raise DeviceError("it fell off the bus")
        return real(self, *words)

    monkeypatch.setattr(SimulatedDevice, "run", run)
    specs = [f"add:N={size}" for size in (65536, SIZE, 1048576)]
    found = verdicts(*specs, "--kernel", FILE, "--base", "main", code=3)

    assert [one["verdict"] for one in found["workloads"]] == [NO_WORSE, UNDECIDED, UNDECIDED]
    assert {one["why"] for one in found["workloads"][1:]} == {"it fell off the bus"}


def test_others_on_the_gpu_are_told(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their work may be why windows scatter."""
    make_slower(here)
    (here / "gpus" / "h200").mkdir(parents=True)
    (here / "gpus" / "h200" / "other").write_text(identity_of(os.getppid()))
    monkeypatch.setenv(VARIABLE, str(here / "gpus"))

    (one,) = verdicts(FILE, "--base", "main")["workloads"]

    assert "1 process of others on the GPU" in one["notes"]


# --- Stored runs, and pipelines.


@pytest.mark.parametrize(
    ("factor", "objective", "code"),
    [(1.0, "time", 0), (1.049, "time", 3), (1.2, "time", 1), (1.2, "energy", 1), (0.8, "edp", 0)],
)
def test_stored_runs_are_held_against_each_other(
    factor: float, objective: str, code: int, tmp_path: Path
) -> None:
    """By the cost of their objective, with the interval of runs at different times."""
    one = document("run", "scan-lf:N=64", *DEVICE, "--budget", "2", "--objective", objective)
    other = json.loads(json.dumps(one))
    for key in ("time_s", "energy_j"):
        other["best"][key] = other["best"][key] and other["best"][key] * factor
    for name, run in (("a", one), ("b", other)):
        (tmp_path / f"{name}.json").write_text(json.dumps(run))
    result = tuner("diff", tmp_path / "a.json", tmp_path / "b.json", "--fail-above", "5%")

    assert result.exit_code == code, result.output
    assert f"{objective} of B against A: " in result.stdout

    other["device"]["name"] = "another"
    (tmp_path / "b.json").write_text(json.dumps(other))
    refused = tuner("diff", tmp_path / "a.json", tmp_path / "b.json", "--fail-above", "5%")
    assert refused.exit_code == 2
    assert "--fail-above: the device is " in refused.stderr


def steps() -> dict[str, list[str]]:
    """Commands of the pipelines that are there to be copied."""
    folder = ROOT / "examples" / "ci"
    github = yaml.safe_load((folder / "github.yml").read_text())
    gitlab = yaml.safe_load((folder / "gitlab.yml").read_text())
    jobs = github["jobs"].values()
    return {
        "github": [step["run"] for job in jobs for step in job["steps"] if "run" in step],
        "gitlab": [line for job in gitlab.values() for line in job["script"]],
    }


@pytest.mark.parametrize(
    ("host", "factor", "code", "verdict"), [("github", 2.0, 1, WORSE), ("gitlab", 1.0, 0, "unchanged")]
)
def test_a_pipeline_fails_where_a_kernel_got_slower(
    host: str, factor: float, code: int, verdict: str, here: Path
) -> None:
    """The script of the job, by a shell in a clone of a pull request, on a simulated GPU."""
    git("clone", "--quiet", ".", "../clone")
    clone = here.parent / "clone"
    make_slower(clone, factor)
    script = "\n".join(steps()[host]).replace("tuner gate", f"tuner gate {' '.join(DEVICE)}")
    shim = f'set -euo pipefail\ntuner() {{ "{sys.executable}" -c "{COMMAND[2]}" "$@"; }}\n'
    base = {"GITHUB_BASE_REF": "main", "CI_MERGE_REQUEST_DIFF_BASE_SHA": "origin/main"}
    environment = {**os.environ, **base, "GITHUB_STEP_SUMMARY": str(clone / "summary.md")}
    done = subprocess.run(
        ["bash", "-c", shim + script], cwd=clone, env=environment, capture_output=True, text=True, check=False
    )

    assert done.returncode == code, done.stderr
    case = parsed(clone / "gate.xml")[0]
    assert case.get("name") == f"add:N={SIZE}"
    assert (case.find("failure") is not None) == (code == 1)
    assert f": {verdict}: " in done.stdout
    if host == "github":
        summary = (clone / "summary.md").read_text()
        assert f"| `add:N={SIZE}` | {'**worse**' if code else verdict} |" in summary


def test_the_command_is_documented() -> None:
    """Its exit codes stand in its help."""
    command = main.get_command(None, "gate")  # type: ignore[arg-type]
    assert command is not None
    assert "3 where that" in (command.help or "")
