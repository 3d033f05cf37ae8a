"""Fake ``/sys`` trees of Jetson boards: power monitors and GPU clocks, as files that tests may rewrite.

What the boards have, and how JetPack 4, 5, 6 and 7 lay it out, is known from the drivers' documentation, from
logs and from users' reports; nothing here was copied from a board. Layout of power monitors: JetPack 4 has
an IIO device with ``in_power*_input`` below the I2C device, JetPack 5 and later have ``hwmon``. Both are
symbolic links from ``/sys/bus/i2c/devices`` into ``/sys/devices``, as GPUs are from ``/sys/class/devfreq``.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

JETPACK_4 = 4  # IIO power monitors, GPU directly below /sys/devices
JETPACK_5 = 5  # hwmon power monitors, GPU directly below /sys/devices
JETPACK_6 = 6  # hwmon power monitors, GPU below the platform bus
JETPACK_7 = 7  # the same, and a GPU with two devfreq nodes and no of_node


@dataclass(frozen=True)
class Rail:
    """One channel of a power monitor: its name, and what it reads at first."""

    name: str
    millivolts: int
    milliamperes: int

    @property
    def milliwatts(self) -> int:
        return self.millivolts * self.milliamperes // 1000


@dataclass(frozen=True)
class Monitor:
    """One power monitor chip: I2C bus and address, rails, driver, and settings of the driver."""

    address: str
    rails: tuple[Rail, ...]
    driver: str = "ina3221"
    update_interval_ms: int | None = 40
    samples: int | None = 16
    shunt_microohms: int = 5000


@dataclass(frozen=True)
class Gpu:
    """The devfreq node of a GPU: device name, of_node name (None where it has none) and its clocks.

    Attributes:
        device: name of the device, e.g. ``17000000.ga10b``.
        node: text of ``of_node/name``.
        clocks_hz: available frequencies, lowest first.
        below: folder of the device below ``/sys/devices``.
        others: further devfreq nodes of the same GPU that are no graphics clock.
    """

    device: str
    node: str | None
    clocks_hz: tuple[int, ...]
    below: str = ""
    others: tuple[str, ...] = ()


@dataclass(frozen=True)
class Board:
    """What a board has."""

    jetpack: int
    monitors: tuple[Monitor, ...]
    gpu: Gpu
    governors: tuple[str, ...] = field(
        default=("nvhost_podgov", "userspace", "performance", "powersave", "simple_ondemand")
    )


def steps_hz(first_khz: int, step_khz: int, count: int) -> tuple[int, ...]:
    """Evenly spaced clocks in hertz."""
    return tuple((first_khz + step_khz * number) * 1000 for number in range(count))


def _rails(*rows: tuple[str, int, int]) -> tuple[Rail, ...]:
    return tuple(Rail(*row) for row in rows)


BOARDS: dict[str, Board] = {
    "tx1": Board(
        JETPACK_4,
        (
            Monitor(
                "1-0040",
                _rails(("VDD_IN", 19000, 140), ("VDD_GPU", 19000, 4), ("VDD_CPU", 19000, 10)),
                "ina3221x",
            ),
            Monitor(
                "1-0042",
                _rails(("VDD_MUX", 19000, 180), ("VDD_5V_IO_SYS", 5000, 200), ("VDD_3V3_SYS", 3300, 100)),
                "ina3221x",
            ),
        ),
        Gpu("57000000.gpu", "gpu", steps_hz(76_800, 76_800, 13)),
    ),
    "nano": Board(
        JETPACK_4,
        (
            Monitor(
                "6-0040",
                _rails(("POM_5V_IN", 5000, 204), ("POM_5V_GPU", 5000, 0), ("POM_5V_CPU", 5000, 40)),
                "ina3221x",
            ),
        ),
        Gpu("57000000.gpu", "gpu", steps_hz(76_800, 76_800, 12)),
    ),
    "agx-xavier": Board(
        JETPACK_4,
        (
            Monitor("1-0040", _rails(("GPU", 19000, 20), ("CPU", 19000, 16), ("SOC", 19000, 49)), "ina3221x"),
            Monitor(
                "1-0041", _rails(("CV", 19000, 0), ("VDDRQ", 19000, 32), ("SYS5V", 5000, 296)), "ina3221x"
            ),
        ),
        Gpu("17000000.gv11b", "gv11b", steps_hz(114_750, 114_750, 12)),
    ),
    "xavier-nx": Board(
        JETPACK_5,
        (
            Monitor(
                "7-0040",
                _rails(("VDD_IN", 4960, 820), ("VDD_CPU_GPU_CV", 4960, 149), ("VDD_SOC", 4960, 273)),
            ),
        ),
        Gpu("17000000.gv11b", "gv11b", steps_hz(114_750, 90_413, 12)),
    ),
    "orin-nx": Board(
        JETPACK_5,
        (
            Monitor(
                "1-0040",
                _rails(("VDD_IN", 4960, 1068), ("VDD_CPU_GPU_CV", 4960, 156), ("VDD_SOC", 4960, 287)),
            ),
        ),
        Gpu("17000000.ga10b", "ga10b", steps_hz(306_000, 102_000, 7)),
    ),
    "agx-orin": Board(
        JETPACK_6,
        (
            Monitor(
                "1-0040",
                _rails(("VDD_GPU_SOC", 4968, 645), ("VDD_CPU_CV", 4968, 887), ("VIN_SYS_5V0", 4968, 960)),
                shunt_microohms=2000,
            ),
            Monitor(
                "1-0041",
                _rails(("NC", 0, 0), ("VDDQ_VDD2_1V8AO", 4968, 220), ("NC", 0, 0)),
                shunt_microohms=2000,
            ),
        ),
        Gpu(
            "17000000.gpu",
            "gpu",
            (*steps_hz(306_000, 102_000, 10), 1_300_500_000),
            below="platform/bus@0",
        ),
    ),
    "thor": Board(
        JETPACK_7,
        (
            Monitor(
                "2-0040",
                _rails(("VDD_GPU", 12000, -33), ("VDD_CPU_SOC_MSS", 12000, 327), ("VIN_SYS_5V0", 5040, 1294)),
                shunt_microohms=2000,
            ),
            Monitor("2-0044", _rails(("VIN", 20000, 1150)), "ina238", update_interval_ms=None, samples=None),
        ),
        Gpu(
            "17000000.gpu",
            None,
            steps_hz(315_000, 15_000, 85),
            below="platform/bus@0",
            others=("gpu-nvd-0",),
        ),
        governors=("nvhost_podgov", "performance"),
    ),
}


def build(root: Path, board: str) -> Path:
    """Write the ``/sys`` of a board below ``root`` and return it: what samplers take for ``/sys``."""
    sysfs = root / "sys"
    build_power(sysfs, BOARDS[board])
    build_gpu(sysfs, BOARDS[board])
    return sysfs


# --- power monitors ------------------------------------------------------------------------------


def build_power(sysfs: Path, board: Board) -> None:
    """Write the power monitors of a board."""
    for number, monitor in enumerate(board.monitors):
        bus = monitor.address.partition("-")[0]
        device = sysfs / "devices/platform" / f"{bus}.i2c" / f"i2c-{bus}" / monitor.address
        write(device / "name", monitor.driver)
        _link(sysfs / "bus/i2c/devices" / monitor.address, device)
        if monitor.driver == "ina3221x":
            _iio(device / f"iio:device{number}", monitor)
        else:
            _hwmon(device / "hwmon" / f"hwmon{number}", monitor)


def _iio(folder: Path, monitor: Monitor) -> None:
    """JetPack 4: milliwatts, millivolts and milliamperes, the rails numbered from 0."""
    write(folder / "name", monitor.driver)
    write(folder / "running_mode", 1)
    for number, rail in enumerate(monitor.rails):
        write(folder / f"rail_name_{number}", rail.name)
        write(folder / f"in_power{number}_input", rail.milliwatts)
        write(folder / f"in_power{number}_trigger_input", 0)  # 0 while the chip measures on demand
        write(folder / f"in_voltage{number}_input", rail.millivolts)
        write(folder / f"in_current{number}_input", rail.milliamperes)
        write(folder / f"crit_current_limit_{number}", "32760 ma")


def _hwmon(folder: Path, monitor: Monitor) -> None:
    """JetPack 5 and later: millivolts and milliamperes, the rails numbered from 1."""
    write(folder / "name", monitor.driver)
    if monitor.update_interval_ms is not None:
        write(folder / "update_interval", monitor.update_interval_ms)
    if monitor.samples is not None:
        write(folder / "samples", monitor.samples)
    for number, rail in enumerate(monitor.rails, 1):
        write(folder / f"in{number}_input", rail.millivolts)
        write(folder / f"curr{number}_input", rail.milliamperes)
        if monitor.driver == "ina3221":
            write(folder / f"in{number}_label", rail.name)
            write(folder / f"in{number}_enable", 1)
            write(folder / f"shunt{number}_resistor", monitor.shunt_microohms)
            write(folder / f"in{number + 3}_input", 2)  # shunt voltage, in millivolts
    if monitor.driver == "ina3221":
        write(folder / "in7_label", "sum of shunt voltages")
        write(folder / "in7_input", 6)
        write(folder / "curr4_input", sum(rail.milliamperes for rail in monitor.rails))
    else:
        write(folder / "label", monitor.rails[0].name)
        write(folder / "power1_input", monitor.rails[0].milliwatts * 1000)  # microwatts
        write(folder / "temp1_input", 41000)


def rail_files(sysfs: Path, rail: str) -> tuple[Path, ...]:
    """The files that a rail's power is read from: (milliwatts) or (millivolts, milliamperes)."""
    for label in sorted(sysfs.glob("devices/platform/*/*/*/iio:device*/rail_name_*")):
        if label.read_text().strip() == rail:
            return (label.with_name(f"in_power{label.name[-1]}_input"),)
    for label in sorted(sysfs.glob("devices/platform/*/*/*/hwmon/hwmon*/*label")):
        if label.read_text().strip() == rail:
            number = label.name[2] if label.name.startswith("in") else "1"
            return label.with_name(f"in{number}_input"), label.with_name(f"curr{number}_input")
    raise KeyError(rail)


