"""Sizes of kernel files: lists, ranges, and those a workload may leave out."""

import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from kernel_texts import Load, loader, text_of

from tuner.kernel_files.catalog import Catalog
from tuner.kernel_files.kernel_file import KernelFile
from tuner.kernel_files.sizes import combinations, count_combinations, listed
from tuner.model.errors import KernelFileError, UnknownNameError
from tuner.problems.lookup import problem_for
from tuner.search.candidates import fit_batches

TEXT = text_of("sums")


@pytest.fixture
def load(tmp_path: Path) -> Load:
    return loader("sums", tmp_path)


@pytest.fixture
def kernel(load: Load) -> KernelFile:
    """The kernel of the text above."""
    return load(TEXT)


# --- ranges --------------------------------------------------------------------------------------


@pytest.mark.parametrize("N", [2, 3, 777, 1000, "999"])
def test_any_whole_number_of_a_range_is_a_size(kernel: KernelFile, N: int | str) -> None:
    """Both ends and all between are taken, as numbers or as the text of a command line."""
    workload = kernel.workload({"N": N})
    assert dict(workload.sizes)["N"] == int(N)
    assert workload.batch == 2**20 // int(N)
    assert str(workload) == f"sums:N={N}"


@pytest.mark.parametrize("N", [1, 1001, -2, 2.0, True, "0x10", "007", "64.0", "", "9" * 5000, "²"])
def test_what_is_not_in_a_range_is_refused(kernel: KernelFile, N: Any) -> None:
    """The message names the size and its range."""
    with pytest.raises(UnknownNameError, match=r"choose N from the whole numbers from 2 to 1000$"):
        kernel.workload({"N": N})


def test_a_missing_range_is_asked_for(kernel: KernelFile) -> None:
    """A workload without it is refused, with an example."""
    with pytest.raises(UnknownNameError, match="size N is missing, as in sums:N=2; choose N from the whole"):
        kernel.workload({})


@pytest.mark.parametrize(
    ("values", "shown"),
    [
        (range(2, 17), (2, 4, 8, 16)),
        (range(3, 18), (3, 4, 8, 16, 17)),
        (range(5, 7), (5, 6)),
        (range(1, 2), (1,)),
        ((7, 3), (7, 3)),
    ],
)
def test_a_range_is_listed_by_powers_of_two_and_ends(values: Any, shown: tuple[int, ...]) -> None:
    """Listings and checks take those of a range, and every value of a list."""
    assert listed(values) == shown


@pytest.mark.parametrize(
    ("sizes", "shown"),
    [
        ({"H": range(1, 1025), "form": ("a", "b")}, [(1 << i, form) for i in range(11) for form in "ab"]),
        ({"H": range(1, 1025), "W": range(3, 50)}, [(h, w) for h in (1, 32, 1024) for w in (3, 16, 49)]),
        ({"H": range(1, 2**53), "W": range(7, 8)}, [(1, 7), (2**26, 7), (2**53 - 1, 7)]),
        ({}, [()]),
        (
            {"dtype": tuple("abcde"), "form": tuple("ie"), "operator": tuple("+*&|")},
            [
                ("a", "i", "+"),
                ("a", "e", "+"),
                *((t, "i", "+") for t in "bcde"),
                *(("a", "i", o) for o in "*&|"),
            ],
        ),
    ],
)
def test_several_ranges_are_listed_by_fewer_values(sizes: Any, shown: list[tuple[Any, ...]]) -> None:
    """One range has its powers of two; several have their ends and one between. Many texts vary alone."""
    found = [tuple(one.values()) for one in combinations(sizes)]
    assert sorted(found) == sorted(shown)
    assert count_combinations(sizes) == len(shown)


def test_workloads_are_the_listed_ones(kernel: KernelFile) -> None:
    """Every listed value of N with every form and type, each named once."""
    names = [str(workload) for workload in kernel.workloads()]
    assert len(names) == len(set(names)) == 10 * 2 * 3
    assert names[:2] == ["sums:N=2", "sums:N=2,dtype=float64"]


