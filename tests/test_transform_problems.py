"""Problems of planes, columns and convolutions: right answers pass, and wrong ones fail."""

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import pytest

from tuner.model.errors import KernelFileError
from tuner.model.plan import Buffer, ProblemSpec
from tuner.problems.lookup import problem_for

Array: TypeAlias = Any
SHAPES = {"fft-columns": (3, 12, 10), "fft-2d": (3, 12, 12), "fft-convolution": (3, 60)}


def buffers(name: str) -> list[Buffer]:
    """An input, the spectrum of a filter where there is one, and an output."""
    shape = SHAPES[name]
    extra = [Buffer("spectrum", "complex64", shape[1:], "in")] if name == "fft-convolution" else []
    return [Buffer("x", "complex64", shape, "in"), *extra, Buffer("y", "complex64", shape, "out")]


def right(name: str, inputs: dict[str, Array], direction: str) -> Array:
    """By sums over the matrix of the transform, in double precision."""
    x = inputs["x"].astype(np.complex128)
    sign = 1 if direction == "inverse" else -1

    def matrix(n: int, way: int) -> Array:
        whole = np.exp(way * 2j * np.pi * np.outer(np.arange(n), np.arange(n)) / n)
        return whole / n if way > 0 else whole

    if name == "fft-convolution":
        n = x.shape[1]
        return x @ (matrix(n, -1) * inputs["spectrum"]) @ matrix(n, 1)
    found = np.einsum("km,bmn->bkn", matrix(x.shape[1], sign), x)
    return found @ matrix(x.shape[2], sign) if name == "fft-2d" else found


def transposed(y: Array) -> None:
    y[1] = y[1].T.copy() if y.ndim == 3 else y[1, ::-1].copy()


def columns_swapped(y: Array) -> None:
    y[..., [2, 3]] = y[..., [3, 2]]


def one_off(y: Array) -> None:
    y.reshape(len(y), -1)[2, -1] += 0.1 * abs(y[2]).max()


def not_written(y: Array) -> None:
    y.reshape(len(y), -1)[0, 7] = np.nan


CASES = [
    (name, direction)
    for name in SHAPES
    for direction in (("forward", "inverse") if name != "fft-convolution" else ("forward",))
]


@pytest.mark.parametrize("damage", [transposed, columns_swapped, one_off, not_written])
@pytest.mark.parametrize(("name", "direction"), CASES)
def test_right_answers_pass_and_damaged_ones_fail(
    name: str, direction: str, damage: Callable[[Array], None]
) -> None:
    """The answer in single precision passes both checks; swapped, missing and wrong numbers fail both."""
    if name == "fft-columns" and damage is transposed:
        damage = columns_swapped  # its planes are no squares
    problem, sizes = problem_for(ProblemSpec(name)), {"direction": direction}
    inputs = problem.inputs(np, np.random.default_rng(4), buffers(name), sizes)
    answer = right(name, inputs, direction).astype(np.complex64)
    for judge in (problem.compare, lambda *given: problem.residual(np, *given)):
        assert judge(inputs, {"y": answer}, sizes).ok
        wrong = answer.copy()
        damage(wrong)
        assert not judge(inputs, {"y": wrong}, sizes).ok


@pytest.mark.parametrize("name", SHAPES)
def test_arrays_of_another_form_are_refused(name: str) -> None:
    """Buffers without the axes of the problem are refused with those it needs."""
    flat = [Buffer(one.name, one.dtype, (6,), one.role) for one in buffers(name)]
    with pytest.raises(KernelFileError, match=r"needs .* of shape \[batch"):
        problem_for(ProblemSpec(name)).validate(flat)


@pytest.mark.parametrize(("name", "shape"), [("fft-columns", (4000, 2, 5)), ("fft-2d", (4000, 2, 1))])
def test_short_transforms_are_granted_the_rounding_of_the_test(name: str, shape: tuple[int, ...]) -> None:
    """Of transforms of two points in double precision every right answer passes, of thousands."""
    rng = np.random.default_rng(2)
    x = rng.standard_normal(shape) + 1j * rng.standard_normal(shape)
    y = np.fft.fft(x, axis=1)
    sizes: dict[str, int | str] = {
        "N": 2,
        "W": shape[2],
        "M": 2,
        "direction": "forward",
        "dtype": "complex128",
    }
    assert problem_for(ProblemSpec(name)).residual(np, {"x": x}, {"y": y}, sizes).ok
