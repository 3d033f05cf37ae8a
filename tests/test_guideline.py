"""The embedded rule: Fig. 3 of "Performance Tuning for GPU-Embedded Systems", by hand."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import product

import pytest
from policy_driver import choice_of

from tuner.model.plan import Configuration, TunableValue
from tuner.space.occupancy import candidate, device_limits, launch
from tuner.space.search_view import Candidate

TX1 = device_limits((5, 3), multiprocessors=2, memory_bytes=2**32, l2_bytes=2**18)
ROLES = {
    "shared_elements": "S",
    "elements_per_thread": "P",
    "threads_per_block": "L",
    "radix": "r",
    "shuffle": "shuffle",
}
THREADS = (32, 64, 128, 256, 512, 1024)
WARP = 32


def built(spl: tuple[int, int, int], r: int, registers: int, shared_bytes: int) -> Candidate:
    """A candidate as BPLG would build it; S of 0 is one that exchanges by shuffles."""
    S, P, L = spl
    stage = launch(
        TX1, blocks=2**10, threads_per_block=L, shared_bytes=shared_bytes, registers_per_thread=registers
    )
    named = Configuration({"S": S, "P": P, "L": L, "r": r, "shuffle": S == 0})
    return candidate(named, [stage] if stage.blocks_per_sm else [], ROLES)


def best(candidates: Sequence[Candidate]) -> tuple[int, int, int]:
    """(S, P, L) of the embedded rule."""
    found = choice_of(candidates, TX1, ROLES, rule="embedded").configuration
    S, P, L = (int(found[name]) for name in ("S", "P", "L"))
    return S, P, L


def exchanging(
    N: int, registers: Mapping[int, int], bytes_of: Callable[[int], int], *, radix: bool, shuffles: bool
) -> Iterator[Candidate]:
    """Every (S, P, L) of a kernel whose blocks hold whole problems: S = P L, or 0 within a warp.

    Args:
        N: size.
        registers: of a thread, by P.
        bytes_of: shared memory of a block with S elements.
        radix: r = P, else 2.
        shuffles: the kernel may exchange by shuffles where a problem is one warp's.
    """
    for P, L in product(registers, THREADS):
        if P > N or P * L < N:
            continue
        r = P if radix else 2
        yield built((P * L, P, L), r, registers[P], bytes_of(P * L))
        if shuffles and N // P <= WARP:
            yield built((0, P, L), r, registers[P], 0)


# Registers that section V-A implies: P = 2 fits in 32, P = 4 has the 63 % and 20 blocks of 48, WM's 75 % are
# those of 40.
CR = {2: 32, 4: 48, 8: 80}
WM = {2: 32, 4: 40, 8: 80}


@pytest.mark.parametrize(
    ("N", "expected"),
    [(64, (0, 2, 64)), (256, (256, 2, 128)), (512, (512, 2, 256)), (1024, (1024, 2, 512))],
)
def test_figure_3b_cr_and_pcr(N: int, expected: tuple[int, int, int]) -> None:
    """Shuffles up to 64 rows, two rows per thread above: four coefficients of an equation are 16 bytes."""
    candidates = list(exchanging(N, CR, lambda S: 16 * S, radix=False, shuffles=True))

    assert best(candidates) == expected


@pytest.mark.parametrize("N", [64, 128, 256, 512, 1024])
def test_figure_3b_lf(N: int) -> None:
    """All rows of LF, whose elements are two equations, 32 bytes."""
    candidates = list(exchanging(N, CR, lambda S: 32 * S, radix=False, shuffles=True))

    assert best(candidates) == ((0, 2, 64) if N <= 64 else (0, 4, 64) if N == 128 else (N, 2, N // 2))


def test_figure_3b_at_128_for_cr() -> None:
    """20 blocks at 63 % of the warps go before 16 blocks at 100 %, as section V-A reads Fig. 3(a)."""
    shuffling, sharing = built((0, 4, 64), 2, 48, 0), built((128, 2, 128), 2, 32, 4096)

    assert best([shuffling, sharing]) == (0, 4, 64)


def test_the_slip_of_section_5a() -> None:
    """What it computes for that case, 64 threads and 2048 bytes, is row 3 of Fig. 3(a) and would win."""
    assert best([built((0, 4, 64), 2, 48, 0), built((128, 2, 64), 2, 32, 2048)]) == (128, 2, 64)


@pytest.mark.parametrize("N", [64, 128, 256, 512, 1024])
def test_figure_3b_wm(N: int) -> None:
    """Radix 4 by shuffles up to 128, above through shared memory that holds two coefficients of four."""
    candidates = list(exchanging(N, WM, lambda S: 8 * S, radix=True, shuffles=True))

    assert best(candidates) == ((0, 4, 64) if N <= 128 else (N, 4, N // 4))


def test_wm_with_all_coefficients_in_shared_memory_would_keep_two_rows_per_thread() -> None:
    """The rows above 128 need that premise: with 16 bytes an element, P = 4 has 50 % of the warps only."""
    candidates = list(exchanging(256, WM, lambda S: 16 * S, radix=True, shuffles=True))

    assert best(candidates) == (256, 2, 128)


def scans(N: int) -> Iterator[Candidate]:
    """Section V-B: always shuffles, 32 elements per problem in shared memory; P <= 4 fits in 32 registers."""
    registers = {2: 32, 4: 32, 8: 56, 16: 64}
    for P, L in product(registers, THREADS):
        if N <= P * L:
            S = WARP * P * L // N
            yield built((S, P, L), 2, registers[P], 4 * S)


@pytest.mark.parametrize("N", [64, 128, 256, 512, 1024, 2048, 4096])
def test_figure_3c(N: int) -> None:
    """Scan, both patterns; P = 8 must take more than 48 registers, else N = 512 would have it."""
    assert best(list(scans(N))) == ((8192 // N, 4, 64) if N <= 256 else (32, 4, N // 4))


def test_scan_with_few_registers_would_take_eight_elements() -> None:
    """With 40 registers for P = 8, N = 512 has 24 blocks where P = 4 has 16."""
    candidates = [built((32, 4, 128), 2, 32, 128), built((32, 8, 64), 2, 40, 128)]

    assert best(candidates) == (32, 8, 64)


def transforms(N: int) -> list[Candidate]:
    """Section V-C: P = r, no shuffles, 8 bytes an element, 4 at S = 4096; P = 4 exceeds 32 registers.

    In a block of 1024 threads no thread has more than 32 on this GPU; Fig. 3(d) lists such a block for P = 4.
    """
    registers = {2: 32, 4: 40, 8: 56, 16: 80}
    found = []
    for P, L in product(registers, THREADS):
        S = P * L
        taken = 32 if (P, L) == (4, 1024) else registers[P]
        if P <= N <= S <= 4096:
            found.append(built((S, P, L), P, taken, S * (4 if S == 4096 else 8)))
    return found


@pytest.mark.parametrize("N", [64, 128, 256, 512, 1024, 2048, 4096])
def test_figure_3d(N: int) -> None:
    """FFT: radix 4, 256 elements in a block of 64 threads, or a problem in a block."""
    assert best(transforms(N)) == ((256, 4, 64) if N <= 256 else (N, 4, N // 4))


def test_the_radix_costs_blocks_but_not_the_warps() -> None:
    """Radix 4 is taken at 24 blocks and 75 %, where radix 2 fills everything; radix 8 at 50 % is not."""
    found = choice_of(transforms(128), TX1, ROLES, rule="embedded")

    assert (found.best.radix, found.best.B_a, found.best.W_SM) == (4, (24,), (48,))
    assert {one.radix for one in found.shortlist.compared if one.B_a == (32,) and one.warp_share == 1} == {2}
    assert all(one.warp_share < 0.6 for one in found.shortlist.compared if one.radix > 4)


def test_the_tuple_of_large_transforms() -> None:
    """Section V-D: of the blocks of 2048 elements, (2048, 8, 512) with radix 8 and 75 % of the warps.

    S = P L holds with half of the elements in shared memory at a time.
    """
    registers = {4: 32, 8: 40, 16: 64}
    candidates = [built((2048, P, 4096 // P), P, registers[P], 8 * 2048) for P in registers]

    found = choice_of(candidates, TX1, ROLES, rule="embedded")

    assert best(candidates) == (2048, 8, 512)
    assert found.best.warp_share == 0.75


def staged(passes: Sequence[tuple[int, int]], r: int = 8) -> Candidate:
    """A candidate with a launch per (threads, registers)."""
    stages = [
        launch(TX1, blocks=64, threads_per_block=L, shared_bytes=2048, registers_per_thread=registers)
        for L, registers in passes
    ]
    named: dict[str, TunableValue] = {"r": r, "P": 8, "passes": str(passes)}
    return candidate(Configuration(named), stages, ROLES)


def test_fewer_kernels_come_first() -> None:
    """Section IV-C: two kernels go before three that fill the GPU better, whatever their radix."""
    two, three = staged([(256, 64), (256, 64)], r=4), staged([(64, 32)] * 3, r=16)

    assert choice_of([three, two], TX1, ROLES, rule="embedded").best.candidate is two


def test_a_full_kernel_does_not_make_up_for_an_empty_one() -> None:
    """Kernels are compared from the emptiest on: 75 % and 75 % go before 100 % and 50 %."""
    even, uneven = staged([(64, 40), (64, 40)]), staged([(64, 32), (256, 64)])

    assert choice_of([uneven, even], TX1, ROLES, rule="embedded").best.candidate is even


def test_the_emptiest_kernel_must_have_enough_warps_before_the_radix_counts() -> None:
    """A larger radix is no reason to leave one of two kernels at 50 % of the warps."""
    even, uneven = staged([(64, 40), (64, 40)], r=8), staged([(64, 32), (256, 64)], r=16)

    assert choice_of([uneven, even], TX1, ROLES, rule="embedded").best.candidate is even


def test_the_order_of_the_kernels_is_no_criterion() -> None:
    """A kernel of 64 threads before one of 128, or after it: the rule cannot tell them apart."""
    there, back = staged([(64, 40), (128, 32)]), staged([(128, 32), (64, 40)])

    choice = choice_of([there, back], TX1, ROLES, rule="embedded")
    assert "the rule cannot tell it apart" in choice.reasons[-1]


def test_below_enough_warps_the_fullest_is_taken_and_of_equals_the_larger_p() -> None:
    """The third step: warps before blocks, then elements per thread."""
    few_blocks = built((64, 4, 128), 2, 64, 64)  # 8 blocks, 32 warps
    many_blocks = built((64, 4, 32), 2, 96, 64)  # 20 blocks, 20 warps
    more_elements = built((64, 8, 128), 2, 64, 64)

    assert best([many_blocks, few_blocks]) == (64, 4, 128)
    assert best([many_blocks, few_blocks, more_elements]) == (64, 8, 128)