# --- optional sizes ------------------------------------------------------------------------------


def test_optional_sizes_take_their_first_value(kernel: KernelFile) -> None:
    """What is left out has the first value of its list, and expressions see it."""
    workload = kernel.workload({"N": 64})
    assert workload.sizes == (("N", 64), ("form", "inclusive"), ("dtype", "float32"))
    plan = kernel.plan(workload, kernel.default(workload))
    assert plan.stages[0].entry == "sums<float, 64>"
    assert {buffer.dtype for buffer in plan.buffers} == {"float32"}


def test_a_workload_has_one_name(kernel: KernelFile) -> None:
    """A size at its default is not shown, whether it was written or not; others are, in the file's order."""
    bare, written = kernel.workload({"N": 64}), kernel.workload({"form": "inclusive", "N": 64})
    assert bare == written
    assert hash(bare) == hash(written)
    assert str(bare) == str(written) == "sums:N=64"
    other = kernel.workload({"dtype": "int32", "N": 64})
    assert str(other) == "sums:N=64,dtype=int32"
    assert other != bare
    assert str(kernel.workload({"dtype": "int32", "N": 64, "form": "exclusive"})) == (
        "sums:N=64,form=exclusive,dtype=int32"
    )


def test_names_are_read_back(kernel: KernelFile) -> None:
    """The name of every workload names that workload again: answers are stored by it."""
    catalog = Catalog({kernel.name: kernel})
    for workload in kernel.workloads():
        assert catalog.workload(str(workload)) == workload
        assert str(catalog.workload(str(workload))) == str(workload)


def test_names_survive_copies(kernel: KernelFile) -> None:
    """A worker's copy, and a workload whose batch was capped, have the name of the original."""
    workload = kernel.workload({"N": 64})
    assert str(pickle.loads(pickle.dumps(workload))) == str(workload)  # noqa: S301 - its own
    assert str(replace(workload, batch=1)) == str(workload)
    (fitted,), (notice,) = fit_batches([(kernel, workload)], 2**20)
    assert str(fitted) == str(workload)
    assert notice.startswith("sums:N=64: batch capped")


def test_the_example_of_a_message_needs_no_optional_size(kernel: KernelFile) -> None:
    """A wrong spec is answered with the shortest right one."""
    with pytest.raises(Exception, match=r"as in sums:N=2$"):
        Catalog({kernel.name: kernel}).workload("sums:64")


# --- types by size -------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32"])
@pytest.mark.parametrize("form", ["inclusive", "exclusive"])
def test_arrays_of_any_type_are_made_and_judged(kernel: KernelFile, dtype: str, form: str) -> None:
    """Inputs have the type of the workload, and references see sizes that are text."""
    workload = kernel.workload({"N": 8, "dtype": dtype, "form": form}, batch=3)
    plan = kernel.plan(workload, kernel.space(workload)[0])
    problem, sizes = problem_for(plan.problem), dict(workload.sizes)
    inputs = problem.inputs(np, np.random.default_rng(0), plan.buffers, sizes)
    right = inputs["x"] * np.asarray(1 if form == "inclusive" else 2, dtype)
    assert right.dtype == np.dtype(dtype)
    assert problem.residual(np, inputs, {"y": right}, sizes).ok
    assert not problem.residual(np, inputs, {"y": right + right.dtype.type(1)}, sizes).ok


def test_an_unknown_type_is_found_when_it_is_made(load: Load) -> None:
    """A template that gives no type names the key, the text and the workload."""
    kernel = load(TEXT.replace('dtype = "{dtype}"', 'dtype = "u{dtype}"', 1))
    right, wrong = kernel.workload({"N": 4, "dtype": "int32"}), kernel.workload({"N": 4})
    assert kernel.plan(right, kernel.default(right)).buffers[0].dtype == "uint32"
    with pytest.raises(KernelFileError, match=r"1 \(x\) dtype: 'ufloat32' is not one of .*at sums:N=4 "):
        kernel.plan(wrong, kernel.default(wrong))
