"""Whatever an answer is bound to: when it changes, the answer is served as stale, with the reason."""

import os
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from answering_scene import H200, Answers, known, refresh, shipped, store_run

from tuner.daemon import state as state_module
from tuner.daemon.answers.replies import clock_reason
from tuner.daemon.interface import Question
from tuner.daemon.settings import SetTable, Settings, TuningTable
from tuner.database.runs import Store
from tuner.kernel_files.catalog import Catalog, Changes, ChangeWatcher
from tuner.model.jobs import DeviceIdentity
from tuner.model.records import PROTOCOL

SCAN = "scan-lf:N=64"


def stale(device: DeviceIdentity = H200, settings: Settings | None = None, **stored: Any) -> tuple[str, ...]:
    """Why the answer of a run on the H200 is stale on a device, under settings."""
    answers = Answers(shipped(), {device.spec: device}, settings)
    answers.take(known([SCAN], H200, **stored))
    reply = answers.reply(Question((SCAN,)))
    assert reply.origin == "stored"
    return tuple(reply.stale)


def test_unchanged_is_fresh() -> None:
    """An answer under the very conditions of its run has no reason to be stale."""
    assert stale() == ()


@pytest.mark.parametrize(
    ("device", "words"),
    [
        (replace(H200, driver="560.1"), "driver was 550.54, is 560.1"),
        (replace(H200, runtime="13.0"), "CUDA was 12.9, is 13.0"),
        (replace(H200, uuid="GPU-9"), "GPU was GPU-1, is GPU-9"),
    ],
)
def test_driver_cuda_and_gpu(device: DeviceIdentity, words: str) -> None:
    """Another driver, another CUDA or another board make an answer stale."""
    assert stale(device) == (words,)


def test_the_number_of_a_gpu_does_not_matter() -> None:
    """A GPU that is counted anew keeps its answers: they are bound to its UUID."""
    assert stale(replace(H200, spec="cuda:3")) == ()


def test_clock_policy() -> None:
    """An answer that sets a clock is stale once daemon.toml has no such clock any more."""
    clocked: dict[str, Any] = {"bound": {"clocks": "1980,1005"}, "clock_mhz": 1005}
    assert stale(settings=Settings(tuning=TuningTable(clocks="all")), **clocked) == ()
    (reason,) = stale(**clocked)
    assert reason == "it sets the GPU clock to 1005 MHz, and [tuning] clocks is 'off' now"


def test_a_power_limit_is_none_that_a_job_sets() -> None:
    """The answer of a run of a user's own is served as stale, and named with its limit."""
    (reason,) = stale(power_limit_w=450)
    assert reason == "it sets a power limit of 450 W, which no job does"


@pytest.mark.parametrize(
    ("clocks", "allowed"),
    [
        ("off", False),
        ("all", True),
        ("1980,1005", True),
        ("1980", False),
        ("900:1100", True),
        ("1100:1980:15", False),
    ],
)
def test_every_form_of_clocks(clocks: str, allowed: bool) -> None:
    """A clock is allowed that the choice of [tuning], or of a set, has; or any, where clients may choose."""
    assert (clock_reason(1005, Settings(tuning=TuningTable(clocks=clocks))) == "") == allowed
    group = SetTable(name="a", workloads=(SCAN,), clocks=clocks)
    assert (clock_reason(1005, Settings(set=(group,))) == "") == allowed
    assert clock_reason(1005, Settings(tuning=TuningTable(clocks=clocks, client_clocks=True))) == ""
    assert clock_reason(None, Settings(tuning=TuningTable(clocks=clocks))) == ""


def test_protocol() -> None:
    """Numbers that were measured in another way are stale."""
    old = known([SCAN], H200)
    answers = Answers(shipped(), {H200.spec: H200})
    conditions: Any = {**old.conditions, "protocol": PROTOCOL - 1}
    answers.take(replace(old, conditions=conditions))
    assert answers.reply(Question((SCAN,))).stale == ("another version of tuner measured it, in another way",)


def test_company() -> None:
    """What was tuned alone is stale in company, and says with whom it was asked for."""
    answers = Answers(shipped(), {H200.spec: H200})
    answers.take(known([SCAN], H200), known(["fft:N=64"], H200, run=2))
    reply = answers.reply(Question((SCAN, "fft:N=64")))
    assert reply.origin == "stored"
    assert reply.stale == (
        f"{SCAN} was tuned alone, is asked for with fft:N=64",
        f"fft:N=64 was tuned alone, is asked for with {SCAN}",
    )


def test_what_becomes_true_again_is_fresh_again(tmp_path: Path) -> None:
    """After a driver went there and back, the answer of then is served as fresh, not the newer stale one."""
    with Store(tmp_path / "tuner.db") as store:
        first = store_run(store, [SCAN], H200)
        newer = replace(H200, driver="560.1")
        second = store_run(store, [SCAN], newer)
        answers = Answers(shipped(), {H200.spec: H200})
        question = Question((SCAN,))
        for device, run in ((H200, first), (newer, second), (H200, first)):
            answers.adopt(identities={device.spec: device})
            refresh(answers.answerer, store)
            reply = answers.reply(question)
            assert (reply.run, reply.stale) == (run, ())


