"""Clocks, power limits and power modes of Jetsons: found, set, restored where still ours."""

import errno
import os
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from cli_process import tuner
from fake_actuator import Holder
from hypothesis import given
from hypothesis import strategies as st
from jetson_trees import (
    BOARDS,
    build,
    build_modes,
    count_over_current,
    gpu_node,
    limits_hz,
    mode,
    rail_files,
    set_cooling,
    set_limits_hz,
    write,
)
from tuner.power.clocks import control
from tuner.power.clocks.actuator import ClockPaths, ClockRules
from tuner.power.clocks.control import open_control, open_power_profiles, survey, undo
from tuner.power.clocks.devfreq import (
    DevfreqActuator,
    FrequencyLimits,
    JetsonPowerLimit,
    NvpmodelActuator,
    find,
    put_number,
    writes,
)
from tuner.power.clocks.journal import LASTING, OF_ROOT, SettingJournal, restore_stale
from tuner.power.sensors.rails import choices

from tuner.model.errors import ClockError, ClockPermissionError, ClockRefusedError, InputError

BOARD = "agx-orin"
LOWEST, HIGHEST = 306_000_000, 1_300_500_000
MHZ, HERTZ = 612, 612_000_000


class Kernel:
    """Writes limits as a kernel does.

    Attributes:
        strict: limits may not cross, as before 5.5.
        keeps: what becomes of a limit that is written.
        failing: errors of the next writes, by limit.
        written: limits, in turn.
    """

    def __init__(self) -> None:
        self.strict = False
        self.keeps: Callable[[int], int] = lambda hertz: hertz
        self.failing: dict[str, int] = {}
        self.written: list[str] = []

    def __call__(self, path: Path, value: int) -> None:
        number = self.failing.pop(path.name, 0)
        other = path.with_name("max_freq" if path.name == "min_freq" else "min_freq")
        bound = int(other.read_text().split()[0])
        if self.strict and ((value > bound) if path.name == "min_freq" else (value < bound)):
            number = errno.EINVAL
        if number:
            raise OSError(number, os.strerror(number))
        self.written.append(path.name)
        put_number(path, self.keeps(value))


@pytest.fixture
def sysfs(tmp_path: Path) -> Path:
    return build(tmp_path, BOARD)


@pytest.fixture
def kernel() -> Kernel:
    return Kernel()


@pytest.fixture
def gpu(sysfs: Path, kernel: Kernel) -> DevfreqActuator:
    return clocks_of(sysfs, put=kernel)


def clocks_of(sysfs: Path, **options: Any) -> DevfreqActuator:
    """The clocks of a board's GPU."""
    return DevfreqActuator("GPU-of-cuda", root=sysfs / "class/devfreq", **options)


def contents(sysfs: Path) -> dict[Path, str]:
    return {path: path.read_text() for path in sysfs.rglob("*") if path.is_file()}


@pytest.mark.parametrize("board", BOARDS)
def test_every_board_is_found_and_reading_changes_nothing(board: str, tmp_path: Path) -> None:
    """Whatever the node is called, its clocks come in MHz, highest first, and looking writes nothing."""
    sysfs = build(tmp_path, board)
    before = contents(sysfs)
    gpu = clocks_of(sysfs)
    clocks_hz = BOARDS[board].gpu.clocks_hz

    assert gpu.gpu == gpu_node(sysfs).name
    assert gpu.supported() == tuple(round(hz / 1e6) for hz in reversed(clocks_hz))
    assert gpu.read().mhz == clocks_hz[0] / 1e6
    assert (gpu.before()["min_hz"], gpu.before()["max_hz"]) == (clocks_hz[0], clocks_hz[-1])
    assert gpu.permitted()
    assert contents(sysfs) == before


