"""``tuner devices``, ``doctor``, ``occupancy`` and ``clocks``: the devices of this machine."""

import sys
from contextlib import closing
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tuner.cli.options import database_option, device_option
from tuner.cli.output import console, echo, json_option, write_json
from tuner.model.errors import ClockError, InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from rich.console import Console

    from tuner.devices.choice import DeviceReport
    from tuner.model.jobs import DeviceLimits
    from tuner.power.clocks.control import GpuSettingState
    from tuner.power.clocks.journal import RestoreOutcome


# --- ``tuner clocks``: show clocks and power limits of this machine and their owners, and restore them.

_MEGA = 1e6
_NAMED = {"powerlimit": "power limit ", "powerprofile": "power profile "}  # controls that set no clock


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
    if spec is not None and spec.startswith("sim:"):
        states, limits = _modelled(spec)
    else:
        from tuner.power.clocks import control

        limits = {limit.gpu: limit for limit in control.survey_power_limits()}
        states = control.survey()
        if spec is not None:
            states = _chosen(states, spec)
    if json_path is not None:
        limit_rows = {
            gpu: {
                "limit_w": limit.reading.power_limit_w,
                "default_w": limit.default_w,
                "supported_w": list(limit.supported),
                "owner": limit.owner or None,
                "announced_w": limit.announced,
                "stale": limit.stale,
                "trouble": list(limit.trouble),
            }
            for gpu, limit in limits.items()
        }
        gpus = [
            {
                "gpu": state.gpu,
                "name": state.name or None,
                "control": state.control,
                "clock_mhz": state.reading.mhz,
                "throttle_reasons": list(state.reading.throttle_reasons),
                "supported_mhz": list(state.supported),
                "setting": dict(state.before),
                "owner": state.owner or None,
                "announced_mhz": state.announced,
                "stale": state.stale,
                "trouble": list(state.trouble),
                "power_limit": limit_rows.get(state.gpu),
            }
            for state in states
        ]
        write_json(json_path, {"gpus": gpus})
    _print_clocks(states, limits, console(json_path))


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
@click.option(
    "--reset-power-profile",
    "profiled",
    metavar="GPU",
    multiple=True,
    help="Request no power profile of this GPU (UUID or NVML's index), whoever did. Repeatable.",
)
def restore(*, gpus: tuple[str, ...], limited: tuple[str, ...], profiled: tuple[str, ...]) -> None:
    """Restore clocks, power limits and profiles that a killed tuner left.

    The command restores what is in the journal, and skips a GPU that a living process holds. What has no
    journal entry needs an explicit --reset, --reset-power-limit or --reset-power-profile, which a living
    owner also prevents.
    """
    from tuner.power.base import CLOCKS, POWER_LIMITS, POWER_PROFILES
    from tuner.power.clocks import control

    asked = [(CLOCKS, "reset", gpus), (POWER_LIMITS, "power limit reset", limited)]
    asked += [(POWER_PROFILES, "power profile reset", profiled)]
    done = [_reset(gpu, partial(control.reset, kind=kind), words) for kind, words, of in asked for gpu in of]
    if not done:
        outcomes = control.restore_all()
        for outcome in outcomes:
            what = _NAMED.get(outcome.control, "")
            echo(f"{outcome.gpu}: {what}{_outcome_words(outcome)}", err=outcome.state == "failed")
        if not outcomes:
            echo("nothing to restore")
        done = [outcome.state != "failed" for outcome in outcomes]
    if not all(done):
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


def _outcome_words(outcome: "RestoreOutcome") -> str:
    details = "; ".join(outcome.details)
    if outcome.state == "owned":
        return f"held by {details}: left alone"
    if outcome.state == "failed":
        return f"not restored: {details}"
    if outcome.state == "undone":
        return "nothing to undo: a reboot had restored it, or nothing had been set"
    return f"restored; {details}" if details else "restored"


