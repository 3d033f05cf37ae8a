"""``tuner clocks``: show the GPU clocks of this machine and their owners, and restore them."""

import sys
from typing import TYPE_CHECKING, Any

import click

from tuner.cli.output import console, echo, json_option, write_json
from tuner.errors import ClockError, InputError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tuner.interfaces.gpu_state import ClockRestoration, GpuClockState

_MEGA = 1e6


@click.group(short_help="Show the owners of GPU clocks, and restore clocks.")
def clocks() -> None:
    """GPU clocks: show their owners, and restore clocks that were left set."""


@clocks.command()
@click.option(
    "--device", "spec", metavar="SPEC", help="cuda:0, or a GPU as the table names it. Default: all."
)
@json_option
def show(*, spec: str | None, json_path: str | None) -> None:
    """List the GPUs of this machine with clock, lock and owner; nothing is set."""
    from tuner.devices import power

    rows = [_row(state) for state in power.survey_clocks()]
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
def restore(*, gpus: tuple[str, ...]) -> None:
    """Restore clocks that a killed tuner left set.

    The command restores the clocks in the journal, and skips a GPU whose clock a living process holds. A lock
    without a journal entry needs an explicit --reset, which a living owner also prevents.
    """
    done = [_reset(gpu) for gpu in gpus] if gpus else _restore()
    if not all(done):
        sys.exit(1)


def _reset(gpu: str) -> bool:
    """Reset one GPU; True if that was done."""
    from tuner.devices import power

    try:
        power.reset_clock(int(gpu) if gpu.isdecimal() else gpu)
    except ClockError as error:
        echo(f"{gpu}: not reset: {error}", err=True)
        return False
    echo(f"{gpu}: reset")
    return True


def _restore() -> list[bool]:
    """Restore what the journal announces; True for each GPU that needs nothing more."""
    from tuner.devices import power

    outcomes = power.restore_all()
    for outcome in outcomes:
        echo(f"{outcome.gpu}: {_told(outcome)}", err=outcome.state == "failed")
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
        }
        name = row["name"] or ""
        heading = name if row["gpu"] in name else f"{row['gpu']} {name}".strip()
        out.print(heading, style="bold", markup=False)
        for title, text in [*lines.items(), *(("trouble", what) for what in row["trouble"])]:
            out.print(f"  {title:<11} {text}", markup=False, highlight=False, soft_wrap=True)


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
