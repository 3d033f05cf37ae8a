"""What one family's kernels and peers did at one size, and the rows that tables are made of."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import answers
from cold_timing import median, spread
from peer import Peer
from peer_families import BYTES, ELEMENTS, FAMILIES, RATES, rate, target
from sweep import Result

ROUNDS = 22


@dataclass(frozen=True)
class Tried:
    """A peer's form, its time by a few repeats and its error; infinite where it would not run."""

    peer: Peer
    ms: float
    error: float
    trouble: str = ""


@dataclass(frozen=True)
class Contest:
    """Times of one family at one size.

    Attributes:
        family: key of ``FAMILIES``.
        n: length of a row.
        copy_gb_s: roofline of the run.
        spaces: configurations timed, by kernel.
        finalists: our best configurations, by kernel.
        tried: the peers' forms.
        moves: names of the bare kernels.
        times: milliseconds of the rounds, by name.
    """

    family: str
    n: int
    copy_gb_s: float
    spaces: dict[str, int]
    finalists: dict[str, list[Result]]
    tried: list[Tried]
    moves: list[str]
    times: dict[str, list[float]]

    @property
    def problem(self) -> str:
        """What is solved."""
        return FAMILIES[self.family].problem

    def chosen(self, names: Sequence[str]) -> str:
        """The fastest by the first half of the rounds, which nothing else is reported of."""
        return min(names, key=lambda name: median(self.times[name][: ROUNDS // 2]))

    def reported(self, name: str) -> list[float]:
        """Times of the second half of the rounds."""
        return self.times[name][ROUNDS // 2 :]

    def peer_rows(self) -> list[dict[str, Any]]:
        """One row for each peer, of its fastest form, and for the bare kernel."""
        errors = {t.peer.key: t.error for t in self.tried}
        rows = []
        for name in dict.fromkeys(t.peer.name for t in self.tried):
            forms = [t for t in self.tried if t.peer.name == name]
            final = [t.peer.key for t in forms if t.peer.key in self.times]
            if final:
                chosen = self.chosen(final)
                form = next(t.peer.form for t in forms if t.peer.key == chosen)
                rows.append(self._peer_row(name, form, chosen, errors[chosen]))
                rows[-1]["tried"] = [
                    {"form": t.peer.form, "ms": t.ms, "error": t.error}
                    if not t.trouble
                    else {"form": t.peer.form, "trouble": t.trouble}
                    for t in forms
                ]
        return [*rows, self._peer_row("bare", "", self.chosen(self.moves), 0.0)]

    def _peer_row(self, name: str, form: str, key: str, error: float) -> dict[str, Any]:
        return {
            "family": self.family,
            "n": self.n,
            "peer": name,
            "form": form or key,
            "ms": median(self.reported(key)),
            "spread_ms": spread(self.reported(key)),
            "error": error,
            "correct": error <= answers.allowed_error(self.problem, self.n),
        }

    def rows(self) -> list[dict[str, Any]]:
        """One row for each of our kernels."""
        peers = self.peer_rows()
        bare_ms = next(p["ms"] for p in peers if p["peer"] == "bare")
        best = min((p for p in peers if p["correct"] and p["peer"] != "bare"), key=lambda p: p["ms"])
        return [self._row(kernel, bare_ms, best) for kernel, best_few in self.finalists.items() if best_few]

    def _row(self, kernel: str, bare_ms: float, best: dict[str, Any]) -> dict[str, Any]:
        by_name = {f"{kernel} {r.configuration}": r for r in self.finalists[kernel]}
        chosen = self.chosen(list(by_name))
        result, ms = by_name[chosen], median(self.reported(chosen))
        row = {
            "family": self.family,
            "kernel": kernel,
            "n": self.n,
            "configuration": dict(result.configuration),
            "configurations_timed": self.spaces[kernel],
            "ms": ms,
            "spread_ms": spread(self.reported(chosen)),
            "rate": rate(self.problem, self.n, ms),
            "rate_name": RATES[self.problem],
            "roofline": BYTES[self.problem] * ELEMENTS / (ms * 1e6 * self.copy_gb_s),
            "bare_ms": bare_ms,
            "of_bare": bare_ms / ms,
            "error": result.error,
            "correct": result.error <= answers.allowed_error(self.problem, self.n),
            "best_peer": best["peer"],
            "best_peer_form": best["form"],
            "best_peer_ms": best["ms"],
            "ratio": best["ms"] / ms,
        }
        return {**row, **target(self.family, row)}


def line(row: dict[str, Any]) -> str:
    """One of our rows, for the terminal."""
    configuration = " ".join(f"{name}={value}" for name, value in row["configuration"].items())
    return (
        f"{row['kernel']:12} N={row['n']:<8} {row['ms']:.4f} ± {row['spread_ms']:.4f} ms"
        f" {100 * row['of_bare']:6.1f} % of bare  {row['ratio']:5.3f} x {row['best_peer']}"
        f" ({row['best_peer_ms']:.4f} ms)  error {row['error']:.1e}"
        f"  {'met' if row['met'] else 'MISSED'} ({row['target']})  {configuration}"
        f"  [of {row['configurations_timed']}]"
    )


def peer_line(row: dict[str, Any]) -> str:
    """One of the peers' rows, for the terminal."""
    return (
        f"    {row['peer']:28} N={row['n']:<8} {row['ms']:.4f} ± {row['spread_ms']:.4f} ms"
        f"  error {row['error']:.1e}  {row['form']}  [of {len(row.get('tried', ()))}]"
    )