# --- seeing that something changed ----------------------------------------------------------------


@pytest.fixture
def machine(tmp_path: Path) -> tuple[Path, ChangeWatcher]:
    """A folder with a kernel, a driver and a GPU, and who watches them."""
    root = shipped().kernel("scan-lf").path.parent.parent
    for name in ("scan-lf", "common"):
        shutil.copytree(root / name, tmp_path / "kernels.d" / name)
    (tmp_path / "shipped").mkdir()
    (tmp_path / "version").write_text("550.54\n")
    gpu = tmp_path / "gpus" / "0000:01:00.0"
    gpu.mkdir(parents=True)
    (gpu / "information").write_text("Model: \t H200\nGPU UUID: \t GPU-1\nIRQ: 7\n")
    watch = ChangeWatcher(
        [tmp_path / "kernels.d"],
        shipped=tmp_path / "shipped",
        driver_files=[tmp_path / "version", tmp_path / "absent"],
        gpu_files=tmp_path / "gpus",
    )
    return tmp_path, watch


def test_nothing_changed(machine: tuple[Path, ChangeWatcher]) -> None:
    """A look at what is as it was sees nothing, again and again."""
    _, watch = machine
    assert watch.look() == watch.look() == Changes()


def test_sources_are_seen_and_read_again(machine: tuple[Path, ChangeWatcher]) -> None:
    """A header of a kernel changes: it is seen once, and the answer is stale with the kernel's name."""
    folder, watch = machine
    catalog = Catalog.load(search_path=(folder / "kernels.d",))
    before = known([SCAN], H200, bound={"sources": {"scan-lf": catalog.kernel("scan-lf").fingerprint}})
    answers = Answers(catalog, {H200.spec: H200})
    answers.take(before)
    assert answers.reply(Question((SCAN,))).stale == ()

    source = next((folder / "kernels.d" / "scan-lf").glob("*.cu"))
    source.write_text(source.read_text() + "\n// changed\n")
    assert watch.look() == Changes(sources=True)
    assert watch.look() == Changes()
    answers.adopt(catalog=Catalog.load(search_path=(folder / "kernels.d",)))
    assert answers.reply(Question((SCAN,))).stale == ("the source of scan-lf has changed",)


def test_a_change_that_hides_its_time_is_seen(machine: tuple[Path, ChangeWatcher]) -> None:
    """A file of the same length whose time was set back is seen by the time of its inode."""
    folder, watch = machine
    path = folder / "kernels.d" / "scan-lf" / "kernel.toml"
    status = path.stat()
    text = path.read_text()
    path.write_text(text.replace("Scan", "Scam", 1) if "Scan" in text else text[:-1] + "#")
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert watch.look().sources


@pytest.mark.parametrize("how", ["new", "gone", "folder", "link"])
def test_files_that_come_and_go_are_seen(machine: tuple[Path, ChangeWatcher], how: str) -> None:
    """A kernel that is added, removed or led to by a link changes the catalogue; a loop of links ends."""
    folder, watch = machine
    kernels = folder / "kernels.d"
    if how == "new":
        (kernels / "new.toml").write_text("")
    elif how == "gone":
        (kernels / "scan-lf" / "kernel.toml").unlink()
    elif how == "folder":
        shutil.rmtree(kernels)
    else:
        (kernels / "loop").symlink_to(kernels)
        (kernels / "nowhere").symlink_to(folder / "absent")
    assert watch.look() == Changes(sources=True)
    assert watch.look() == Changes()


def test_driver_and_gpus_are_seen(machine: tuple[Path, ChangeWatcher]) -> None:
    """A new driver, a GPU more or less, and another board in the same slot have the devices asked again."""
    folder, watch = machine
    information = folder / "gpus" / "0000:01:00.0" / "information"
    (folder / "version").write_text("560.1\n")
    assert watch.look() == Changes(devices=True)
    information.write_text("Model: \t H200\nGPU UUID: \t GPU-1\nIRQ: 8\n")
    assert watch.look() == Changes()
    information.write_text("Model: \t H200\nGPU UUID: \t GPU-2\nIRQ: 8\n")
    assert watch.look() == Changes(devices=True)
    shutil.rmtree(information.parent)
    assert watch.look() == Changes(devices=True)
    (folder / "absent").write_text("appears")
    assert watch.look() == Changes(devices=True)


def test_what_changes_while_kernels_are_read_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The watch is begun before the files are read: a kernel changed in between counts as changed."""
    folder = tmp_path / "kernels.d"
    folder.mkdir()
    monkeypatch.setattr(state_module, "usable_directories", lambda named: (tuple(named), {}))

    def load(search_path: Sequence[Path], cached: Sequence[Any]) -> Catalog:
        (folder / "new.toml").write_text("")
        return Catalog.load(search_path=search_path[:1], cached=cached)

    monkeypatch.setattr(state_module, "Catalog", SimpleNamespace(load=load))
    settings = Settings.model_validate({"kernels": {"directories": [str(folder)]}})
    files = state_module.usable_kernels(settings)

    assert files.watch.look() == Changes(sources=True)
    assert files.watch.look() == Changes()
