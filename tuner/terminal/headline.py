"""The first lines of the view: which daemon, what it does, and what is wrong."""

from tuner.terminal.state import LiveState
from tuner.untrusted.text import plain_line


def headline(state: LiveState, address: str) -> str:
    """The daemon, and its work in a few words."""
    counts = state.status.get("queue") or {}
    work = [f"{count} {name}" for name, count in counts.items() if count] or ["no jobs"]
    version = f" {state.status['version']}" if state.status.get("version") else ""
    windows = (state.status.get("windows") or {}).get("summary", "")
    tuning = f", tuning window {windows}" if windows and not str(windows).startswith("none") else ""
    return plain_line(f"tuner top: daemon{version} at {address}, {', '.join(work)}{tuning}")


def warning(state: LiveState) -> str:
    """Why the daemon is not there, else what it says is wrong; empty for nothing."""
    troubles = [*map(str, state.status.get("troubles") or ()), state.not_understood]
    if state.away:
        troubles = [f"the daemon is away, and is looked for: {state.away}"]
    return plain_line("; ".join(filter(None, troubles)).replace("\n", "; "))
