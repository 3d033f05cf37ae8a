"""Points in time, as people read them."""

import re
from datetime import datetime, timezone

MOMENT_WIDTH = len("2026-11-21 22:00:00 UTC")
_STAMP = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d)?")


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


def with_moments(text: str) -> str:
    """A sentence, each ISO 8601 stamp in it as ``moment`` writes it."""
    return _STAMP.sub(lambda found: moment(found.group()), text)
