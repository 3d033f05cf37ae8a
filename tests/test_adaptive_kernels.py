"""The kernels with pragmas are right on the host at any size, and compile for devices old and new."""

from pathlib import Path

import host_build
import numpy as np
import pytest
from adaptive_kernels import NAMES, by_hand, check_answer, sample, small_plans, with_constants
from host_build import ADDRESSES, CHECKED, HostRunError
from hypothesis import given
from hypothesis import strategies as st

from tuner.compiler import CompiledStage, Compiler
from tuner.config import KernelFile
from tuner.errors import CompilerUnavailableError
from tuner.model import Plan

ARCHITECTURES = (53, 72, 87, 90, 100, 120)  # Jetson TX1, Xavier, Orin, Hopper, Blackwell's two
LARGE = {  # sizes at which every tunable has a value
    "convolution-columns": {"H": 1080, "W": 1920, "R": 8},
    "convolution-rows": {"H": 1080, "W": 1920, "R": 8},
    "matmul-split-k": {"M": 128, "N": 256, "K": 4096},
    "mvmul": {"H": 300, "W": 8192},
    "reduction": {"N": 10**8},
    "scalar-product": {"P": 10**5, "L": 1000},
    "transpose": {"H": 1000, "W": 2000},
    "transpose-naive": {"H": 1000, "W": 2000},
}
needs_compiler = pytest.mark.skipif(host_build.COMPILER is None, reason="needs g++")


def prepared(plans: list[Plan], flags: tuple[str, ...]) -> list[Plan]:
    """The plans, compiled for the host; those with constant arrays are compiled when they run."""
    host_build.build_plans([plan for plan in plans if not has_constants(plan)], flags)
    return plans


def has_constants(plan: Plan) -> bool:
    return any(buffer.role == "constant" for buffer in plan.buffers)


@needs_compiler
@pytest.mark.parametrize("name", NAMES)
def test_values_give_right_answers(name: str) -> None:
    """Each value of each tunable is right at odd sizes, with no race and nothing astray."""
    for plan in prepared(small_plans(by_hand(name)), CHECKED):
        check_answer(plan, CHECKED)
