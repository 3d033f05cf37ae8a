"""``tuner train``: inputs, runs that teach, the model that is kept, and who uses it."""

import json
import math
import random
import re
import sqlite3
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cli_process import document, tuner
from hypothesis import given
from hypothesis import strategies as st

from tuner.database.ledger import Ledger
from tuner.database.runs import Store
from tuner.kernel_files.catalog import Catalog, load_kernel_file
from tuner.kernel_files.kernel_file import KernelFile
from tuner.model.errors import InputError
from tuner.model.typed import sealed
from tuner.prediction.model import SelectionModel
from tuner.prediction.training_set import InputTrials, TrainingSet
from tuner.search.request import SearchRequest
from tuner.search.setup import open_setup
from tuner.studies.learning import feature_table, missed_of
from tuner.studies.reports import TrainingProgress
from tuner.studies.training import Trainer, TrainingRequest, draw, drawn_sizes, listed_inputs, model_key

SOURCE = """\
#pragma tuner problem(H = 1..65536, W = 1..65536, dtype = ["float32"], optional = [dtype])
#pragma tuner input x: float32[H, W]
#pragma tuner output y: [H, W]
#pragma tuner check y = 2 * x
#pragma tuner toml work = { bytes = "8 * H * W", operations = "H * W" }
#pragma tuner erange B: 32, 256, 2
#pragma tuner values P: 1, 2, 4
#pragma tuner launch grid(ceil_div(W, B * P), H) block(B)
template <int B = 64, int P = 1>
__global__ void twice(const float* x, float* y, int H, int W)
{
    for (int k = 0; k < P; ++k) {
        const int i = (blockIdx.x * P + k) * B + threadIdx.x;
        if (i < W && blockIdx.y < H) y[blockIdx.y * W + i] = 2.0f * x[blockIdx.y * W + i];
    }
}
"""
DEVICE = ("--device", "sim:h200")


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("kernel") / "twice.cu"
    path.write_text(SOURCE)
    return path


@pytest.fixture(scope="module")
def kernel(source: Path) -> KernelFile:
    return load_kernel_file(source)


@pytest.fixture(scope="module")
def trained(source: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """A database with a model, and the document of its training."""
    database = tmp_path_factory.mktemp("trained") / "tuner.db"
    found = document("train", source, *ARGUMENTS, "--database", database)
    return database, found


ARGUMENTS = (
    *("--inputs", "H=2^2..2^8, W=2^4..2^12", "--count", "7", "--evaluations", "4"),
    *("--method", "g-adapt", *DEVICE),
)


@pytest.mark.parametrize("confirm", [True, False])
def test_contenders_of_an_input_are_confirmed_unless_it_is_not_asked_for(
    source: Path, tmp_path: Path, *, confirm: bool
) -> None:
    """A benchmark that measures complete sweeps in full windows needs no confirmation."""
    request = TrainingRequest(
        "twice",
        [{"H": 5, "W": 600, "dtype": "float32"}],
        policy="exhaustive",
        search={"window_s": 0.03},
        confirm=confirm,
    )
    with (
        Store(tmp_path / "tuner.db") as store,
        open_setup("sim:h200", SearchRequest(objective="time", window_s=0.03)) as setup,
    ):
        Trainer(request, setup, Catalog.load([source]), store, TrainingProgress("time")).measure()
    (stored,) = (
        sqlite3.connect(tmp_path / "tuner.db").execute("SELECT count(confirmed) FROM trials").fetchone()
    )
    assert (stored > 0) is confirm


# --- inputs --------------------------------------------------------------------------------------


@given(st.integers(0, 1000), st.integers(1, 40))
def test_drawn_inputs_are_different_and_in_range(kernel: KernelFile, seed: int, count: int) -> None:
    """As many as asked for, in the ranges, allowed; the same for the same seed."""
    sizes = drawn_sizes(kernel, "H=2^2..2^8, W=[64, 100, 7]")
    found = draw(sizes, count, seed, lambda one: int(one["H"]) % 2 == 0)

    assert len({tuple(one.items()) for one in found}) == count
    for one in found:
        assert 4 <= int(one["H"]) <= 256
        assert int(one["H"]) % 2 == 0
        assert one["W"] in (64, 100, 7)
        assert one["dtype"] == "float32"
    assert draw(sizes, count, seed, lambda one: int(one["H"]) % 2 == 0) == found


def test_inputs_are_no_powers_of_two_only(kernel: KernelFile) -> None:
    """Evenly spread in the logarithm, or evenly where asked for."""
    for words, middle in (("W=1..65536 log", 256), ("W=1..65536 lin", 32768)):
        values = sorted(int(one["W"]) for one in draw(drawn_sizes(kernel, words), 200, 0, lambda _: True))
        assert values[100] == pytest.approx(middle, rel=0.2)
        assert sum(value & (value - 1) == 0 for value in values) < 40


def test_few_possible_inputs_end_the_drawing(kernel: KernelFile) -> None:
    """Where fewer are different, all of them are taken."""
    sizes = drawn_sizes(kernel, "H=[3, 5], W=[7]")
    assert len(draw(sizes, 10, 0, lambda _: True)) == 2


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("H", "not of the form H=16..65536"),
        ("h=1..4", "no size 'h'"),
        ("H=1..4, H=5", "H is there twice"),
        ("H=9..4", "the range is empty"),
        ("H=0..4", "a range begins with 1 or more"),
        ("H=1..2^999999999999", "2^999999999999: is beyond all sizes"),
        (f"H={'9' * 5000}", "999: is beyond all sizes"),
        ("H=1..70000", "twice takes 1 to 65536"),
        ("H=[1, 70000]", "twice has no H=70000"),
        ("dtype=int8", "twice has no dtype=int8"),
    ],
)
def test_inputs_that_cannot_be_are_told(kernel: KernelFile, words: str, message: str) -> None:
    """The message names option, size and what would be right."""
    with pytest.raises(InputError, match=re.escape(message)):
        drawn_sizes(kernel, words)


