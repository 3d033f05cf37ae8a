"""One finding of the doctor."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

Severity = Literal["ok", "note", "warning", "error"]

SEVERITIES: tuple[Severity, ...] = ("ok", "note", "warning", "error")
"""From harmless to what must be mended."""


@dataclass(frozen=True)
class Finding:
    """What one check found.

    Attributes:
        check: what was looked at, e.g. ``driver``, ``cuda:0 sensors``.
        severity: ``ok``; ``note``: good to know, something optional is not there; ``warning``: measurements
            are possible and less trustworthy; ``error``: something must be mended first.
        text: what was found.
        remedy: what to do; empty where nothing need be done.
    """

    check: str
    severity: Severity
    text: str
    remedy: str = ""


def counts(findings: Iterable[Finding]) -> str:
    """Count the findings by severity, e.g. ``0 errors, 1 warning, 3 notes``."""
    severities = [finding.severity for finding in findings]
    words = []
    for severity in ("error", "warning", "note"):
        number = severities.count(severity)
        words.append(f"{number} {severity}{'' if number == 1 else 's'}")
    return ", ".join(words)


def worst(findings: Iterable[Finding]) -> Severity:
    """The highest severity among findings; ``ok`` where there are none."""
    return max((finding.severity for finding in findings), key=SEVERITIES.index, default="ok")