@pytest.mark.parametrize("board", BOARDS)
def test_every_clock_of_every_board_is_held_and_given_back(
    board: str, tmp_path: Path, kernel: Kernel
) -> None:
    """From whatever limits, each clock is held by both limits, and both come back, governor untouched."""
    sysfs = build(tmp_path, board)
    clocks_hz = BOARDS[board].gpu.clocks_hz
    set_limits_hz(sysfs, clocks_hz[2], clocks_hz[4])
    before = contents(sysfs)
    frequencies = [path for path in before if "_freq" in path.name]

    def seen() -> list[list[str]]:
        return [path.read_text().split() for path in frequencies]

    found = seen()
    kernel.strict = True
    gpu = clocks_of(sysfs, put=kernel)
    for mhz, hertz in zip(gpu.supported(), reversed(clocks_hz), strict=True):
        old = gpu.before()
        gpu.set(mhz)
        assert limits_hz(sysfs) == (hertz, hertz)
        assert gpu.restore(old, mhz) == []
        assert seen() == found
    assert {path: text.split() for path, text in contents(sysfs).items()} == {
        path: text.split() for path, text in before.items()
    }
    assert kernel.written


ORDERED = st.tuples(st.integers(1, 50), st.integers(1, 50)).map(
    lambda pair: FrequencyLimits(min(pair), max(pair))
)


@given(present=ORDERED, target=ORDERED)
def test_limits_never_cross_on_the_way(present: FrequencyLimits, target: FrequencyLimits) -> None:
    """From any limits to any others, each is written at most once and the lower never passes the upper."""
    state = {"min_freq": present.min_hz, "max_freq": present.max_hz}
    changes = writes(present, target)
    for name, hertz in changes:
        state[name] = hertz
        assert state["min_freq"] <= state["max_freq"]

    assert FrequencyLimits(state["min_freq"], state["max_freq"]) == target
    assert len(changes) == (present.min_hz != target.min_hz) + (present.max_hz != target.max_hz)


@pytest.mark.parametrize(
    ("meanwhile", "after", "told"),
    [
        ((HERTZ, 918_000_000), (LOWEST, 918_000_000), "max_freq is 918000000, and was 1300500000"),
        ((408_000_000, HERTZ), (408_000_000, HIGHEST), "min_freq is 408000000, and was 306000000"),
    ],
)
def test_a_limit_of_somebody_else_is_left(
    gpu: DevfreqActuator, sysfs: Path, meanwhile: tuple[int, int], after: tuple[int, int], told: str
) -> None:
    """A limit that nvpmodel has changed meanwhile is left and told; the other one is restored."""
    old = gpu.before()
    gpu.set(MHZ)
    set_limits_hz(sysfs, *meanwhile)

    (left,) = gpu.restore(old, MHZ)

    assert left == f"{told}: left so"
    assert limits_hz(sysfs) == after


def test_a_governor_of_somebody_else_is_told(gpu: DevfreqActuator, sysfs: Path) -> None:
    """Governor and power gating are not ours to set: that they changed is all there is to say."""
    old = gpu.before()
    gpu.set(MHZ)
    write(gpu_node(sysfs) / "governor", "performance")
    write(gpu_node(sysfs) / "device/railgate_enable", 0)

    assert gpu.restore(old, MHZ) == [
        "governor is performance, and was nvhost_podgov: left so",
        "railgate is 0, and was 1: left so",
    ]
    assert limits_hz(sysfs) == (LOWEST, HIGHEST)


@pytest.mark.parametrize("board", ["nano", "agx-orin", "thor"])
def test_half_a_change_is_undone(board: str, tmp_path: Path) -> None:
    """Whichever write came last when the process was killed, restoring leads back."""
    sysfs = build(tmp_path, board)
    gpu = clocks_of(sysfs)
    low, high = limits_hz(sysfs)
    mhz = gpu.supported()[3]
    hertz = BOARDS[board].gpu.clocks_hz[-4]
    for state in ((low, high), (hertz, high), (low, hertz), (hertz, hertz)):
        old = gpu.before()
        set_limits_hz(sysfs, *state)
        assert gpu.restore(old, mhz) == []
        assert limits_hz(sysfs) == (low, high)