def test_listed_inputs(kernel: KernelFile) -> None:
    """Sizes that may be left out take their value."""
    assert listed_inputs(kernel, ["H=3,W=2^4"]) == [{"H": 3, "W": 16, "dtype": "float32"}]
    for words in (["H=3"], ["H=3,W=0"], ["H=3,W=1", "W=1,H=3"], ["H"], ["H=1,H=3,W=1"], ["H=10^99,W=1"]):
        with pytest.raises(InputError):
            listed_inputs(kernel, words)


# --- training ------------------------------------------------------------------------------------


def test_a_training_keeps_a_model(trained: tuple[Path, dict[str, Any]]) -> None:
    """Every input was looked at with few trials, and predicted from the others by every method."""
    database, found = trained
    assert (found["inputs"], found["looked_at"], found["known"]) == (7, 7, 0)
    assert found["evaluations"] == found["trials"] < 7 * 12
    assert found["device"]["modelled"] is True
    assert set(found["accuracy"]) == {"versions", "g-adapt", "one for all"}
    assert len(found["left_out"]["g-adapt"]) == len(found["left_out"]["one for all"]) == 7
    assert 0 < len(found["left_out"]["versions"]) <= 7
    with Store(database) as store:
        (kept,) = Ledger(store.database).models("twice")
        runs = store.history()
    assert SelectionModel.of(kept).claim == found["claim"]
    assert len(runs) == 7
    assert {run.conditions["policy"] for run in runs} == {"predicted"}


def test_a_training_goes_on_where_it_ended(source: Path, tmp_path: Path) -> None:
    """The same command with more inputs measures only those that are new."""
    database = tmp_path / "tuner.db"
    one, other = ("--input", "H=5,W=600"), ("--input", "H=50,W=60")
    options = ("--method", "g-adapt", "--evaluations", "4", *DEVICE, "--database", database)
    first = document("train", source, *one, *other, *options)
    assert (first["looked_at"], first["known"]) == (2, 0)
    again = document("train", source, *one, *other, "--input", "H=7,W=700", *options)
    assert (again["looked_at"], again["known"], again["inputs"]) == (1, 2, 3)