def _modelled(spec: str) -> "tuple[list[GpuSettingState], dict[str, GpuSettingState]]":
    """Clock and power limit of a simulated device, which nobody else holds."""
    from tuner.devices.choice import open_device
    from tuner.devices.sensors import open_clocks, open_power_limits
    from tuner.power.clocks.control import GpuSettingState

    with closing(open_device(spec).device) as device:
        clocks, why = open_clocks(device)
        if clocks is None:
            raise ClockError(f"{spec}: {why}")
        known = ("simulated", spec, device.identity.name, clocks.read())
        limits, _ = open_power_limits(device)
        found = {}
        if limits is not None:
            found[spec] = GpuSettingState(*known, limits.supported_w(), default_w=limits.read_w())
        return [GpuSettingState(*known, clocks.supported_mhz())], found


def _chosen(states: "list[GpuSettingState]", spec: str) -> "list[GpuSettingState]":
    """The GPU that ``--device`` names: as the clock controls know it, or by CUDA's number."""
    gpu = spec
    if spec.startswith("cuda"):
        from tuner.devices.choice import identify

        gpu = identify(spec).uuid
    matching = [state for state in states if state.gpu == gpu]
    # devfreq knows a Jetson's one GPU by another name than CUDA
    if not matching and spec.startswith("cuda") and len(states) == 1 and states[0].control == "devfreq":
        return states
    if not matching:
        choices = ", ".join(state.gpu for state in states)
        raise InputError(f"--device {spec}: no such GPU; choose from {choices}")
    return matching


def _print_clocks(
    states: "Sequence[GpuSettingState]", limits: "Mapping[str, GpuSettingState]", out: "Console"
) -> None:
    for state in states:
        clock = "cannot be read" if state.reading.mhz is None else f"{state.reading.mhz:.0f} MHz"
        choice, holder = state.supported, state.owner or "nobody"
        if state.stale:
            holder = f"nobody; left at {state.announced} MHz: run `tuner clocks restore`"
        lines = [
            ("control", state.control),
            ("clock", f"{clock}, held back by {', '.join(state.reading.throttle_reasons) or 'nothing'}"),
            ("set to", _setting_words(state)),
            ("can be set", f"{choice[-1]} to {choice[0]} MHz ({len(choice)})" if choice else "none"),
            ("held by", holder),
            *_limit_lines(limits.get(state.gpu)),
            *(("trouble", what) for what in state.trouble),
        ]
        heading = state.name if state.gpu in state.name else f"{state.gpu} {state.name}".strip()
        out.print(heading, style="bold")
        for title, text in lines:
            out.print(f"  {title:<11} {text}", soft_wrap=True)


def _limit_lines(limit: "GpuSettingState | None") -> "Iterator[tuple[str, str]]":
    """The power limit in words, where there is one that can be set."""
    if limit is None:
        return
    now = "cannot be read" if limit.reading.power_limit_w is None else f"{limit.reading.power_limit_w:g} W"
    usual = "" if limit.default_w is None else f", default {limit.default_w:g} W"
    choice = limit.supported
    may = f", may be set to {choice[-1]} to {choice[0]} W" if choice else ""
    yield "power limit", f"{now}{usual}{may}"
    if limit.stale:
        yield "limit held", f"by nobody; left at {limit.announced} W: run `tuner clocks restore`"
    elif limit.owner:
        yield "limit held", f"by {limit.owner}"
    if limit.trouble:
        yield "limit", "; ".join(limit.trouble)


def _setting_words(state: "GpuSettingState") -> str:
    if state.control == "simulated":
        return "nothing"
    setting = state.before
    low_hz, high_hz = setting.get("min_hz"), setting.get("max_hz")
    if isinstance(low_hz, int) and isinstance(high_hz, int):
        rest = [f"{key} {setting[key]}" for key in ("governor", "railgate") if key in setting]
        return ", ".join([f"{low_hz / _MEGA:g} to {high_hz / _MEGA:g} MHz", *rest])
    if setting.get("setting") == "application":
        return f"application clocks {setting['graphics_mhz']} MHz, memory {setting['memory_mhz']} MHz"
    if state.announced is not None:
        return f"{state.announced} MHz (journal)"
    return "NVML does not tell" if setting else "cannot be read"


