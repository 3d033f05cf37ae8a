"""Which stated answers of the catalogue's kernels GPUs with less shared memory, and older ones, take."""

import math
from typing import NamedTuple

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tuner.kernel_files.catalog import Catalog
from tuner.model.errors import InputError
from tuner.model.plan import Configuration, TunableValue, Workload
from tuner.search.candidates import TraitReader
from tuner.space.occupancy import device_limits

CATALOG = Catalog.load()
H200, A100, ORIN, SM_86, XAVIER, TURING = (9, 0), (8, 0), (8, 7), (8, 6), (7, 2), (7, 5)
LARGEST = 2**26  # numbers of a batch


def workload_of(kernel: str, N: int, dtype: str, batch: int | None = None) -> Workload:
    return CATALOG.kernel(kernel).workload({"N": N, "dtype": dtype}, batch or LARGEST // N)


def taken(workload: Workload, capability: tuple[int, int], gpu: str = "") -> Configuration | None:
    """The first answer that GPUs of a compute capability and name can launch, before anything is compiled."""
    kernel = CATALOG.kernel(workload.kernel)
    limits = device_limits(capability, multiprocessors=100, memory_bytes=2**34, l2_bytes=2**22)
    stated = kernel.stated_answers(workload, gpu)
    reader = TraitReader(kernel, workload, limits, kernel.min_occupancy or 0.0, stated)
    return next((one for one in stated if reader.of(one).candidate is not None), None)


class Case(NamedTuple):
    """Some values of the answer for a workload on GPUs; None where it is the default's turn."""

    workload: Workload
    capabilities: tuple[tuple[int, int], ...]
    values: dict[str, TunableValue] | None
    gpu: str = ""


LONG, DOUBLE = workload_of("fft-long", 15625, "complex64"), workload_of("fft-long", 10000, "complex128")
CIRCLES = workload_of("tridiag-periodic-large", 65536, "float64")
FEW_CIRCLES = workload_of("tridiag-periodic-large", 65536, "float64", batch=8)
RECURRENCE = workload_of("linear-recurrence", 2**26, "float32")
IN_PASSES: dict[str, TunableValue] = {"form": "passes", "load": "async"}


@pytest.mark.parametrize(
    "case",
    [
        Case(LONG, (H200,), {"form": "whole", "load": "bulk"}),
        Case(LONG, (H200,), {"form": "whole", "load": "bulk"}, "NVIDIA H200"),
        Case(LONG, (H200,), {"form": "whole", "load": "plain", "split": False}, "NVIDIA H100 80GB HBM3"),
        Case(LONG, (XAVIER,), {"form": "whole", "load": "prefetch", "split": True}, "H100 of little memory"),
        Case(LONG, (A100, ORIN), {"form": "whole", "load": "plain", "split": False}),
        Case(LONG, (SM_86, XAVIER), {"form": "whole", "load": "prefetch", "split": True}),
        Case(DOUBLE, (SM_86, XAVIER), {"form": "whole", "load": "plain", "split": True}),
        Case(CIRCLES, (H200,), IN_PASSES),
        Case(FEW_CIRCLES, (H200,), {"form": "cluster"}),
        Case(FEW_CIRCLES, (A100, ORIN, SM_86), IN_PASSES),
        Case(FEW_CIRCLES, (XAVIER, TURING), None),  # no asynchronous copies
        Case(workload_of("tridiag-large", 16384, "float64"), (A100, ORIN, SM_86), IN_PASSES),
        Case(workload_of("scan-long", 2**26, "float32"), (H200,), {"slots": 6}),
        Case(RECURRENCE, (H200,), {"slots": 6}),
        Case(RECURRENCE, (A100, SM_86, TURING), {"slots": 0, "P": 24}),
    ],
    ids=lambda case: f"{case.workload} on {case.capabilities} {case.gpu}",
)
def test_answers_by_what_a_gpu_can_launch(case: Case) -> None:
    """Where a GPU refuses what is stated for an H200, it takes another answer than the default."""
    for capability in case.capabilities:
        found = taken(case.workload, capability, case.gpu)
        if case.values is None:
            assert found is None
        else:
            assert found is not None
            assert case.values.items() <= dict(found).items()
            assert found != CATALOG.kernel(case.workload.kernel).default(case.workload)


def test_few_rows_have_no_answer_in_one_pass() -> None:
    """Few rows leave multiprocessors idle in one pass: no answer for them is whole on any GPU."""
    few = workload_of("fft-long", 15625, "complex64", batch=4)
    answers = CATALOG.kernel("fft-long").stated_answers(few, gpu=None)
    assert {one["form"] for one in answers} == {"passes"}


SEVERAL = [name for name in CATALOG.names if len(CATALOG.kernel(name).recipe.stated) > 1]


@pytest.mark.parametrize("name", SEVERAL)
def test_every_answer_is_a_configuration(name: str) -> None:
    """Each table has values of the lists that satisfy the rules, at ends and middle of every size."""
    kernel = CATALOG.kernel(name)
    for workload in kernel.workloads():
        for batch in (1, 3, workload.batch):
            same = kernel.workload(dict(workload.sizes), batch)
            for one in kernel.stated_answers(same, gpu=None):
                kernel.plan(same, one)


WITH_RANGES = [
    name
    for name in CATALOG.names
    if any(isinstance(one, range) for one in CATALOG.kernel(name).sizes.values())
]
SHORT = 10_000  # lengths that are drawn more often
SMALL = 2**20  # numbers of a problem


@st.composite
def drawn_workloads(draw: st.DrawFn, name: str) -> Workload:
    """Any size of a kernel, short ones more often, and several problems where they are small."""
    kernel = CATALOG.kernel(name)
    sizes: dict[str, int | str] = {}
    for size, values in kernel.sizes.items():
        if isinstance(values, range):
            first, last = values[0], values[-1]
            sizes[size] = draw(st.integers(first, min(last, SHORT)) | st.integers(first, last))
        else:
            sizes[size] = draw(st.sampled_from(list(values)))
    try:
        small = math.prod(one for one in sizes.values() if isinstance(one, int)) <= SMALL
        return kernel.workload(sizes, draw(st.sampled_from([1, 3, 257, 5000])) if small else 1)
    except InputError:
        assume(False)
        raise


@pytest.mark.parametrize("name", WITH_RANGES)
@given(data=st.data())
def test_every_size_has_answers(name: str, data: st.DataObject) -> None:
    """Default and stated answers, of every GPU, satisfy the rules and can be planned."""
    kernel, workload = CATALOG.kernel(name), data.draw(drawn_workloads(name))
    for one in (kernel.default(workload), *kernel.stated_answers(workload, gpu=None)):
        assert kernel.plan(workload, one).configuration == one
