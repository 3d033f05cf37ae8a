"""The tables of ``cluster_exchange.py``, and the recorded answers that stand beside them."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from cluster_parts import EXCHANGE, WHOLE, Form, Shape

RESULTS = Path(__file__).parents[1] / "results"


def shape_lines(shape: Shape, row: dict[str, Any]) -> list[str]:
    """All of one shape, for the terminal."""
    lines = [f"{shape}"]
    for one in row["pieces"]:
        wrong = "" if one["correct"] else "  WRONG"
        lines.append(
            f"  {one['piece']:32} {one['ms']:8.4f} ± {one['spread_ms']:.4f} ms"
            f"  {100 * one['of_copy']:5.1f} % of a copy{wrong}"
        )
    for one in row["exchanges"]:
        form = Form(one["store_bytes"], one["counted"])
        wrong = "" if one["correct"] else "  WRONG"
        lines.append(
            f"  exchange alone ({form}, {one['sends']} between meetings), {one['clusters']} clusters:"
            f" {one['round_us']:.2f} ± {one['spread_us']:.2f} µs, {one['remote_gb_s']:.0f} GB/s to others,"
            f" 2^26 points in {one['all_points_ms']:.4f} ms{wrong}"
        )
    for one in row["meetings"]:
        wrong = "" if one["correct"] else "  WRONG"
        order = "release" if one["in_order"] else "relaxed"
        lines.append(f"  meeting alone ({order}): {one['us']:.3f} ± {one['spread_us']:.3f} µs{wrong}")
    return lines


def bounds(rows: list[dict[str, Any]], recorded: dict[int, dict[str, Any]]) -> list[dict[str, Any]]:
    """Of each N, the most that a cluster form can reach in % of a copy, beside what is reached."""
    found = []
    for n in sorted({row["n"] for row in rows}):
        right = [
            {**piece, "b": row["b"]}
            for row in rows
            for piece in row["pieces"]
            if row["n"] == n and piece["correct"]
        ]
        exchanged = [piece for piece in right if piece["piece"].startswith(EXCHANGE)]
        whole = [piece for piece in right if piece["piece"] == WHOLE]
        found.append(
            {
                "n": n,
                "bound": min(exchanged, key=_chosen, default=None),
                "fft": min(whole, key=_chosen, default=None),
                "recorded": recorded.get(n),
            }
        )
    return found


def _chosen(piece: dict[str, Any]) -> float:
    """What the first half of the rounds says."""
    return float(piece["chosen_ms"])


def bound_lines(found: list[dict[str, Any]]) -> Iterable[str]:
    """The bounds, for the terminal; the columns are % of a copy."""
    yield "      N   load, exchange, store            same with the transform   best recorded"
    for row in found:
        bound, fft, recorded = (row[key] for key in ("bound", "fft", "recorded"))
        exchanged = (
            f"{100 * bound['of_copy']:5.1f} % (B = {bound['b']:2}, {bound['piece'][len(EXCHANGE) : -1]})"
            if bound
            else "-"
        )
        whole = f"{100 * fft['of_copy']:5.1f} % (B = {fft['b']})" if fft else "-"
        answer = "-"
        if recorded:
            answer = f"{100 * recorded['of_copy']:5.1f} % ({recorded['configuration']['form']})"
        yield f"{row['n']:7}   {exchanged:32} {whole:25} {answer}"


def recorded_answers(path: Path | None) -> dict[int, dict[str, Any]]:
    """Configuration and speed of ``fft-large`` by N, 2^14 to 2^18, by peers.py; none without a file."""
    if path is None or not path.exists():
        return {}
    rows = json.loads(path.read_text())["rows"]
    return {
        row["n"]: {"configuration": row["configuration"], "of_copy": row["of_bare"]}
        for row in rows
        if row["kernel"] == "fft-large" and 2**14 <= row["n"] <= 2**18
    }


def recorded_on(gpus: list[dict[str, str]]) -> Path | None:
    """The results of peers.py on a GPU of this kind, if there are any."""
    name = gpus[0]["name"] if gpus else ""
    return next((RESULTS / f"peers-{kind}.json" for kind in ("h100", "h200") if kind.upper() in name), None)