# --- ``tuner doctor``, ``occupancy`` and ``devices``.

_STYLES = {"ok": "green", "note": "cyan", "warning": "yellow", "error": "bold red"}


@click.command(short_help="Examine the machine for problems that affect measurements.")
@database_option
@json_option
def doctor(*, database: Path | None, json_path: str | None) -> None:
    """Examine driver, packages, sensors, clocks, GPU and host; nothing is set, and no GPU is given work.

    Each finding is ok, a note, a warning (measurements are possible, and less trustworthy) or an error.
    The exit code is 1 when there is an error, else 0.
    """
    from rich.text import Text

    from tuner.cli.doctor import Surroundings, counts, examine, worst

    around = Surroundings() if database is None else Surroundings(database=database)
    findings = list(examine(around))
    if json_path is not None:
        write_json(json_path, {"worst": worst(findings), "findings": list(map(asdict, findings))})
    out = console(json_path)
    for finding in findings:
        line = Text(f"{finding.severity:<8}", style=_STYLES[finding.severity])
        line.append(f"{finding.check}: {finding.text}", style="default")
        out.print(line, soft_wrap=True)
        if finding.remedy:
            out.print(f"{'':8}-> {finding.remedy}", soft_wrap=True)
    out.print(counts(findings))
    if worst(findings) == "error":
        sys.exit(1)


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
    console(json_path).print("\n".join(lines), soft_wrap=True)


@click.command(short_help="List GPUs, simulated devices and recordings.")
@json_option
def devices(*, json_path: str | None) -> None:
    """List GPUs, simulated devices and recordings with limits, clocks, power sensor, and what is missing."""
    from tuner.devices.choice import describe_devices
    from tuner.report.layout import ruled
    from tuner.report.rows import Column, Table

    reports = describe_devices()
    if json_path is not None:
        rows = [
            {
                "device": report.spec,
                "name": report.identity and report.identity.name,
                "uuid": report.identity and report.identity.uuid,
                "driver": report.identity and report.identity.driver,
                "modelled": report.identity is not None and report.identity.modelled,
                "recorded": report.identity and (report.identity.recorded or None),
                "limits": report.limits and vars(report.limits),
                "clocks_mhz": list(report.clocks_mhz),
                "sensor": report.sensor,
                "missing": list(report.missing),
            }
            for report in reports
        ]
        write_json(json_path, {"devices": rows})

    def limits_of(report: "DeviceReport") -> "DeviceLimits | None":
        return report.limits

    limits: list[Column[DeviceLimits]] = [
        Column("cc", lambda one: ".".join(map(str, one.compute_capability))),
        Column("SMs", lambda one: str(one.multiprocessors)),
        Column("memory", lambda one: f"{one.memory_bytes / 2**30:.0f} GiB"),
    ]
    columns: list[Column[DeviceReport]] = [
        Column("device", lambda report: report.spec, whole=True),
        Column("name", _device_name),
        *(column.of(limits_of) for column in limits),
        Column("clocks", lambda report: _clocks(report.clocks_mhz)),
        Column("power sensor", lambda report: report.sensor or None),
    ]
    out = console(json_path)
    out.print(ruled(Table(columns, reports)))
    for report in reports:
        for what in report.missing:
            out.print(f"{report.spec}: {what}")


def _device_name(report: "DeviceReport") -> str | None:
    """The name, marked where it is recorded; a simulated GPU's says itself that it is modelled."""
    if report.identity is None:
        return None
    return f"{report.identity.name}{' (recorded)' if report.identity.recorded else ''}"


def _clocks(clocks_mhz: "Sequence[int]") -> str | None:
    if len(clocks_mhz) <= 5:  # noqa: PLR2004 - as many as fit the column
        return " ".join(map(str, clocks_mhz)) + " MHz" if clocks_mhz else None
    return f"{clocks_mhz[-1]} … {clocks_mhz[0]} MHz ({len(clocks_mhz)})"
