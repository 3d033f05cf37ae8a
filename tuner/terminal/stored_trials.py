"""Stored trials of a run in the form of the stream, which has only those of jobs that run."""

from collections.abc import Iterator
from itertools import islice

from tuner.client.client import Client
from tuner.terminal.state import MOST_TRIALS, Data


def stored_trials(client: Client, run: int) -> Iterator[Data]:
    """The first trials of a run, as many as are kept.

    Raises:
        TunerError: as ``Client``.
    """
    modelled = client.archive.run(run).get("modelled", False)
    for stored in islice(client.archive.trials(run), MOST_TRIALS):
        yield as_streamed(stored, run, modelled=bool(modelled))


def as_streamed(stored: Data, run: int, *, modelled: bool) -> Data:
    """The data of a stored trial as an event of the kind ``trial`` has it."""
    workloads = (stored.get("workloads") or {}).values()
    failed: Data = next((one for one in workloads if one.get("status") != "ok"), {})
    confirmed = bool(stored.get("confirmed"))
    return {
        **stored,
        "run": run,
        "trial": stored.get("number"),
        "repeat": stored.get("bursts") if confirmed else 0,
        "confirming": confirmed,
        "detail": failed.get("detail", ""),
        "clock_set_mhz": stored.get("clock_mhz"),
        "clock_mhz": stored.get("clock_seen_mhz"),
        "watts": stored.get("power_w"),
        "joules": None,
        "expected": None,
        "modelled": modelled,
    }
