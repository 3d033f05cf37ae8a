"""Power modes of a Jetson: those without a reboot, set by nvpmodel, and given back like a clock."""

from contextlib import closing
from pathlib import Path

import pytest
from cli_process import tuner
from jetson_trees import build, build_modes, gpu_node, limits_hz, mode, set_limits_hz, write
from tuner.power.clocks import control
from tuner.power.clocks.actuator import ClockPaths
from tuner.power.clocks.control import open_control, open_power_profiles, survey, undo
from tuner.power.clocks.devfreq import NvpmodelActuator
from tuner.power.clocks.journal import LASTING, OF_ROOT, SettingJournal, restore_stale

from tuner.model.errors import ClockError, ClockPermissionError, ClockRefusedError, InputError

FOUND, OTHER, REBOOTS = 2, 1, 0


@pytest.fixture
def sysfs(tmp_path: Path) -> Path:
    found = build(tmp_path, "agx-orin")
    build_modes(found, FOUND)
    return found


@pytest.fixture
def root(sysfs: Path) -> Path:
    return sysfs.parent


@pytest.fixture
def actuator(sysfs: Path) -> NvpmodelActuator:
    return NvpmodelActuator("board", devfreq=sysfs / "class/devfreq")


@pytest.fixture
def where(sysfs: Path, root: Path, monkeypatch: pytest.MonkeyPatch) -> ClockPaths:
    """Everything in a folder of the test."""
    library = str(root / "no-driver")
    found = ClockPaths(library, sysfs / "class/devfreq", root / "clockd.toml", root / "run", root / "nothing")
    monkeypatch.setattr(control, "SYSTEM", found)
    return found


def asked(root: Path) -> list[str]:
    path = root / "asked"
    return path.read_text().splitlines() if path.exists() else []


def test_modes_without_a_reboot_are_named(actuator: NvpmodelActuator, root: Path) -> None:
    """One that gates other parts of the GPU is refused by name, and nvpmodel is not asked for it."""
    assert actuator.names() == {"MODE_15W": 1, "MODE_30W": 2, "MODE_40W": 3}
    assert actuator.why_not("MAXN") == "MAXN takes a reboot from MODE_30W, and is not set here"
    assert actuator.why_not("MODE_99W") == ""
    with pytest.raises(ClockRefusedError, match="MAXN takes a reboot from MODE_30W"):
        actuator.set(REBOOTS)
    assert asked(root) == []


def test_one_is_set_and_given_back(actuator: NvpmodelActuator, sysfs: Path, root: Path) -> None:
    """By nvpmodel, which is first asked for the mode that holds, as the way back may need a reboot."""
    before = limits_hz(sysfs)
    old = actuator.before()
    actuator.set(OTHER)
    assert (mode(root), limits_hz(sysfs)[1]) == (OTHER, 400_000_000)
    assert actuator.restore(old, OTHER) == []
    assert (mode(root), limits_hz(sysfs)) == (FOUND, before)
    assert asked(root) == ["-m 2", "-m 1", "-m 2"]


def test_a_way_back_that_takes_a_reboot_is_not_left(actuator: NvpmodelActuator, root: Path) -> None:
    """A reboot may be asked for even for the present mode: nothing is set, and nobody says yes."""
    (root / "pending").touch()
    actuator.before()
    with pytest.raises(
        ClockRefusedError, match="would not come back to MODE_30W: it asks for a reboot: NVPM"
    ):
        actuator.set(OTHER)
    assert (mode(root), (root / "rebooted").exists()) == (FOUND, False)


