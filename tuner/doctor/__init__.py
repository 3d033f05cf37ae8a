"""Checks of a machine for problems that affect measurements; nothing is changed."""

from tuner.doctor.examination import Surroundings, examine
from tuner.doctor.finding import SEVERITIES, Finding, counts, worst

__all__ = ["SEVERITIES", "Finding", "Surroundings", "counts", "examine", "worst"]