def test_a_kernel_that_keeps_kilohertz_is_understood(
    gpu: DevfreqActuator, sysfs: Path, kernel: Kernel
) -> None:
    """A limit that reads less than 1 kHz off the one written is still ours."""
    write(gpu_node(sysfs) / "available_frequencies", f"{LOWEST} 612000500 {HIGHEST}")
    kernel.keeps = lambda hertz: hertz // 1000 * 1000
    old = gpu.before()
    gpu.set(MHZ)
    assert limits_hz(sysfs) == (HERTZ, HERTZ)

    assert gpu.restore(old, MHZ) == []
    assert limits_hz(sysfs) == (LOWEST, HIGHEST)


def test_limits_that_heat_lowers_are_still_ours(gpu: DevfreqActuator, sysfs: Path) -> None:
    """While the thermal framework lowers what the kernel shows, the limits below are ours and restored."""
    old = gpu.before()
    gpu.set(MHZ)
    set_cooling(sysfs, 1)
    hot = clocks_of(sysfs)
    set_limits_hz(sysfs, 408_000_000, 408_000_000)
    assert hot.restore(old, MHZ) == []
    assert limits_hz(sysfs) == (LOWEST, HIGHEST)

    set_cooling(sysfs, 0)
    set_limits_hz(sysfs, 408_000_000, 408_000_000)
    assert len(hot.restore(old, MHZ)) == 2


def test_restoring_goes_on_past_a_failure(gpu: DevfreqActuator, sysfs: Path, kernel: Kernel) -> None:
    """One limit that cannot be written does not keep the other from being restored; again, both are."""
    old = gpu.before()
    gpu.set(MHZ)
    kernel.failing = {"max_freq": errno.EIO}
    with pytest.raises(ClockError, match=r"max_freq refuses 1300500000: Input/output error"):
        gpu.restore(old, MHZ)
    assert limits_hz(sysfs) == (LOWEST, HERTZ)

    assert gpu.restore(old, MHZ) == []
    assert limits_hz(sysfs) == (LOWEST, HIGHEST)


def test_a_clock_set_in_part_is_given_back(
    gpu: DevfreqActuator, sysfs: Path, tmp_path: Path, kernel: Kernel
) -> None:
    """When the second limit is refused, the first is restored before the error is heard of."""
    holder = Holder(lambda: gpu, tmp_path / "run")
    kernel.failing = {"max_freq": errno.EINVAL}
    with pytest.raises(ClockError, match="cannot be set to 612 MHz"):
        holder.set(MHZ)
    assert limits_hz(sysfs) == (LOWEST, HIGHEST)
    assert holder.end()


def test_a_kernel_that_bends_a_limit_is_found_out(gpu: DevfreqActuator, sysfs: Path, kernel: Kernel) -> None:
    """Limits that read otherwise than written are no clock held, unless heat explains them."""
    kernel.keeps = lambda _: 408_000_000
    with pytest.raises(ClockError, match="limits are 408 to 408 MHz instead"):
        gpu.set(MHZ)
    set_cooling(sysfs, 1)
    clocks_of(sysfs, put=kernel).set(MHZ)


