"""Lock files: what is written is read; one in force is read first, and says what it does not serve."""

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from answering_scene import Answers, shipped
from cli_process import PATIENCE_S, begun, tuner
from hypothesis import given
from hypothesis import strategies as st
from stored_trials import store_sample

from tuner.application.choice import choose
from tuner.daemon.interface import Question
from tuner.database.answer_lock import (
    LockedAnswer,
    LockedWorkload,
    Quantity,
    covers,
    driver_range,
    in_force,
    read,
    written,
)
from tuner.devices.choice import identify
from tuner.kernel_tuner import tune_kernel
from tuner.model.errors import InputError
from tuner.model.plan import Configuration
from tuner.python.triton_in_place import Launch, stored_values
from tuner.system.ownership import held_folder

NAME, DEVICE = "scan-lf:N=64", "sim:h200"
WORKLOAD = shipped().workload(NAME)
KERNEL = shipped().kernel("scan-lf")
OTHER = [one for one in KERNEL.space(WORKLOAD) if one != KERNEL.default(WORKLOAD)][7]
HERE = identify(DEVICE)
PART = LockedWorkload(NAME, WORKLOAD.batch, KERNEL.fingerprint, dict(OTHER))
LOCKED = LockedAnswer(
    (PART,),
    HERE.name,
    HERE.driver,
    "energy",
    Quantity(1e-4),
    "2026-11-29",
    "0.2.0",
    Quantity(0.1),
    modelled=True,
)
UNFIT = {
    "gpu": (replace(LOCKED, gpu="NVIDIA H100"), f"it is not for {HERE.name}"),
    "driver": (replace(LOCKED, driver="model-2"), f"it is for driver model-2, and this is {HERE.driver}"),
    "clock": (
        replace(LOCKED, clock_mhz=990),
        "it sets a clock or a power limit, and here they stay as found",
    ),
    "kernel": (
        replace(LOCKED, workload=(replace(PART, kernel="other"),)),
        "the kernel scan-lf has changed since it was locked",
    ),
    "configuration": (
        replace(LOCKED, workload=(replace(PART, configuration={**OTHER, "L": 3}),)),
        "measured on 2026-11-29 is not served: scan-lf:N=64",
    ),
}

Force = Callable[..., Path]


