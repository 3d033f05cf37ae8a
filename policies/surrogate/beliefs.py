"""What traits of configurations are believed to cost before anything is measured.

Recorded spaces of other kernels tell: ``benchmarks/trait_beliefs.py`` regresses the responses of each on its
traits. What is believed of a coefficient is its mean over families of kernels, and doubted is its deviation.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from .features import Floats
from .traits import NAMES

FILE = Path(__file__).with_name("beliefs.json")


@dataclass(frozen=True)
class Beliefs:
    """Coefficients of traits in standardised responses: normal, and independent.

    Attributes:
        mean: shape (traits,).
        variance: shape (traits,).
        scale: usual standard deviation of a space's bent log costs.
    """

    mean: Floats
    variance: Floats
    scale: float


@cache
def beliefs() -> Beliefs:
    """Those that are shipped."""
    return beliefs_of(json.loads(FILE.read_text()))


def beliefs_of(document: Mapping[str, Any]) -> Beliefs:
    """Those of a document as `FILE` holds it."""
    rows = [document["traits"][name] for name in NAMES]
    means, deviations = ([row[key] for row in rows] for key in ("mean", "deviation"))
    return Beliefs(np.array(means), np.array(deviations) ** 2, float(document["scale"]))