@pytest.mark.parametrize("number", [errno.EACCES, errno.EPERM, errno.EROFS])
def test_missing_permission_says_what_to_do(
    gpu: DevfreqActuator, sysfs: Path, kernel: Kernel, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """Without permission nothing is written, or told as what it is where the file system says so later."""
    before = contents(sysfs)
    with monkeypatch.context() as patch:
        patch.setattr(os, "access", lambda *_: False)
        assert not gpu.permitted()
        with pytest.raises(ClockPermissionError, match="run as root"):
            gpu.set(MHZ)
    assert contents(sysfs) == before

    kernel.failing = {"min_freq": number}
    with pytest.raises(ClockError, match="run as root") as caught:
        gpu.set(MHZ)
    assert not isinstance(caught.value, ClockRefusedError)  # the other limit was changed


@pytest.mark.parametrize("text", ["", "fast\n"])
def test_unreadable_limits_are_an_error(gpu: DevfreqActuator, sysfs: Path, text: str) -> None:
    """Where it cannot be known what to restore, nothing is set."""
    (gpu_node(sysfs) / "min_freq").write_text(text)
    before = contents(sysfs)
    for call in (gpu.before, lambda: gpu.set(MHZ), lambda: gpu.restore({"min_hz": 1, "max_hz": 2}, MHZ)):
        with pytest.raises(ClockError, match="cannot be read"):
            call()
    assert contents(sysfs) == before


@pytest.mark.parametrize(
    "old", [{}, {"min_hz": 1}, {"min_hz": "low", "max_hz": 2}, {"min_hz": None, "max_hz": 2}]
)
def test_a_journal_that_is_not_understood_changes_nothing(
    gpu: DevfreqActuator, sysfs: Path, old: dict[str, Any]
) -> None:
    """An entry without limits is an error, and nothing is written."""
    before = contents(sysfs)
    with pytest.raises(ClockError, match="not understood"):
        gpu.restore(old, MHZ)
    assert contents(sysfs) == before


def test_a_gpu_without_power_has_no_clock(gpu: DevfreqActuator, sysfs: Path) -> None:
    """A gated GPU reads 0 or nothing; that is no clock."""
    write(gpu_node(sysfs) / "cur_freq", 0)
    assert gpu.read().mhz is None
    (gpu_node(sysfs) / "cur_freq").unlink()
    assert gpu.read().mhz is None


def test_a_board_that_lists_no_clocks_offers_none(gpu: DevfreqActuator, sysfs: Path) -> None:
    """Without available clocks there is nothing to set, and nothing to reset to."""
    (gpu_node(sysfs) / "available_frequencies").unlink()
    assert gpu.supported() == ()
    with pytest.raises(ClockError, match="no available clocks"):
        gpu.reset()


def test_a_reset_opens_the_whole_range(gpu: DevfreqActuator, sysfs: Path) -> None:
    """An explicit reset gives the governor every clock, whoever had set the limits."""
    set_limits_hz(sysfs, HERTZ, HERTZ)
    gpu.reset()
    assert limits_hz(sysfs) == (LOWEST, HIGHEST)


def test_limits_of_the_administrator_hold(sysfs: Path) -> None:
    """Clocks outside the configured limits are not offered."""
    rules: Callable[[str], ClockRules] = {"17000000.gpu": ClockRules(limits_mhz=(400, 612))}.__getitem__
    assert clocks_of(sysfs, rules=rules).supported() == (
        612,
        510,
        408,
    )


def test_limits_that_heat_hides_are_not_taken_for_those_before(gpu: DevfreqActuator, sysfs: Path) -> None:
    """What the kernel shows while heat lowers a limit would stay for ever if it were restored."""
    set_cooling(sysfs, 1, "thermal-devfreq-0")
    hot = clocks_of(sysfs)
    assert hot.before()["max_hz"] == HIGHEST, "heat has lowered nothing yet"
    cool = hot.before()
    hot.set(MHZ)
    assert hot.restore(cool, MHZ) == []
    set_limits_hz(sysfs, LOWEST, 408_000_000)
    assert hot.before() == cool, "in the middle of a sweep: the limits are those seen before"
    unknowing = clocks_of(sysfs)
    with pytest.raises(ClockError, match="306 to 408 MHz now: let it cool down"):
        unknowing.before()
    set_cooling(sysfs, 0, "thermal-devfreq-0")
    assert unknowing.before()["max_hz"] == 408_000_000, "somebody set it"
    assert gpu.before()["max_hz"] == 408_000_000


def test_throttling_is_told_as_far_as_the_kernel_knows(sysfs: Path) -> None:
    """Heat is told while it lowers the clock, over-current once; fans and CPUs do not count."""
    set_cooling(sysfs, 0)
    set_cooling(sysfs, 3, "pwm-fan")
    set_cooling(sysfs, 1, "cpu-throttle-alert")
    count_over_current(sysfs, 4)
    gpu = clocks_of(sysfs)
    assert gpu.read().throttle_reasons == ()
    set_cooling(sysfs, 1)
    count_over_current(sysfs, 5)
    assert gpu.read().throttle_reasons == ("sw-thermal-slowdown", "over-current")
    assert gpu.read().throttle_reasons == ("sw-thermal-slowdown",)
    set_cooling(sysfs, 0)
    assert gpu.read().throttle_reasons == ()


def test_the_temperature_of_the_gpus_zone_is_read_with_the_clock(sysfs: Path) -> None:
    """Millidegrees of the zone whose type begins with GPU; a gated one, which shows -256 °C, tells none."""
    zones = sysfs / "class/thermal"
    for number, (kind, celsius) in enumerate((("CPU-therm", 60), ("GPU-therm", 43.5))):
        folder = zones / f"thermal_zone{number}"
        folder.mkdir(parents=True)
        (folder / "type").write_text(f"{kind}\n")
        (folder / "temp").write_text(f"{1000 * celsius:.0f}\n")
    gpu = clocks_of(sysfs)

    assert gpu.read().temperature_c == 43.5
    (zones / "thermal_zone1/temp").write_text("-256000\n")
    assert gpu.read().temperature_c is None


def test_a_node_that_is_no_gpu_is_not_taken(tmp_path: Path) -> None:
    """Neither memory and display controllers nor another maker's GPU are this GPU; a late node is found."""
    root = tmp_path / "sys/class/devfreq"
    assert find(root) is None
    for name in ("bwmgr", "15210000.nvdisplay", "ff9a0000.gpu"):
        write(root / name / "cur_freq", 1)
    write(root / "ff9a0000.gpu/device/of_node/compatible", "arm,mali-midgard\0")
    with pytest.raises(ClockError, match="no node of a Jetson's GPU"):
        DevfreqActuator("GPU-of-cuda", root=root)

    write(root / "17000000.gpu/device/of_node/compatible", "nvidia,ga10b\0")
    assert find(root) == root / "17000000.gpu"


def test_the_device_tree_names_a_gpu(tmp_path: Path) -> None:
    """A node of another name is the GPU's where the device tree says so; its texts end with NUL."""
    root = tmp_path / "sys/class/devfreq"
    (root / "gr3d/device/of_node").mkdir(parents=True)
    (root / "gr3d/device/of_node/name").write_bytes(b"gv11b\0")
    assert find(root) == root / "gr3d"


def test_another_node_is_refused(sysfs: Path) -> None:
    """A journal of another node than the GPU's is not applied to the GPU."""
    root = sysfs / "class/devfreq"
    write(root / "bwmgr/cur_freq", 1)
    with pytest.raises(ClockError, match=r"bwmgr is no GPU; that of this board is 17000000\.gpu"):
        DevfreqActuator("bwmgr", root=root)


def limit_of(sysfs: Path, rail: str, milliamperes: int | str) -> Path:
    """State a limit for a rail; the file it is in."""
    current = rail_files(sysfs, rail)[1]
    path = current.with_name(current.name.replace("_input", "_max"))
    write(path, milliamperes)
    return path


def read(sysfs: Path) -> tuple[float | None, str]:
    return JetsonPowerLimit(sysfs).read()


def test_the_limit_of_the_input_is_stated_with_its_scope(tmp_path: Path) -> None:
    """3 A at 5 V are 15 W of the total input; the GPU rail's limit beside it is another matter."""
    sysfs = build(tmp_path, "orin-nx")
    millivolts = int(rail_files(sysfs, "VDD_IN")[0].read_text())
    limit_of(sysfs, "VDD_CPU_GPU_CV", 2000)
    limit_of(sysfs, "VDD_IN", 3000)
    scope = choices(["VDD_IN"])[0].scope

    assert read(sysfs)[0] == pytest.approx(3e-3 * millivolts)
    assert read(sysfs)[1] == scope
    reading = DevfreqActuator("GPU-of-cuda", root=sysfs / "class/devfreq").read()
    assert (reading.power_limit_w, reading.limit_scope) == read(sysfs)


@pytest.mark.parametrize("stated", [32760, 0, -5, "none"])
def test_what_is_no_limit_is_none(stated: int | str, tmp_path: Path) -> None:
    """The end of the chip's scale, nothing, and what is no number."""
    sysfs = build(tmp_path, "orin-nx")
    assert read(sysfs) == (None, "gpu"), "no file"
    limit_of(sysfs, "VDD_IN", stated)
    assert read(sysfs) == (None, "gpu")
    limit_of(sysfs, "VDD_CPU_GPU_CV", 2000)
    assert read(sysfs)[1] == choices(["VDD_CPU_GPU_CV"])[0].scope


def test_a_limit_is_read_once_a_second(tmp_path: Path) -> None:
    """Each read is a transfer on a slow bus; a mode that is changed is seen a second later."""
    sysfs = build(tmp_path, "orin-nx")
    path = limit_of(sysfs, "VDD_IN", 3000)
    now = [0.0]
    limit = JetsonPowerLimit(sysfs, lambda: now[0])
    first = limit.read()
    write(path, 2000)

    assert limit.read() == first
    now[0] = 1.0
    assert limit.read()[0] == pytest.approx((first[0] or 0.0) * 2 / 3)


# --- Power modes of a Jetson: those without a reboot, set by nvpmodel, and given back like a clock.

FOUND, OTHER, REBOOTS = 2, 1, 0


@pytest.fixture
def modes_sysfs(tmp_path: Path) -> Path:
    found = build(tmp_path, "agx-orin")
    build_modes(found, FOUND)
    return found


@pytest.fixture
def root(modes_sysfs: Path) -> Path:
    return modes_sysfs.parent


@pytest.fixture
def actuator(modes_sysfs: Path) -> NvpmodelActuator:
    return NvpmodelActuator("board", devfreq=modes_sysfs / "class/devfreq")


@pytest.fixture
def where(modes_sysfs: Path, root: Path, monkeypatch: pytest.MonkeyPatch) -> ClockPaths:
    """Everything in a folder of the test."""
    library = str(root / "no-driver")
    found = ClockPaths(
        library, modes_sysfs / "class/devfreq", root / "clockd.toml", root / "run", root / "nothing"
    )
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


def test_one_is_set_and_given_back(actuator: NvpmodelActuator, modes_sysfs: Path, root: Path) -> None:
    """By nvpmodel, which is first asked for the mode that holds, as the way back may need a reboot."""
    before = limits_hz(modes_sysfs)
    old = actuator.before()
    actuator.set(OTHER)
    assert (mode(root), limits_hz(modes_sysfs)[1]) == (OTHER, 400_000_000)
    assert actuator.restore(old, OTHER) == []
    assert (mode(root), limits_hz(modes_sysfs)) == (FOUND, before)
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


def test_what_others_change_is_left_and_told(
    actuator: NvpmodelActuator, modes_sysfs: Path, root: Path
) -> None:
    """A mode of somebody else stays; limits that were no mode's cannot come back, and that is told."""
    low, high = limits_hz(modes_sysfs)
    old = actuator.before()
    actuator.set(OTHER)
    write(root / "var/lib/nvpmodel/status", "pmode:0003")
    assert actuator.restore(old, OTHER) == ["the power mode is MODE_40W, not MODE_15W: left so"]

    write(root / "var/lib/nvpmodel/status", "")  # by a call that was killed while it wrote
    assert (actuator.restore(old, OTHER), mode(root)) == ([], FOUND)

    set_limits_hz(modes_sysfs, low, 612_000_000)
    old = actuator.before()
    actuator.set(OTHER)
    assert actuator.restore(old, OTHER) == [f"max_hz is {high}, and was 612000000: MODE_30W has it so"]


def test_locked_clocks_are_not_undone(actuator: NvpmodelActuator, modes_sysfs: Path) -> None:
    """What jetson_clocks has set, no mode would bring back."""
    set_limits_hz(modes_sysfs, 612_000_000, 612_000_000)
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
    where: ClockPaths, root: Path, modes_sysfs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As does its journal entry, which root keeps where a boot clears nothing."""
    gpu = gpu_node(modes_sysfs).name
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
