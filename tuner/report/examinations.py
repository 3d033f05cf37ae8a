"""What a check or a repair of the database found, for people and as JSON."""

import json
from collections import Counter
from collections.abc import Iterable
from typing import Any

from tuner.database.integrity.examination import Examination, IsolatedRow, RowRepair, named
from tuner.report.words import moment

_ONE_BY_ONE = 5  # rows of a table from one place that are named; of more, how many


def joined(parts: Iterable[Examination], rows: int) -> Examination:
    """Several examinations of one database as one, which verified so many rows."""
    found = tuple(parts)
    return Examination(
        rows,
        tuple(repair for part in found for repair in part.repaired),
        tuple(row for part in found for row in part.isolated),
        tuple(line for part in found for line in part.rebuilt),
    )


def sentences(found: Examination) -> list[str]:
    """What was wrong: row by row, or in sums where that would be long."""
    groups = Counter((repair.table, repair.source) for repair in found.repaired)
    lines = list(found.rebuilt)
    for (name, source), count in groups.items():
        rows = [one for one in found.repaired if (one.table, one.source) == (name, source)]
        if count <= _ONE_BY_ONE:
            lines += map(str, rows)
        else:
            lines.append(
                f"{name}: {count:,} rows, from {_first(rows[0])} to {_first(rows[-1])}, {_taken(source)}"
            )
    lines += map(str, found.isolated)
    if found.isolated:
        lines.append("what is left of a row that is kept aside: `tuner db isolated --output FILE`")
    return lines


def _taken(source: str) -> str:
    return "taken from the pages of the files" if source == "salvage" else f"taken from the {source}"


def _first(repair: RowRepair) -> str:
    return named(repair.key)


def examination_document(found: Examination) -> dict[str, Any]:
    """An examination as JSON has it."""
    return {
        "whole": found.whole,
        "rows": found.rows,
        "repaired": [
            {"table": repair.table, "key": list(repair.key), "source": repair.source}
            for repair in found.repaired
        ],
        "isolated": [isolated_document(row) for row in found.isolated],
        "rebuilt": list(found.rebuilt),
    }


def isolated_line(row: IsolatedRow) -> str:
    """A row that was kept aside, for people."""
    return f"{row.table} {named(row.key)}: {row.why} (found at {moment(row.found_at)})"


def isolated_document(row: IsolatedRow) -> dict[str, Any]:
    """A row that was kept aside, as JSON has it, with what is left of it in each file."""
    return {
        "id": row.id,
        "table": row.table,
        "key": list(row.key),
        "why": row.why,
        "found_at": row.found_at,
        "database": _columns(row.main),
        "mirror": _columns(row.mirror),
    }


def _columns(kept: bytes | None) -> Any:  # noqa: ANN401 - whatever was kept
    if kept is None:
        return None
    try:
        return json.loads(kept)
    except ValueError:
        return {"hex": kept.hex()}
