"""``tuner devices``, ``doctor``, ``occupancy`` and ``clocks``: the devices of this machine."""

import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tuner.cli.options import database_option, device_option
from tuner.cli.output import console, echo, json_option, write_json
from tuner.model.errors import ClockError, InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tuner.cli.doctor import Finding
    from tuner.devices.choice import DeviceReport
    from tuner.power.clocks.control import ClockState, PowerLimitState
    from tuner.power.clocks.ownership import RestoreOutcome


# --- ``tuner clocks``: show clocks and power limits of this machine and their owners, and restore them.

_MEGA = 1e6
_POWER_LIMIT = "powerlimit"  # the control of power limits


@click.group(short_help="Show the owners of GPU clocks and power limits, and restore them.")
def clocks() -> None:
    """GPU clocks and power limits: show their owners, and restore what was left set."""


@clocks.command(short_help="List GPUs with clock, lock, power limit and owners.")
@click.option(
    "--device", "spec", metavar="SPEC", help="cuda:0, or a GPU as the table names it. Default: all."
)
@json_option
def show(*, spec: str | None, json_path: str | None) -> None:
    """List the GPUs of this machine with clock, lock, power limit and owners; nothing is set."""
    from tuner.power.clocks import control

    limits = {state.gpu: _limit_row(state) for state in control.survey_power_limits()}
    rows = [{**_clock_row(state), "power_limit": limits.get(state.gpu)} for state in control.survey()]
    if spec is not None:
        gpu = _named(spec)
        rows = [row for row in rows if row["gpu"] == gpu] or _unknown(spec, rows)
    if json_path is not None:
        write_json(json_path, {"gpus": rows})
    _print_rows(rows, json_path)


@clocks.command()
@click.option(
    "--reset",
    "gpus",
    metavar="GPU",
    multiple=True,
    help="Reset the clock of this GPU (UUID, NVML's index or devfreq node), whoever set it. Repeatable.",
)
@click.option(
    "--reset-power-limit",
    "limited",
    metavar="GPU",
    multiple=True,
    help="Give this GPU (UUID or NVML's index) its default power limit, whoever set it. Repeatable.",
)
def restore(*, gpus: tuple[str, ...], limited: tuple[str, ...]) -> None:
    """Restore clocks and power limits that a killed tuner left set.

    The command restores what is in the journal, and skips a GPU that a living process holds. A lock or a
    limit without a journal entry needs an explicit --reset or --reset-power-limit, which a living owner also
    prevents.
    """
    from tuner.power.clocks import control

    done = [_reset(gpu, control.reset, "reset") for gpu in gpus]
    done += [_reset(gpu, control.reset_power_limit, "power limit reset") for gpu in limited]
    if not all(done if gpus or limited else _restore()):
        sys.exit(1)


def _reset(gpu: str, reset: "Callable[[str | int], None]", done: str) -> bool:
    """Reset one setting of one GPU; True if that was done."""
    try:
        reset(int(gpu) if gpu.isdecimal() else gpu)
    except ClockError as error:
        echo(f"{gpu}: not {done}: {error}", err=True)
        return False
    echo(f"{gpu}: {done}")
    return True


def _restore() -> list[bool]:
    """Restore what the journal announces; True for each GPU that needs nothing more."""
    from tuner.power.clocks import control

    outcomes = control.restore_all()
    for outcome in outcomes:
        what = "power limit " if outcome.control == _POWER_LIMIT else ""
        echo(f"{outcome.gpu}: {what}{_told(outcome)}", err=outcome.state == "failed")
    if not outcomes:
        echo("nothing to restore")
    return [outcome.state != "failed" for outcome in outcomes]


def _told(outcome: "RestoreOutcome") -> str:
    details = "; ".join(outcome.details)
    if outcome.state == "owned":
        return f"held by {details}: left alone"
    if outcome.state == "failed":
        return f"not restored: {details}"
    if outcome.state == "undone":
        return "nothing to undo: a reboot had restored it, or nothing had been set"
    return f"restored; {details}" if details else "restored"


def _named(spec: str) -> str:
    """Return the name of a device for the clock controls: a UUID in place of CUDA's number."""
    if spec.startswith("sim:"):
        raise InputError(
            f"--device {spec}: a simulated GPU has no clock on this machine; see `tuner devices`"
        )
    if spec.startswith("cuda"):
        from tuner.devices.choice import identify

        return identify(spec).uuid
    return spec