def set_rail(sysfs: Path, rail: str, *, milliamperes: int) -> None:
    """Let a rail draw another current at the voltage it has."""
    files = rail_files(sysfs, rail)
    if len(files) == 1:
        volts = files[0].with_name(files[0].name.replace("power", "voltage"))
        write(files[0], int(volts.read_text()) * milliamperes // 1000)
    else:
        write(files[1], milliamperes)


# --- GPU clocks ----------------------------------------------------------------------------------


def build_gpu(sysfs: Path, board: Board) -> Path:
    """Write the devfreq nodes of a board's GPU and return that of its graphics clock."""
    gpu = board.gpu
    device = sysfs / "devices" / gpu.below / gpu.device
    if gpu.node is not None:
        write(device / "of_node/name", gpu.node)
    if board.jetpack < JETPACK_7:
        write(device / "railgate_enable", 1)
        write(device / "enable_3d_scaling", 1)
    first = gpu.device if gpu.node is not None else "gpu-gpc-0"
    for name in (first, *gpu.others):
        node = device / "devfreq" / name
        _devfreq(node, gpu.clocks_hz, board.governors)
        _link(node / "device", device)
        _link(sysfs / "class/devfreq" / name, node)
    return sysfs / "class/devfreq" / first


def _devfreq(node: Path, clocks_hz: Sequence[int], governors: Sequence[str]) -> None:
    """One devfreq node, with its limits as wide as can be; all frequencies in hertz."""
    write(node / "available_frequencies", " ".join(map(str, clocks_hz)))
    write(node / "min_freq", clocks_hz[0])
    write(node / "max_freq", clocks_hz[-1])
    write(node / "cur_freq", clocks_hz[0])
    write(node / "target_freq", clocks_hz[0])
    write(node / "governor", governors[0])
    write(node / "available_governors", " ".join(governors))


def gpu_node(sysfs: Path) -> Path:
    """The devfreq node of the graphics clock, where the kernel keeps it."""
    (node,) = (path for path in (sysfs / "class/devfreq").iterdir() if path.name != "gpu-nvd-0")
    return node.resolve()


def limits_hz(sysfs: Path) -> tuple[int, int]:
    """The limits of the graphics clock."""
    low, high = (int((gpu_node(sysfs) / name).read_text().split()[0]) for name in ("min_freq", "max_freq"))
    return low, high


def set_limits_hz(sysfs: Path, low: int, high: int) -> None:
    """Change the limits, as nvpmodel or jetson_clocks would."""
    write(gpu_node(sysfs) / "min_freq", low)
    write(gpu_node(sysfs) / "max_freq", high)


MODES = {0: "MAXN", 1: "MODE_15W", 2: "MODE_30W", 3: "MODE_40W"}
"""Power modes by number; the first gates no part of the GPU, so that it takes a reboot from the others."""

_NVPMODEL = """#!/bin/sh
echo "$*" >> {root}/asked
test ! -e {root}/hangs || exec sleep 600
of() {{ sed -n "/ID=$1 /,/ID=/p" {root}/etc/nvpmodel.conf | sed -n "s/^$2 //p" | head -n 1; }}
now=$(sed 's/pmode:0*\\([0-9]\\).*/\\1/' {root}/var/lib/nvpmodel/status)
test -n "$now" || now=$2
if test -e {root}/pending || test "$(of $2 'TPC_POWER_GATING TPC_PG_MASK')" != \
    "$(of $now 'TPC_POWER_GATING TPC_PG_MASK')"; then
  echo "NVPM WARN: Golden image context is already created"
  echo "NVPM WARN: Reboot required for changing to this power mode: $2"
  echo "NVPM WARN: DO YOU WANT TO REBOOT NOW? enter YES/yes to confirm:"
  read answer && touch {root}/rebooted
  echo "NVPM ERROR: bad input!"
  exit 234
fi
of $2 'GPU MIN_FREQ' > {node}/min_freq
test ! -e {root}/fails || {{ echo "NVPM ERROR: Error writing 0 to /sys/x: 13"; exit 255; }}
of $2 'GPU MAX_FREQ' > {node}/max_freq
printf 'pmode:%04d fmode:quiet\\n' "$2" > {root}/var/lib/nvpmodel/status
"""


def build_modes(sysfs: Path, present: int = 2) -> Path:
    """Write files and a program of nvpmodel beside the ``/sys`` of a board; the folder they are in."""
    root, node = sysfs.parent, gpu_node(sysfs)
    low, *_, high = (node / "available_frequencies").read_text().split()
    lines = ["< PARAM TYPE=FILE NAME=TPC_POWER_GATING >", "TPC_PG_MASK /sys/devices/gpu.0/tpc_pg_mask", ""]
    for number, name in MODES.items():
        lines += [
            f"< POWER_MODEL ID={number} NAME={name} >",
            f"TPC_POWER_GATING TPC_PG_MASK {240 if number else 0}",
            f"GPU MIN_FREQ {low}",
            f"GPU MAX_FREQ {high if number in (0, present) else 300_000_000 + number * 100_000_000}",
            "",
        ]
    write(root / "etc/nvpmodel.conf", "\n".join([*lines, "< PM_CONFIG DEFAULT=3 >"]))
    write(root / "var/lib/nvpmodel/status", f"pmode:{present:04d} fmode:quiet")
    write(root / "usr/sbin/nvpmodel", _NVPMODEL.format(root=root, node=node))
    (root / "usr/sbin/nvpmodel").chmod(0o755)
    return root


def mode(root: Path) -> int:
    """Number of the power mode that holds."""
    return int((root / "var/lib/nvpmodel/status").read_text()[len("pmode:") :].split()[0])


def set_cooling(sysfs: Path, state: int, kind: str = "gpu-throttle-alert") -> None:
    """Let a cooling device be at work (above 0) or not; it is made if there is none of its kind."""
    folder = sysfs / "class/thermal" / f"cooling_device-{kind}"
    write(folder / "type", kind)
    write(folder / "cur_state", state)


def count_over_current(sysfs: Path, events: int) -> None:
    """Let the hardware monitor have counted so many over-current events."""
    write(sysfs / "class/hwmon/hwmon9/oc1_event_cnt", events)


# --- files ---------------------------------------------------------------------------------------


def write(path: Path, value: object) -> None:
    """Write one attribute, as the kernel shows it."""
    try:
        path.write_text(f"{value}\n")
    except FileNotFoundError:
        path.parent.mkdir(parents=True)
        path.write_text(f"{value}\n")


def _link(link: Path, target: Path) -> None:
    """A symbolic link as the kernel makes them: relative."""
    link.parent.mkdir(parents=True, exist_ok=True)
    up = len(link.parent.relative_to(_sysfs(link)).parts)
    link.symlink_to(Path(*[".."] * up) / target.relative_to(_sysfs(link)))


def _sysfs(path: Path) -> Path:
    """The fake ``/sys`` a path lies in: the nearest folder above with that name."""
    return next(folder for folder in path.parents if folder.name == "sys")
