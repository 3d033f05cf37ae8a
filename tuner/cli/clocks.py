"""``tuner clocks``: show clocks and power limits of this machine and their owners, and restore them."""

import sys
from typing import TYPE_CHECKING, Any

import click

from tuner.cli.output import console, echo, json_option, write_json
from tuner.model.errors import ClockError, InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tuner.devices.gpu_state import ClockRestoration, GpuClockState, GpuPowerLimitState


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
    from tuner.devices import power

    limits = {state.gpu: _limit_row(state) for state in power.survey_power_limits()}
    rows = [{**_row(state), "power_limit": limits.get(state.gpu)} for state in power.survey_clocks()]
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
    from tuner.devices import power

    done = [_reset(gpu, power.reset_clock, "reset") for gpu in gpus]
    done += [_reset(gpu, power.reset_power_limit, "power limit reset") for gpu in limited]
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
    from tuner.devices import power

    outcomes = power.restore_all()
    for outcome in outcomes:
        what = "power limit " if outcome.control == _POWER_LIMIT else ""
        echo(f"{outcome.gpu}: {what}{_told(outcome)}", err=outcome.state == "failed")
    if not outcomes:
        echo("nothing to restore")
    return [outcome.state != "failed" for outcome in outcomes]


def _told(outcome: "ClockRestoration") -> str:
    details = "; ".join(outcome.details)
    if outcome.state == "owned":
        return f"held by {details}: left alone"
    if outcome.state == "failed":
        return f"not restored: {details}"
    if outcome.state == "undone":
        return "nothing to undo: a reboot had restored it, or nothing had been set"
    return f"restored; {details}" if details else "restored"


def _named(spec: str) -> str:
    """What clock controls call a device: CUDA's number becomes a UUID."""
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


def _row(state: "GpuClockState") -> dict[str, Any]:
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


def _limit_row(state: "GpuPowerLimitState") -> dict[str, Any]:
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