def _unknown(spec: str, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    if spec.startswith("cuda") and len(rows) == 1 and rows[0]["control"] == "devfreq":
        return rows  # a Jetson's one GPU, which devfreq knows by another name than CUDA
    choices = ", ".join(row["gpu"] for row in rows)
    raise InputError(f"--device {spec}: no such GPU; choose from {choices}")


def _clock_row(state: "ClockState") -> dict[str, Any]:
    return {
        "gpu": state.gpu,
        "name": state.name or None,
        "control": state.control,
        "clock_mhz": state.reading.mhz,
        "throttle_reasons": list(state.reading.throttle_reasons),
        "supported_mhz": list(state.supported_mhz),
        "setting": dict(state.setting),
        "owner": state.owner or None,
        "announced_mhz": state.announced_mhz,
        "stale": state.stale,
        "trouble": list(state.trouble),
    }


def _limit_row(state: "PowerLimitState") -> dict[str, Any]:
    return {
        "limit_w": state.limit_w,
        "default_w": state.default_w,
        "supported_w": list(state.supported_w),
        "owner": state.owner or None,
        "announced_w": state.announced_w,
        "stale": state.stale,
        "trouble": list(state.trouble),
    }


def _print_rows(rows: list[dict[str, Any]], json_path: str | None) -> None:
    out = console(json_path)
    for row in rows:
        clock = "cannot be read" if row["clock_mhz"] is None else f"{row['clock_mhz']:.0f} MHz"
        lines = {
            "control": row["control"],
            "clock": f"{clock}, held back by {', '.join(row['throttle_reasons']) or 'nothing'}",
            "set to": _setting(row["setting"], row["announced_mhz"]),
            "can be set": _range(row["supported_mhz"]),
            "held by": _holder(row),
            **_limit_lines(row["power_limit"]),
        }
        name = row["name"] or ""
        heading = name if row["gpu"] in name else f"{row['gpu']} {name}".strip()
        out.print(heading, style="bold", markup=False)
        for title, text in [*lines.items(), *(("trouble", what) for what in row["trouble"])]:
            out.print(f"  {title:<11} {text}", markup=False, highlight=False, soft_wrap=True)


def _limit_lines(limit: dict[str, Any] | None) -> dict[str, str]:
    """The power limit in words, where there is one that can be set."""
    if limit is None:
        return {}
    now = "cannot be read" if limit["limit_w"] is None else f"{limit['limit_w']:g} W"
    usual = "" if limit["default_w"] is None else f", default {limit['default_w']:g} W"
    choice = limit["supported_w"]
    lines = {
        "power limit": f"{now}{usual}, may be set to {choice[-1]} to {choice[0]} W" if choice else now + usual
    }
    if limit["stale"]:
        lines["limit held"] = f"by nobody; left at {limit['announced_w']} W: run `tuner clocks restore`"
    elif limit["owner"]:
        lines["limit held"] = f"by {limit['owner']}"
    if limit["trouble"]:
        lines["limit"] = "; ".join(limit["trouble"])
    return lines


def _setting(setting: "Mapping[str, Any]", announced_mhz: int | None) -> str:
    if "min_hz" in setting:
        low, high = setting["min_hz"] / _MEGA, setting["max_hz"] / _MEGA
        rest = [f"{key} {setting[key]}" for key in ("governor", "railgate") if key in setting]
        return ", ".join([f"{low:g} to {high:g} MHz", *rest])
    if setting.get("setting") == "application":
        return f"application clocks {setting['graphics_mhz']} MHz, memory {setting['memory_mhz']} MHz"
    if announced_mhz is not None:
        return f"{announced_mhz} MHz (journal)"
    return "NVML does not tell" if setting else "cannot be read"


def _range(clocks_mhz: list[int]) -> str:
    return f"{clocks_mhz[-1]} to {clocks_mhz[0]} MHz ({len(clocks_mhz)})" if clocks_mhz else "none"


def _holder(row: dict[str, Any]) -> str:
    if row["stale"]:
        return f"nobody; left at {row['announced_mhz']} MHz: run `tuner clocks restore`"
    return row["owner"] or "nobody"


# --- ``tuner doctor``, ``occupancy`` and ``devices``.

_STYLES = {"ok": "green", "note": "cyan", "warning": "yellow", "error": "bold red"}
_MUST_BE_MENDED = 1


@click.command(short_help="Examine the machine for problems that affect measurements.")
@database_option
@json_option
def doctor(*, database: Path | None, json_path: str | None) -> None:
    """Examine driver, packages, sensors, clocks, GPU and host; nothing is set, and no GPU is given work.

    Each finding is ok, a note, a warning (measurements are possible, and less trustworthy) or an error.
    The exit code is 1 when there is an error, else 0.
    """
    from tuner.cli.doctor import Surroundings, examine, worst

    around = Surroundings() if database is None else Surroundings(database=database)
    found = list(examine(around))
    if json_path is not None:
        write_json(json_path, {"worst": worst(found), "findings": [asdict(finding) for finding in found]})
    _show(found, json_path)
    if worst(found) == "error":
        sys.exit(_MUST_BE_MENDED)


def _show(found: "list[Finding]", json_path: str | None) -> None:
    from rich.text import Text

    from tuner.cli.doctor import counts

    out = console(json_path)
    for finding in found:
        line = Text(f"{finding.severity:<8}", style=_STYLES[finding.severity])
        line.append(f"{finding.check}: {finding.text}", style="default")
        out.print(line, soft_wrap=True, highlight=False)
        if finding.remedy:
            out.print(f"{'':8}-> {finding.remedy}", markup=False, highlight=False, soft_wrap=True)
    out.print(counts(found), markup=False, highlight=False)


@click.command(short_help="Print the occupancy of a kernel, and its limit.")
@device_option
@click.option("--threads", type=int, required=True, metavar="N", help="Threads of a block.")
@click.option(
    "--registers",
    type=int,
    default=0,
    metavar="N",
    help="Registers of a thread. Default: not counted.",
)
@click.option(
    "--shared-bytes",
    type=int,
    default=0,
    metavar="N",
    help="Shared memory of a block, static and dynamic. Default: none.",
)
@json_option
def occupancy(
    *, device: str | None, threads: int, registers: int, shared_bytes: int, json_path: str | None
) -> None:
    """Print resident blocks, warps and occupancy of a kernel, and the binding limit."""
    from tuner.devices.choice import open_device
    from tuner.space.occupancy import occupancy as fill

    opened = open_device(device)
    try:
        limits, spec = opened.device.limits, opened.device.identity.spec
        if limits is None:
            raise InputError(f"{spec}: the limits of this GPU were not recorded")
    finally:
        opened.device.close()
    if opened.notice:
        echo(f"notice: {opened.notice}", err=True)
    filled = fill(limits, threads, registers, shared_bytes)
    if json_path is not None:
        write_json(
            json_path,
            {
                "device": spec,
                "threads_per_block": threads,
                "registers_per_thread": registers,
                "shared_bytes": shared_bytes,
                "blocks_per_sm": filled.blocks_per_sm,
                "warps_per_sm": filled.warps_per_sm,
                "occupancy": filled.occupancy,
                "limited_by": filled.limited_by,
                "binding": list(filled.binding),
            },
        )
    most = ""
    if threads > limits.max_threads_per_block:
        most = f": a block has at most {limits.max_threads_per_block} threads"
    elif registers > limits.max_registers_per_thread:
        most = f": a thread has at most {limits.max_registers_per_thread} registers"
    also = f" (with {', '.join(filled.binding[1:])})" if filled.binding[1:] else ""
    lines = (
        f"device         {spec}, compute capability {'.'.join(map(str, limits.compute_capability))}",
        f"blocks per SM  {filled.blocks_per_sm} of {limits.max_blocks_per_sm}",
        f"warps per SM   {filled.warps_per_sm} of {limits.max_warps_per_sm}",
        f"occupancy      {100 * filled.occupancy:.4g} %",
        f"limited by     {filled.limited_by}{also}{most}",
    )
    console(json_path).print("\n".join(lines), highlight=False, markup=False, soft_wrap=True)


@click.command(short_help="List GPUs, simulated devices and recordings.")
@json_option
def devices(*, json_path: str | None) -> None:
    """List GPUs, simulated devices and recordings with limits, clocks, power sensor, and what is missing."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    from tuner.devices.choice import describe_devices

    rows = [_device_row(report) for report in describe_devices()]
    if json_path is not None:
        write_json(json_path, {"devices": rows})
    table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for title in ("device", "name", "cc", "SMs", "memory", "clocks", "power sensor"):
        table.add_column(title, no_wrap=title == "device")
    for row in rows:
        limits = row["limits"] or {}
        table.add_row(
            row["device"],
            _name(row),
            ".".join(map(str, limits.get("compute_capability", ()))) or "–",
            str(limits.get("multiprocessors", "–")),
            f"{limits['memory_bytes'] / 2**30:.0f} GiB" if limits else "–",
            _clocks(row["clocks_mhz"]),
            row["sensor"] or "–",
        )
    out = console(json_path)
    out.print(table)
    for row in rows:
        for what in row["missing"]:
            out.print(f"{row['device']}: {what}", markup=False, highlight=False)


def _device_row(report: "DeviceReport") -> dict[str, Any]:
    identity, limits = report.identity, report.limits
    return {
        "device": report.spec,
        "name": None if identity is None else identity.name,
        "uuid": None if identity is None else identity.uuid,
        "driver": None if identity is None else identity.driver,
        "modelled": identity is not None and identity.modelled,
        "recorded": identity.recorded or None if identity is not None else None,
        "limits": None if limits is None else vars(limits),
        "clocks_mhz": list(report.clocks_mhz),
        "sensor": report.sensor,
        "missing": list(report.missing),
    }


def _name(row: dict[str, Any]) -> str:
    """The name, marked where it is recorded; a simulated GPU's says itself that it is modelled."""
    return f"{row['name']}{' (recorded)' if row['recorded'] else ''}" if row["name"] else "–"


def _clocks(clocks_mhz: list[int]) -> str:
    if not clocks_mhz:
        return "–"
    if len(clocks_mhz) <= 5:  # noqa: PLR2004 - as many as fit the column
        return " ".join(map(str, clocks_mhz)) + " MHz"
    return f"{clocks_mhz[-1]} … {clocks_mhz[0]} MHz ({len(clocks_mhz)})"