@pytest.mark.parametrize(
    ("trouble", "says"), [("fails", "Error writing 0"), ("hangs", "took more than 0.1 s")]
)
def test_what_nvpmodel_leaves_half_done_is_mended(
    actuator: NvpmodelActuator, root: Path, trouble: str, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A call that fails, or that hangs and is ended, is an error; the next one does the whole of it."""
    before = limits_hz(root / "sys")
    old = actuator.before()
    actuator.set(FOUND)
    monkeypatch.setattr("tuner.power.clocks.devfreq._PATIENCE_S", 0.1)
    (root / trouble).touch()
    with pytest.raises(ClockError, match=says):
        actuator.set(OTHER)
    monkeypatch.undo()
    (root / trouble).unlink()
    assert actuator.restore(old, OTHER) == []
    assert (mode(root), limits_hz(root / "sys")) == (FOUND, before)


def test_what_others_change_is_left_and_told(actuator: NvpmodelActuator, sysfs: Path, root: Path) -> None:
    """A mode of somebody else stays; limits that were no mode's cannot come back, and that is told."""
    low, high = limits_hz(sysfs)
    old = actuator.before()
    actuator.set(OTHER)
    write(root / "var/lib/nvpmodel/status", "pmode:0003")
    assert actuator.restore(old, OTHER) == ["the power mode is MODE_40W, not MODE_15W: left so"]

    write(root / "var/lib/nvpmodel/status", "")  # by a call that was killed while it wrote
    assert (actuator.restore(old, OTHER), mode(root)) == ([], FOUND)

    set_limits_hz(sysfs, low, 612_000_000)
    old = actuator.before()
    actuator.set(OTHER)
    assert actuator.restore(old, OTHER) == [f"max_hz is {high}, and was 612000000: MODE_30W has it so"]


def test_locked_clocks_are_not_undone(actuator: NvpmodelActuator, sysfs: Path) -> None:
    """What jetson_clocks has set, no mode would bring back."""
    set_limits_hz(sysfs, 612_000_000, 612_000_000)
    with pytest.raises(ClockError, match="locked, by jetson_clocks perhaps"):
        actuator.before()


def test_a_user_without_permission(actuator: NvpmodelActuator, root: Path) -> None:
    """The message names who can help."""
    (root / "usr/sbin/nvpmodel").chmod(0o644)
    assert not actuator.permitted()
    with pytest.raises(ClockPermissionError, match=r"tuner-clockd\.socket"):
        actuator.set(OTHER)


def test_one_is_held_through_a_lease(where: ClockPaths, root: Path) -> None:
    """The guardian sets and restores it, and nobody holds the clock meanwhile, which it sets too."""
    with closing(open_power_profiles("board")) as modes:
        assert modes.number("MODE_15W") == OTHER
        with pytest.raises(InputError, match=r"MAXN cannot be set on GPU .*: MAXN takes a reboot"):
            modes.number("MAXN")
        with pytest.raises(InputError, match="choose from MODE_15W, MODE_30W, MODE_40W"):
            modes.number("max-q")
        with modes.locked(OTHER):
            assert mode(root) == OTHER
            assert [state.control for state in survey()] == ["devfreq"]
            with closing(open_control("board")) as clocks, pytest.raises(ClockError, match="is held by"):
                clocks.locked(clocks.supported_mhz()[0]).__enter__()
        assert mode(root) == FOUND
    assert where.directory is not None
    assert [path.suffix for path in where.directory.iterdir()] == [".lock"]


def test_one_that_was_left_outlives_a_reboot(
    where: ClockPaths, root: Path, sysfs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As does its journal entry, which root keeps where a boot clears nothing."""
    gpu = gpu_node(sysfs).name
    assert SettingJournal(OF_ROOT, "powerprofile", gpu).path.parent == LASTING
    assert SettingJournal(OF_ROOT, "powerprofile", "GPU-1").path.parent == OF_ROOT
    assert where.directory is not None
    journal = SettingJournal(where.directory, "powerprofile", gpu)
    where.directory.mkdir()
    actuator = NvpmodelActuator("board", devfreq=where.devfreq)
    journal.write("another-boot:1:1", actuator.before(), OTHER)
    actuator.set(OTHER)
    monkeypatch.setattr("tuner.power.clocks.journal.was_rebooted", lambda _: True)
    (outcome,) = restore_stale(where.directory, undo(where))
    assert (outcome.state, mode(root)) == ("restored", FOUND)


def test_one_is_reset_by_order(where: ClockPaths, root: Path) -> None:
    """To the mode of a new system."""
    assert where.devfreq.exists()
    result = tuner("clocks", "restore", "--reset-power-profile", "0")
    assert (result.exit_code, mode(root)) == (0, 3), result.output


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (
            ("--power-profiles", "MAXN"),
            "power profile MAXN cannot be set on GPU 17000000.gpu: MAXN takes a reboot",
        ),
        (("--power-profiles", "max-q"), "choose from MODE_15W, MODE_30W, MODE_40W"),
        (("--power-profiles", "all", "--clocks", "auto"), "power modes set clocks, too: leave one out"),
        (
            ("--power-profiles", "MODE_15W"),
            "the clock of GPU 17000000.gpu is locked, by jetson_clocks perhaps",
        ),
    ],
)
def test_what_cannot_be_is_refused(
    where: ClockPaths, root: Path, options: tuple[str, ...], says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A message, exit code 2, and nothing set."""
    assert where.devfreq.exists()
    monkeypatch.setenv("TUNER_DATABASE", str(root / "tuner.db"))
    if "locked" in says:
        set_limits_hz(root / "sys", 612_000_000, 612_000_000)
    result = tuner("program", "run", "--device", "0", "--objective", "time", *options, "--", "true")
    assert (result.exit_code, mode(root)) == (2, FOUND)
    assert says in " ".join(result.stderr.split())


def test_a_program_runs_in_the_mode_of_the_answer(
    where: ClockPaths, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As it found them out: a mode is a tunable, and `exec` holds it while the command runs."""
    assert where.devfreq.exists()
    monkeypatch.setenv("TUNER_DATABASE", str(root / "tuner.db"))
    status, seen = root / "var/lib/nvpmodel/status", root / "seen"
    command = (
        "sh",
        "-c",
        f"if grep -q 0001 {status}; then sleep 0.05; else sleep 0.4; fi; cp {status} {seen}",
    )
    options = ("--device", "0", "--objective", "time", "--power-profiles", "all")
    run = tuner("program", "run", *options, "--", *command)
    assert (run.exit_code, mode(root)) == (0, FOUND), run.output
    assert "power_profile=MODE_15W" in run.stdout
    executed = tuner("program", "exec", "--device", "0", "--use", "1")
    assert (executed.exit_code, mode(root)) == (0, FOUND), executed.output
    assert "held while it runs: power profile MODE_15W" in executed.stderr
    assert seen.read_text().startswith("pmode:0001")