def test_an_interrupted_input_is_measured_to_its_end(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its run goes on, and all its trials count."""
    options = ("--input", "H=5,W=600", "--input", "H=50,W=60", "--method", "g-adapt", *DEVICE)
    whole = document("train", source, *options, "--database", tmp_path / "whole.db")
    database = tmp_path / "tuner.db"
    add, count = Store.add, iter(range(100))

    def interrupted(*arguments: Any, **rest: Any) -> Any:
        if next(count) == 14:
            raise KeyboardInterrupt
        return add(*arguments, **rest)

    with monkeypatch.context() as patch:
        patch.setattr(Store, "add", interrupted)
        assert tuner("train", source, *options, "--database", database).exit_code == 130
    again = document("train", source, *options, "--database", database)
    assert (again["looked_at"], again["known"], again["trials"]) == (1, 1, whole["trials"])
    with Store(database) as store:
        assert [run.status.value for run in store.history()] == ["finished", "finished"]


@pytest.mark.parametrize("policy", ["hill-climbing", "exhaustive", "random"])
def test_inputs_can_be_looked_at_by_other_policies(source: Path, tmp_path: Path, policy: str) -> None:
    """Hill climbing as the paper has it, or the whole space."""
    found = document(
        *("train", source, "--input", "H=5,W=600", "--input", "H=50,W=60", "--policy", policy),
        *("--method", "g-adapt", *DEVICE, "--database", tmp_path / "tuner.db"),
        *(("--evaluations", "5") if policy == "random" else ()),
    )
    assert found["trials"] == {"exhaustive": 24, "random": found["trials"]}.get(policy, found["trials"])
    assert 8 <= found["trials"] <= 24


@pytest.mark.parametrize("wholes", [0, 6, 30])
def test_what_trials_miss_is_told_by_spaces_measured_whole(kernel: KernelFile, wholes: int) -> None:
    """By a part of their spaces at random: as much as others miss on average, and nothing without any."""
    draws = random.Random(5)  # noqa: S311 - a seeded experiment
    inputs: list[InputTrials] = []
    best = []
    for number, sizes in enumerate(draw(drawn_sizes(kernel, "H=2^2..2^8"), 30, 0, lambda _: True)):
        space = list(kernel.space(kernel.workload(sizes)))
        costs = [math.exp(draws.uniform(0.0, 0.5)) for _ in space]
        chosen = draws.sample(range(len(space)), len(space) if number < wholes else 3)
        best.append(min(costs[place] for place in chosen) / min(costs))
        found = tuple(space[place] for place in chosen)
        inputs.append(
            InputTrials(
                sizes, found, np.array([costs[place] for place in chosen]), np.full(len(chosen), 1e-3)
            )
        )
    data, table = TrainingSet(tuple(inputs)), feature_table(kernel, None)
    told = list(map(missed_of(table, kernel, data, "g-adapt", guided=False), inputs))
    assert [one.whole for one in told] == [number < wholes for number in range(30)]
    assert {one.factor for one in told[:wholes]} <= {1.0}
    others = {one.factor for one in told[wholes:]}
    if wholes == 6:
        assert sum(others) / len(others) == pytest.approx(sum(best[6:]) / 24, abs=0.04)
    else:
        assert others <= {1.0}


def test_a_forest_is_the_default(source: Path, tmp_path: Path) -> None:
    """Its first prediction and its versions are judged beside the others."""
    found = document(
        *("train", source, "--inputs", "H=2^2..2^8, W=2^4..2^12", "--count", "3", "--evaluations", "3"),
        *(*DEVICE, "--database", tmp_path / "tuner.db"),
    )
    assert list(found["accuracy"]) == ["forest", "versions", "g-adapt", "one for all"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--policy", "greedy"), "--policy greedy: choose from predicted"),
        (("--method", "svm"), "--method svm: choose from forest, g-adapt"),
        (("--inputs", "N=1..2"), "no size 'N'"),
        (("--inputs", "H=[3], W=[4]"), "1 different inputs"),
        (("--limit", "N < 3"), "twice has no size 'N'"),
        (("--limit", "H <"), "--limit: expression 'H <'"),
        (("--limit", "H / (W - W) > 1"), "--limit: expression 'H / (W - W) > 1': division by zero"),
        (("--input", "H=3,W=4", "--inputs", "H=1..2"), "give one of them"),
        (("--objective", "speed"), "speed"),
    ],
)
def test_what_cannot_be_trained_is_told(
    source: Path, tmp_path: Path, words: tuple[str, ...], message: str
) -> None:
    """Exit code 2, and nothing is measured."""
    result = tuner("train", source, *words, *DEVICE, "--database", tmp_path / "tuner.db")
    assert result.exit_code == 2
    assert message in result.stderr


def test_a_training_takes_no_sizes_of_a_workload(source: Path, tmp_path: Path) -> None:
    """They would be ignored."""
    result = tuner("train", f"{source}:H=3,W=4", *DEVICE, "--database", tmp_path / "tuner.db")
    assert result.exit_code == 2
    assert "write --input H=3,W=4" in result.stderr


# --- those who use it ----------------------------------------------------------------------------


def best(database: Path, source: Path, sizes: str, *options: str) -> dict[str, Any]:
    asked = ("best", f"{source}:{sizes}", "--objective", "time", *DEVICE, "--database", str(database))
    return document(*asked, *options)


def test_best_answers_sizes_that_nobody_tuned(trained: tuple[Path, dict[str, Any]], source: Path) -> None:
    """The origin is a prediction, with its accuracy; outside the range that is said."""
    database, found = trained
    part = best(database, source, "H=33,W=777")["workloads"]["twice:H=33,W=777"]
    assert part["origin"] == "predicted"
    assert part["configuration"] in found["versions"]
    assert found["claim"] in part["details"]
    assert "outside" not in part["details"]
    outside = best(database, source, "H=33,W=60000")["workloads"]["twice:H=33,W=60000"]
    assert "W=60000 is outside" in outside["details"]


def test_a_changed_source_ends_the_prediction(trained: tuple[Path, dict[str, Any]], tmp_path: Path) -> None:
    """The model was learned from another kernel."""
    database, _ = trained
    changed = tmp_path / "twice.cu"
    changed.write_text(SOURCE + "// another\n")
    result = tuner("best", f"{changed}:H=33,W=777", "--objective", "time", *DEVICE, "--database", database)
    assert "predicted" not in result.stdout
    assert "has a model for time, which does not serve: its source has changed since" in result.stderr


def test_a_model_for_another_objective_is_told(trained: tuple[Path, dict[str, Any]], source: Path) -> None:
    """A model for time, as training is where it is not told otherwise, answers no question about energy."""
    result = tuner("best", f"{source}:H=33,W=777", "--objective", "energy", *DEVICE, "--database", trained[0])
    assert result.exit_code == 1
    assert "twice has a model for time, which does not serve: ask with --objective time" in result.stderr


OTHER_SIZES = {"H": [1, 2], "W": [1, 2], "dtype": ["float32"], "Z": [1, 2]}


@pytest.mark.parametrize(
    "change",
    [
        {"kernel": "other"},
        {"sizes": list(OTHER_SIZES), "ranges": OTHER_SIZES, "inputs": [[1, 1, "float32", 1]]},
    ],
)
def test_a_model_of_other_sizes_is_not_served(
    trained: tuple[Path, dict[str, Any]], source: Path, change: dict[str, Any]
) -> None:
    """Even one with a right checksum and source: the next best answer is given."""
    with Store(trained[0]) as store:
        ledger = Ledger(store.database)
        (kept,) = ledger.models("twice")
        key = model_key(SelectionModel.of(kept))
        changed = {name: value for name, value in kept.items() if name != "checksum"} | change
        ledger.remember_model("twice", key, sealed(changed))
        result = tuner(
            "best", f"{source}:H=33,W=777", "--objective", "time", *DEVICE, "--database", trained[0]
        )
        ledger.remember_model("twice", key, kept)
    assert "predicted" not in result.stdout
    assert result.exit_code != 2


def test_another_model_of_gpu_is_not_served(trained: tuple[Path, dict[str, Any]], source: Path) -> None:
    """What was learned on an H200 says nothing of an A100."""
    database, _ = trained
    result = tuner(
        "best", f"{source}:H=33,W=777", "--objective", "time", "--device", "sim:a100", "--database", database
    )
    assert "predicted" not in result.stdout
    assert "which does not serve: on NVIDIA H200" in result.stderr


def test_the_selector_is_exported(trained: tuple[Path, dict[str, Any]], source: Path, tmp_path: Path) -> None:
    """A header that a C compiler takes, and cubins of all versions."""
    database, found = trained
    header, cubins = tmp_path / "twice.h", tmp_path / "cubins"
    options = ("--database", database, "--kernel", source)
    result = tuner(
        *("export", "twice", "--format", "c-selector", "--output", header, *options),
        *("--cubins", cubins, "--arch", "sm_90"),
    )
    assert result.exit_code == 0, result.stderr
    assert "twice_entry_twice[" in header.read_text()
    assert len(list(cubins.glob("twice-*-twice.cubin"))) == len(found["versions"])
    program = tmp_path / "program.c"
    program.write_text(
        '#include "twice.h"\nint main(void) { return twice_select(33, 777, "float32") >= TWICE_VERSIONS; }\n'
    )
    subprocess.run(["gcc", "-Wall", "-Werror", "-o", tmp_path / "program", program], check=True)
    subprocess.run([tmp_path / "program"], check=True)


def test_a_header_without_the_source_has_no_options(trained: tuple[Path, dict[str, Any]]) -> None:
    """Which macros a version needs, only the kernel's file tells."""
    result = tuner("export", "twice", "--format", "c-selector", "--database", trained[0])
    assert result.exit_code == 0, result.stderr
    assert "twice_select(" in result.stdout
    assert "_options" not in result.stdout
    assert "no options of the compiler: name its file with --kernel" in result.stderr


def test_sizes_in_the_code_are_no_selector(tmp_path: Path) -> None:
    """Also where the first and the last trained input have the same; inputs need not allow all versions."""
    (tmp_path / "twice.cu").write_text(
        SOURCE.replace("W = 1..65536", "W = [64, 128]")
        + '#pragma tuner toml kernel.options = ["-DWIDTH={W}"]\n#pragma tuner constraint B <= 64 * H\n'
    )
    options = ("--database", tmp_path / "tuner.db")
    inputs = ("--input", "H=1,W=64", "--input", "H=7,W=128", "--input", "H=9,W=64")
    document("train", tmp_path / "twice.cu", *inputs, "--method", "g-adapt", *DEVICE, *options)
    result = tuner("export", "twice", "--format", "c-selector", "--kernel", tmp_path / "twice.cu", *options)
    assert result.exit_code == 2
    assert "sizes are compiled into its code" in result.stderr


MORE = """
#pragma tuner launch grid(1) block(32) when(H > LEAST)
template <int P>
__global__ void more(float* y)
{
    if (P > 8) y[0] = 0.0f;
}
"""


@pytest.mark.parametrize(("least", "seen"), [("8 * P", True), ("300", False)])
def test_launches_that_some_sizes_have(tmp_path: Path, least: str, *, seen: bool) -> None:
    """The header has them, and says for which sizes; where no trained input has one, that is told."""
    source = tmp_path / "twice.cu"
    source.write_text(SOURCE + MORE.replace("LEAST", least))
    options = ("--database", tmp_path / "tuner.db")
    document("train", source, *ARGUMENTS, *options)
    header = tmp_path / "twice.h"
    kernel = ("--format", "c-selector", "--kernel", source, "--output", header)
    result = tuner("export", "twice", *kernel, *options)
    assert (result.exit_code, "no trained input launches more" in result.stderr) == (2 * (not seen), not seen)
    if not seen:
        return
    program = tmp_path / "program.c"
    program.write_text(
        '#include "twice.h"\n'
        "int main(void) {\n"
        "for (int H = 1; H < 99; ++H) for (int v = 0; v < TWICE_VERSIONS; ++v) if (!twice_entry_more[v] ||\n"
        'twice_launches_more(v, H, 7, "float32") != (H > 8 * twice_P[v])) return 1;\n'
        "return 0; }\n"
    )
    subprocess.run(["gcc", "-Wall", "-Werror", "-o", tmp_path / "program", program], check=True)
    subprocess.run([tmp_path / "program"], check=True)


def test_wisdom_has_every_input(trained: tuple[Path, dict[str, Any]]) -> None:
    """Kernel Launcher gets the fastest configurations of all inputs that were trained."""
    result = tuner("export", "twice", "--format", "kernel-launcher", "--database", trained[0])
    assert result.exit_code == 0, result.stderr
    head, *rows = [json.loads(line) for line in result.stdout.splitlines() if not line.startswith("#")]
    assert head["tunable_parameters"] == ["B", "P"]
    assert len({tuple(row["problem_size"]) for row in rows}) == 7


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("scan-lf", "--format", "c-selector"), "scan-lf has no trained model here"),
        (("twice", "twice", "--format", "c-selector"), "a header is of one kernel"),
        (("twice", "--format", "c-selector", "--arch", "sm_90"), "--cubins and --arch go together"),
        (
            ("twice", "--format", "c-selector", "--objective", "energy"),
            "was trained for time, not for energy",
        ),
        (("1", "--arch", "sm_90"), "are for --format c-selector"),
    ],
)
def test_what_cannot_be_exported_is_told(
    trained: tuple[Path, dict[str, Any]], words: tuple[str, ...], message: str
) -> None:
    """Exit code 2 and the reason."""
    result = tuner("export", *words, "--database", trained[0])
    assert result.exit_code == 2
    assert message in result.stderr


