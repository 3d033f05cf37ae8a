"""What stands between this machine and measurements one can trust; looked at, never changed."""

from tuner.doctor.examination import Surroundings, examine
from tuner.doctor.finding import SEVERITIES, Finding, counts, worst

__all__ = ["SEVERITIES", "Finding", "Surroundings", "counts", "examine", "worst"]