@pytest.fixture
def force(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Force:
    """Writes a lock file, and puts it in force."""

    def put(*answers: LockedAnswer) -> Path:
        path = tmp_path / "tuner.lock"
        path.write_text(written(answers), encoding="utf-8")
        monkeypatch.setenv("TUNER_LOCK", str(path))
        return path

    return put


def test_every_face_gives_the_locked_answer(force: Force, tmp_path: Path) -> None:
    """``tuner.apply``, ``tuner best`` and the daemon read the lock first, and say so."""
    path = force(LOCKED)
    nowhere = tmp_path / "no.db"

    chosen = choose(KERNEL, WORKLOAD, HERE, nowhere)
    assert chosen.configuration == OTHER
    assert chosen.origin.startswith(f"{path}, measured on 2026-11-29, for energy")
    for words, notice in (((), "no answer for time is stored"), (("--objective", "energy"), "")):
        best = tuner("best", NAME, "--device", DEVICE, *words)
        assert (best.exit_code, f"of {path}" in best.stdout, notice in best.stderr) == (0, True, True)
    daemon = Answers(shipped(), {DEVICE: HERE})
    reply = daemon.reply(Question((NAME,), "energy", DEVICE))
    assert Configuration(reply.workloads[NAME].configuration) == OTHER
    assert (reply.run, reply.stale) == (None, ())
    default = KERNEL.default(WORKLOAD)
    force(replace(LOCKED, workload=(replace(PART, configuration=dict(default)),)))
    reply = daemon.reply(Question((NAME,), "energy", DEVICE))
    assert Configuration(reply.workloads[NAME].configuration) == default
    assert not nowhere.exists()


@pytest.mark.parametrize("which", UNFIT)
def test_what_does_not_fit_is_named_and_ignored_or_refused(
    force: Force,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    which: str,
) -> None:
    locked, why = UNFIT[which]
    force(locked)

    assert choose(KERNEL, WORKLOAD, HERE, tmp_path / "no.db").origin == "default"
    assert why in caplog.text
    monkeypatch.setenv("TUNER_LOCK_FROZEN", "1")
    with pytest.raises(InputError, match="the lock is frozen: write it again with `tuner lock`") as refused:
        choose(KERNEL, WORKLOAD, HERE, tmp_path / "no.db")
    assert why in str(refused.value)
    found = tuner("best", NAME, "--device", DEVICE, "--objective", "energy", "--clocks-as-found", "--frozen")
    assert (found.exit_code, why in found.stderr) == (2, True)


@pytest.mark.parametrize("which", ["gpu", "driver", "clock"])
def test_an_answer_for_another_machine_beside_that_for_this_one_is_no_trouble(
    force: Force,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    which: str,
) -> None:
    """Neither where the lock is frozen, nor for a function of Triton, nor when it is checked."""
    good = replace(LOCKED, workload=(replace(PART, configuration=dict(KERNEL.default(WORKLOAD))),))
    part = LockedWorkload("add-0123456789ab", 1, "of the file", {"BLOCK": 256})
    path = force(
        *(replace(one, workload=good.workload) for one in (UNFIT[which][0], good)),
        *(replace(one, workload=(part,)) for one in (UNFIT[which][0], good)),
    )
    monkeypatch.setenv("TUNER_LOCK_FROZEN", "1")
    assert "tuner.lock" in choose(KERNEL, WORKLOAD, HERE, tmp_path / "no.db").origin
    launch = Launch("add", {}, (1,), {"device": DEVICE})
    assert stored_values(part.name, launch, needed=True) == part.configuration
    assert not caplog.text
    checked = tuner("lock", NAME, "--check", "--frozen", "--device", DEVICE, "--output", path)
    assert (checked.exit_code, "1 hold, 0 fail, 1 left out" in checked.stdout) == (0, which != "clock")


BEYOND = {
    "batch": (replace(PART, batch=4 * WORKLOAD.batch), "is beyond a factor of 2, or fills the GPU less"),
    "sizes": (replace(PART, name="scan-lf:N=32"), "it is of other sizes"),
}


@pytest.mark.parametrize("which", BEYOND)
def test_a_frozen_lock_serves_its_kernels_or_nothing(
    force: Force,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    which: str,
) -> None:
    """What is locked at another batch or size never falls through to something else unseen."""
    held, why = BEYOND[which]
    force(replace(LOCKED, workload=(held,)))
    assert choose(KERNEL, WORKLOAD, HERE, tmp_path / "no.db").origin == "default"
    assert (why in caplog.text) == (which == "batch")
    monkeypatch.setenv("TUNER_LOCK_FROZEN", "1")
    with pytest.raises(InputError, match="the lock is frozen") as refused:
        choose(KERNEL, WORKLOAD, HERE, tmp_path / "no.db")
    assert why in str(refused.value)
    other = shipped().kernel("scan-ks")  # of which the lock says nothing
    assert choose(other, shipped().workload("scan-ks:N=64"), HERE, tmp_path / "no.db").origin == "default"


def test_the_nearest_project_names_the_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``[tool.tuner]`` of a folder above counts; the variable goes before it, and an empty one is none."""
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    monkeypatch.chdir(inner)
    monkeypatch.delenv("TUNER_LOCK", raising=False)
    (tmp_path / "a" / "pyproject.toml").write_text("[project]\nname = 'other'\n")
    project = tmp_path / "pyproject.toml"
    project.write_text('[tool.tuner]\nlock = "own.lock"\nfrozen = true\n')
    (tmp_path / "own.lock").write_text(written([LOCKED]), encoding="utf-8")

    found = in_force()
    assert found is not None
    assert (found.lock.path, found.frozen, found.lock.answers) == (tmp_path / "own.lock", True, (LOCKED,))
    checked = tuner("lock", "--check", "--device", "sim:jetson-tx1")
    assert (checked.exit_code, f"{tmp_path / 'own.lock'}: no answer" in checked.stderr) == (2, True)
    monkeypatch.setenv("TUNER_LOCK", "")
    assert in_force() is None
    monkeypatch.delenv("TUNER_LOCK")
    for text, says in (
        ('[tool.tuner]\nlokc = "own.lock"\n', "[tool.tuner]: 'lokc' is no key; did you mean 'lock'?"),
        ("[tool.tuner]\nlock = 3\n", "[tool.tuner]: lock is 3, not a text"),
        ('<<<<<<< HEAD\n[tool.tuner]\nlock = "own.lock"\n', "is damaged, and has [tool.tuner]: "),
    ):
        project.write_text(text)
        with pytest.raises(InputError) as refused:
            in_force()
        assert str(refused.value).startswith(f"{project}: {says}")


def test_a_function_of_triton_takes_the_locked_configuration(force: Force) -> None:
    """The name of the problem stands for its source."""
    part = LockedWorkload("add-0123456789ab", 1, "of the file", {"BLOCK": 256, "num_warps": 4})
    force(replace(LOCKED, workload=(part,)))
    launch = Launch("add", {}, (1,), {"device": DEVICE})
    assert stored_values("add-0123456789ab", launch, needed=True) == part.configuration


def test_what_is_tuned_locked_checked_and_called_again_is_one_configuration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """``tune_kernel`` searches nothing that is locked; what is locked for other GPUs stays."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    source = "__global__ void fill(float* y) { y[blockIdx.x * block_size_x + threadIdx.x] = 1.0f; }"

    def call() -> tuple[list[dict[str, object]], dict[str, object]]:
        return tune_kernel(
            "fill", source, 4096, [np.zeros(4096, np.float32)], {"block_size_x": [32, 64, 128]}, device=DEVICE
        )

    results, environment = call()
    assert len(results) == 3
    path = tmp_path / "tuner.lock"
    words = ("lock", "--device", DEVICE, "--output", path)
    assert tuner(*words, "--database", "no.db").exit_code == 2
    path.write_text(written([UNFIT["gpu"][0]]), encoding="utf-8")
    assert tuner(*words, "--database", tmp_path / "state" / "tuner" / "tuner.db").exit_code == 0
    assert [one.gpu for one in read(path).answers] == [HERE.name, "NVIDIA H100"]

    monkeypatch.setenv("TUNER_LOCK", str(path))
    capsys.readouterr()
    again, best = call()
    assert "nothing is searched" in capsys.readouterr().out
    assert [one["block_size_x"] for one in again] == [best["best_config"]["block_size_x"]]  # type: ignore[index]
    assert best["best_config"]["block_size_x"] == environment["best_config"]["block_size_x"]  # type: ignore[index]


def test_what_drifted_is_left_out_and_no_other_writer_is_overtaken(tmp_path: Path) -> None:
    """What another process writes meanwhile stays."""
    path, database = tmp_path / "tuner.lock", tmp_path / "runs.db"
    assert tuner("run", NAME, "--device", DEVICE, "--budget", "2", "--database", database).exit_code == 0
    words = ("lock", "--device", DEVICE, "--database", database, "--output", path)
    with held_folder(tmp_path):
        process = begun(*words)
        path.write_text(written([UNFIT["gpu"][0]]), encoding="utf-8")
    process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0
    assert {one.gpu for one in read(path).answers} == {HERE.name, "NVIDIA H100"}

    for _ in range(2):
        store_sample(database, 1, "above")
    left = tuner(*words)
    assert (left.exit_code, "drifted: it is above" in left.stderr) == (2, True)


def test_a_check_measures_and_judges_each_answer(tmp_path: Path) -> None:
    """What holds, what is not for this kernel, what costs more than the default or is no configuration."""
    path = tmp_path / "tuner.lock"
    good = replace(LOCKED, workload=(replace(PART, configuration=dict(KERNEL.default(WORKLOAD))),))
    path.write_text(written([good, replace(UNFIT["kernel"][0], objective="time")]), encoding="utf-8")
    words = ("lock", "--check", "--device", DEVICE, "--output", path)
    found = tuner(*words)
    assert (found.exit_code, "1 hold, 0 fail, 1 left out" in found.stdout) == (0, True)
    assert UNFIT["kernel"][1] in found.stderr
    assert tuner(*words, "--frozen").exit_code == 2
    slow = max(KERNEL.space(WORKLOAD), key=lambda one: KERNEL.plan(WORKLOAD, one).stages[0].blocks)
    for bad in (slow, {**slow, "cap": 3}):
        path.write_text(written([replace(good, workload=(replace(PART, configuration=dict(bad)),))]))
        failing = tuner(*words)
        assert (failing.exit_code, "FAILS" in failing.stdout) == (1, True)


@pytest.mark.parametrize("closed", [False, True])
def test_without_a_working_directory_there_is_no_project(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, closed: bool
) -> None:
    """A daemon goes on answering where the folder that it was started in is gone, or may not be entered."""
    monkeypatch.delenv("TUNER_LOCK", raising=False)
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    user = os.geteuid()
    if not closed:
        here.rmdir()
    else:
        here.chmod(0o000)
        os.seteuid(user or 65534)  # root may enter all

    try:
        assert in_force() is None
    finally:
        os.seteuid(user)


UNROLLED = LockedWorkload("scan-lf:N=1024", 64, "c0ffee", {"L": 4, "unrolled": True})
ANSWER = LockedAnswer(
    (UNROLLED,),
    "NVIDIA H200",
    "580",
    "energy",
    Quantity(1.234e-5, 3e-8),
    "2026-11-29",
    "0.2.0",
    Quantity(0.0151),
)

texts = st.text(st.characters(codec="utf-8"), min_size=1, max_size=12)
whole = st.integers(1, 2**31)
amounts = st.floats(1e-9, 1e6)
quantities = st.builds(Quantity.of, amounts, st.just(0.0) | amounts)
values = st.booleans() | st.integers(-(2**53), 2**53) | st.floats(-1e9, 1e9) | texts
parts = st.builds(LockedWorkload, texts, whole, texts, st.dictionaries(texts, values, max_size=4))
answers = st.builds(
    LockedAnswer,
    st.lists(parts, min_size=1, max_size=3, unique_by=lambda one: one.name).map(tuple),
    texts,
    st.sampled_from(["580", "575.51 to 580", "model-3"]),
    st.sampled_from(["time", "energy", "energy of single launches", "edp"]),
    quantities,
    texts,
    texts,
    st.none() | quantities,
    st.none() | whole,
    st.none() | whole,
    st.booleans(),
)


@given(st.lists(answers, max_size=5), st.randoms(use_true_random=False))
def test_what_is_written_is_read(
    tmp_path_factory: pytest.TempPathFactory, some: list[LockedAnswer], chance: Callable[..., None]
) -> None:
    """A file is read as what it was written from; the order of the answers changes nothing."""
    some = [one for i, one in enumerate(some) if not any(map(one.excludes, some[:i]))]
    path = tmp_path_factory.getbasetemp() / "any.lock"
    path.write_text(written(some), encoding="utf-8", newline="")
    found = read(path).answers
    assert sorted(found, key=repr) == sorted(some, key=repr)
    chance.shuffle(some)  # type: ignore[attr-defined]  # a Random
    assert written(some) == path.read_text(encoding="utf-8") == written(found)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda text: text[:-5], "is damaged"),
        (lambda text: text.replace("gpu =", "<<<<<<< HEAD\ngpu ="), "line 5 has a conflict of a merge"),
        (lambda text: text + ">>>>>>> main\n", "line 20 has a conflict of a merge"),
        (
            lambda text: text + text.partition("form = 1\n")[2],
            "[[answer]] 1 and 2 are both of scan-lf:N=1024",
        ),
        (lambda text: text.replace("form = 1", "form = 2"), "is of form 2, and this version reads up to 1"),
        (lambda text: text.replace("form = 1", ""), "is no lock file"),
        (lambda text: text.replace("driver =", "drivers ="), "'drivers' is no key; did you mean 'driver'?"),
        (lambda text: text.replace("batch =", "batches ="), "workload: 'batches' is no key"),
        (lambda text: text.replace("µs", "µJ"), "[[answer]] 1: time is '12.34 ± 0.03 µJ'; write a number"),
        (lambda text: text.replace("12.34 ±", "0 ±"), "must be above 0"),
        (
            lambda text: text.replace('"12.34 ± 0.03 µs"', "{value = -1.0}"),
            "time is \"{'value': -1.0}\"; write",
        ),
        (lambda text: text.replace('"energy"', '"enrgy"'), "objective is 'enrgy'; known are time, energy"),
        (lambda text: text.replace("batch = 64\n", ""), "workload[0].batch is missing"),
        (lambda text: text.replace("= 64", "= 0"), "workload[0].batch is 0, less than 1"),
        (lambda text: text.replace('"580"', '"580 to 575"'), "driver is '580 to 575'; write a version"),
        (lambda text: text.replace("L = 4", "L = [4]"), "configuration.L is a list"),
        (lambda text: text.partition("\n[[")[0] + "answer = 3\n", "[[answer]] 1: is no table"),
    ],
)
def test_what_cannot_be_read_is_named(tmp_path: Path, change: Callable[[str], str], says: str) -> None:
    path = tmp_path / "tuner.lock"
    path.write_text(change(written([ANSWER])), encoding="utf-8")
    with pytest.raises(InputError) as refused:
        read(path)
    assert str(refused.value).startswith(f"{path}: ")
    assert says in str(refused.value)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"there is no such lock file; `tuner lock` writes one"):
        read(tmp_path / "tuner.lock")


def test_a_range_of_drivers_holds_what_begins_as_its_ends_do() -> None:
    for driver, held, others in (
        ("580", ("580", "580.65", "580.159.03"), ("57", "579.99", "581", "5800", "model-3")),
        ("575.51 to 580", ("575.51", "575.64", "578", "580.159"), ("575.50", "581.1")),
        ("model-3", ("model-3",), ("model-2", "580")),
    ):
        assert all(covers(driver, version) for version in held)
        assert not any(covers(driver, version) for version in others)
    for version in ("580.159.03", "model-3"):
        assert covers(driver_range(version), version)


def test_answers_to_other_questions_stand_beside_each_other() -> None:
    for change in ({"gpu": "NVIDIA H100"}, {"driver": "575"}, {"objective": "time"}, {"clock_mhz": 990}):
        assert not ANSWER.excludes(replace(ANSWER, **change))
    assert not ANSWER.excludes(replace(ANSWER, workload=(replace(UNROLLED, batch=65),)))
    assert ANSWER.excludes(replace(ANSWER, driver="575 to 580.65", measured="2027-01-01"))
