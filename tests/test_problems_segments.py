"""The scan of segments as a problem: flags and offsets, every form and type, by law and by reference."""

import itertools
from typing import Any

import numpy as np
import pytest
from long_scans import DTYPES, FORMS, OPERATORS, WAYS, scanned_segments

from tuner.model.errors import KernelFileError
from tuner.model.plan import Buffer, InputSpec, ProblemSpec
from tuner.problems.lookup import problem_for

SEGMENTED = problem_for(ProblemSpec("segmented-scan"))
LENGTH = 20_003
FLAGS = Buffer("heads", "uint8", (2, LENGTH), "in")
OFFSETS = Buffer("offsets", "int32", (2, 600), "in", input=InputSpec("csr_offsets", (LENGTH,)))
TYPES = [dtype for dtype in DTYPES if dtype != "bfloat16"]
CASES = [*zip(TYPES, OPERATORS, strict=True), ("complex64", "sum"), ("complex64", "product")]


def buffers(dtype: str, segments: Buffer) -> list[Buffer]:
    return [Buffer("x", dtype, (2, LENGTH), "in"), segments, Buffer("y", dtype, (2, LENGTH), "out")]


@pytest.mark.parametrize("segments", [FLAGS, OFFSETS], ids=lambda buffer: buffer.name)
@pytest.mark.parametrize(("dtype", "operator"), CASES)
def test_right_answers_pass_and_one_wrong_value_fails(segments: Buffer, dtype: str, operator: str) -> None:
    """In any form and direction law and reference agree with segments scanned one after another."""
    for form, way in itertools.product(FORMS, WAYS):
        sizes: dict[str, Any] = {"form": form, "operator": operator, "direction": way}
        given = SEGMENTED.inputs(np, np.random.default_rng(3), buffers(dtype, segments), sizes)
        x, second = given.values()
        heads = second != 0
        if segments is OFFSETS:
            heads = np.zeros(x.shape, bool)
            for row, begins in zip(heads, second, strict=True):
                row[begins[begins < LENGTH]] = True
        assert 2 <= heads.sum() <= 1200
        y = scanned_segments(x, heads, operator, form, way).astype(dtype)
        assert SEGMENTED.compare(given, {"y": y}, sizes).ok
        assert SEGMENTED.residual(np, given, {"y": y}, sizes).ok
        y[1, 10_000] = 1 - y[1, 10_000] if operator in ("and", "or", "xor") else y[1, 10_000] + 1
        assert not SEGMENTED.compare(given, {"y": y}, sizes).ok
        assert not SEGMENTED.residual(np, given, {"y": y}, sizes).ok


def test_a_sum_that_runs_on_is_wrong() -> None:
    """The scan of the whole row is no scan of its segments."""
    given = SEGMENTED.inputs(np, np.random.default_rng(1), buffers("float64", FLAGS), {})
    y = np.cumsum(given["x"], axis=1)
    assert not SEGMENTED.compare(given, {"y": y}, {}).ok
    assert not SEGMENTED.residual(np, given, {"y": y}, {}).ok


def test_many_short_segments_are_scanned_side_by_side() -> None:
    """Segments of one and two elements, thousands of them, are judged as long ones are."""
    given = SEGMENTED.inputs(np, np.random.default_rng(1), buffers("int64", FLAGS), {})
    given["heads"][:, ::2] = 1
    y = scanned_segments(given["x"], given["heads"] != 0, "sum", "inclusive", "forward").astype(np.int64)
    assert SEGMENTED.compare(given, {"y": y}, {}).ok
    y[0, 11] += 1
    assert not SEGMENTED.compare(given, {"y": y}, {}).ok


@pytest.mark.parametrize(
    "second",
    [
        Buffer("heads", "uint8", (2, 7), "in"),
        Buffer("heads", "float32", (2, LENGTH), "in"),
        Buffer("offsets", "int32", (3, 7), "in"),
    ],
    ids=str,
)
def test_what_tells_no_segments_is_refused(second: Buffer) -> None:
    """Flags are one for each element, offsets whole numbers for each row."""
    with pytest.raises(KernelFileError, match=r"needs a second input: flags, bool or uint8 \[batch, N\]"):
        SEGMENTED.validate(buffers("float32", second))