def test_a_damaged_model_is_not_used(source: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """It is logged; the next best answer is given."""
    database = tmp_path / "tuner.db"
    options = ("--method", "g-adapt", "--evaluations", "4", *DEVICE, "--database", database)
    document("train", source, "--input", "H=5,W=600", "--input", "H=50,W=60", *options)
    with Store(database) as store:
        ledger = Ledger(store.database)
        (kept,) = ledger.models("twice")
        key = model_key(SelectionModel.of(kept))
        kept["versions"][0]["B"] = 7
        ledger.remember_model("twice", key, kept)
    result = tuner("best", f"{source}:H=33,W=777", "--objective", "time", *DEVICE, "--database", database)
    assert "predicted" not in result.stdout
    assert "its checksum is not that of what it says" in caplog.text


# --- how it measures -----------------------------------------------------------------------------


def test_inputs_draw_different_configurations(source: Path, tmp_path: Path) -> None:
    """What is drawn at random is another part of the space at every input, the same for the same seed."""
    inputs = ("--input", "H=5,W=600", "--input", "H=50,W=600", "--method", "g-adapt", "--evaluations", "2")
    drawn = []
    for database in (tmp_path / "one.db", tmp_path / "other.db"):
        document("train", source, *inputs, *DEVICE, "--database", database)
        with Store(database) as store:
            for run in store.answered_alone("twice"):
                ((name, _),) = run.conditions["workloads"]
                trials = store.trials(run.id, [name])
                drawn.append((name, [dict(trial.configurations[0]) for trial, _ in trials]))
    assert drawn[0][1] != drawn[1][1]
    assert drawn[:2] == drawn[2:]


def test_configurations_that_cannot_be_launched_elsewhere(tmp_path: Path) -> None:
    """A block that holds rows of 42 numbers holds none of 337: the forest learns without its grid there."""
    inputs = [word for n in (42, 84, 168, 337) for word in ("--input", f"N={n}")]
    words = ("--evaluations", "8", "--device", "sim:k40c", "--database", tmp_path / "tuner.db")
    found = document("train", "scan-lf", *inputs, *words)
    assert found["inputs"] == 4
    assert set(found["accuracy"]) >= {"forest", "one for all"}
    assert "trained on one input" not in found["claim"]
