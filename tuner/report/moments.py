"""Points in time, as people read them."""

from datetime import datetime, timezone

MOMENT_WIDTH = len("2026-11-21 22:00:00 UTC")


def moment(at: str | datetime | None) -> str:
    """A point in time to the second: ``2026-11-21 22:00:00 UTC``; None is a dash, other text stays.

    Args:
        at: ISO 8601; without a zone it is UTC, as the database has it.
    """
    if at is None:
        return "–"
    if isinstance(at, str):
        try:
            known = datetime.fromisoformat(at.replace("Z", "+00:00"))  # Python 3.10 does not know Z
        except ValueError:
            return at
    else:
        known = at
    if known.tzinfo is None:
        known = known.replace(tzinfo=timezone.utc)
    return f"{known.astimezone(timezone.utc):%Y-%m-%d %H:%M:%S} UTC"
