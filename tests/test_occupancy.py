"""Occupancy: what the papers print, what NVIDIA's calculator gives, and laws."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.model.errors import InputError
from tuner.model.jobs import DeviceLimits
from tuner.space.occupancy import device_limits, occupancy, upper_bound, warps_and_blocks

CAPABILITIES = [
    *((2, 0), (2, 1), (3, 0), (3, 2), (3, 5), (3, 7), (5, 0), (5, 2), (5, 3), (6, 0), (6, 1), (6, 2)),
    *((7, 0), (7, 2), (7, 5), (8, 0), (8, 6), (8, 7), (8, 8), (8, 9), (9, 0), (10, 0), (10, 1), (10, 3)),
    *((11, 0), (12, 0), (12, 1)),
]


def limits(*capability: int) -> DeviceLimits:
    major, minor = capability
    return device_limits((major, minor), multiprocessors=2, memory_bytes=1 << 32, l2_bytes=1 << 18)


TX1 = limits(5, 3)

# Fig. 3(a) of the embedded paper: warps per block, registers, shared bytes, warp occupancy in %, SM blocks.
FIGURE_3A = [
    (1, 64, 2048, 50, 32),
    (2, 40, 0, 75, 24),
    (2, 32, 2048, 100, 32),
    (4, 32, 4096, 100, 16),
    (4, 40, 5120, 75, 12),
    (8, 32, 8192, 100, 8),
    (8, 40, 10240, 75, 6),
    (16, 32, 16384, 100, 4),
    (32, 32, 32768, 100, 2),
]


@pytest.mark.parametrize(("warps", "registers", "shared", "percent", "blocks"), FIGURE_3A)
def test_figure_3a_of_the_embedded_paper(
    warps: int, registers: int, shared: int, percent: int, blocks: int
) -> None:
    """Nine of the ten rows printed for the Jetson TX1 follow from the rules."""
    filled = occupancy(TX1, 32 * warps, registers, shared)
    assert filled.blocks_per_sm == blocks
    assert round(100 * filled.occupancy) == percent


def test_the_slip_of_figure_3a() -> None:
    """The row (2 warps, 40 registers, 2560 B) prints 63 %, 20 blocks; its inputs give 75 %, 24 blocks.

    The printed answer is that of 48 registers.
    """
    as_given = occupancy(TX1, 64, 40, 2560)
    assert (as_given.blocks_per_sm, as_given.occupancy) == (24, 0.75)
    as_printed = occupancy(TX1, 64, 48, 2560)
    assert (as_printed.blocks_per_sm, as_printed.occupancy) == (20, 0.625)


def test_equation_4_taken_literally_is_not_the_hardware() -> None:
    """Warps that hold registers come in fours: of the 51 with 40 registers that fit, 48 are given."""
    filled = occupancy(TX1, 64, 40, 0)
    assert TX1.registers_per_sm // (40 * 32) // 2 == 25
    assert (filled.blocks_per_sm, filled.limited_by) == (24, "registers")


@pytest.mark.parametrize(
    ("capability", "threads", "blocks", "registers", "shared"),
    [
        ((3, 5), 2048, 16, 65536, 49152),  # K40c, K20c
        ((3, 0), 2048, 16, 65536, 49152),  # GTX 680
        ((2, 0), 1536, 8, 32768, 49152),  # GTX 580
    ],
)
def test_table_3_of_the_multi_kernel_paper(
    capability: tuple[int, int], threads: int, blocks: int, registers: int, shared: int
) -> None:
    """The limits of the paper's four GPUs are those of its Table III."""
    of = limits(*capability)
    assert of.max_threads_per_sm == threads
    assert of.max_blocks_per_sm == blocks
    assert of.registers_per_sm == registers
    assert of.shared_bytes_per_block == shared


@pytest.mark.parametrize(
    ("capability", "block", "expected"),
    [
        ((2, 0), (1024, 16, 0), (1, 2 / 3, "warps")),  # the 67 % of the GTX 580 at 1024 threads
        ((2, 0), (256, 20, 0), (6, 1.0, "warps")),
        ((2, 0), (256, 21, 0), (5, 5 / 6, "registers")),  # 672 registers a warp take 704: 46 warps
        ((2, 0), (128, 16, 6145), (7, 28 / 48, "shared-memory")),  # rounded up to 6272
        ((2, 0), (64, 16, 0), (8, 1 / 3, "blocks")),
        ((3, 5), (256, 32, 0), (8, 1.0, "warps")),
        ((3, 5), (256, 33, 0), (6, 0.75, "registers")),  # 1056 registers a warp take 1280: 51 warps, 48 given
        ((3, 0), (64, 16, 0), (16, 0.5, "blocks")),
        ((9, 0), (256, 32, 0), (8, 1.0, "warps")),
        ((9, 0), (128, 32, 227 * 1024), (1, 4 / 64, "shared-memory")),
        ((9, 0), (128, 32, 113 * 1024), (2, 8 / 64, "shared-memory")),  # 114 KiB with the reserved one
        ((9, 0), (128, 32, 113 * 1024 + 1), (1, 4 / 64, "shared-memory")),
    ],
)
def test_worked_examples(
    capability: tuple[int, int], block: tuple[int, int, int], expected: tuple[int, float, str]
) -> None:
    """Cases worked out by hand on the paper's GPUs and on Hopper; a block is (threads, registers, shared)."""
    filled = occupancy(limits(*capability), *block)
    assert (filled.blocks_per_sm, filled.limited_by) == (expected[0], expected[2])
    assert filled.occupancy == pytest.approx(expected[1])


# Compute capability, threads, registers, shared bytes, blocks: from the occupancy header of CUDA 13.0. Of
# each capability one is bound by registers alone and one by shared memory alone.
CALCULATED = [
    *(((3, 2), 64, 112, 3421, 8), ((3, 2), 128, 119, 19545, 2), ((3, 5), 33, 180, 8504, 4)),
    *(((3, 5), 288, 54, 19976, 2), ((3, 7), 96, 28, 11706, 9), ((3, 7), 96, 181, 5993, 6)),
    *(((5, 0), 128, 228, 182, 2), ((5, 0), 64, 51, 7474, 8), ((5, 2), 96, 207, 9287, 2)),
    *(((5, 2), 128, 43, 17657, 5), ((5, 3), 33, 102, 7025, 8), ((5, 3), 128, 95, 19106, 3)),
    *(((6, 0), 96, 178, 4741, 3), ((6, 0), 33, 35, 18035, 3), ((6, 1), 288, 139, 10500, 1)),
    *(((6, 1), 192, 55, 17701, 5), ((6, 2), 96, 223, 4077, 2), ((6, 2), 64, 118, 10093, 6)),
    *(((7, 0), 512, 78, 1859, 1), ((7, 0), 96, 31, 7156, 13), ((7, 2), 192, 180, 12098, 1)),
    *(((7, 2), 33, 72, 14798, 6), ((7, 5), 64, 36, 17850, 3), ((7, 5), 128, 213, 19576, 2)),
    *(((8, 0), 288, 74, 12568, 2), ((8, 0), 64, 66, 18743, 8), ((8, 6), 192, 221, 613, 1)),
    *(((8, 6), 33, 134, 16892, 5), ((8, 7), 256, 96, 4320, 2), ((8, 7), 160, 18, 17743, 8)),
    *(((8, 8), 192, 151, 8509, 2), ((8, 8), 33, 159, 17260, 5), ((8, 9), 256, 152, 7791, 1)),
    *(((8, 9), 128, 34, 19523, 4), ((9, 0), 288, 148, 2739, 1), ((9, 0), 96, 22, 11073, 19)),
    *(((10, 0), 256, 194, 5285, 1), ((10, 0), 64, 26, 11819, 18), ((10, 1), 192, 199, 2486, 1)),
    *(((10, 1), 33, 53, 15636, 13), ((10, 3), 192, 85, 18224, 3), ((10, 3), 64, 21, 7594, 26)),
    *(((11, 0), 96, 103, 722, 5), ((11, 0), 64, 20, 10224, 20), ((12, 0), 64, 127, 9653, 8)),
    *(((12, 0), 64, 126, 12586, 7), ((12, 1), 128, 181, 13429, 2), ((12, 1), 64, 153, 17224, 5)),
]


@pytest.mark.parametrize(("capability", "threads", "registers", "shared", "blocks"), CALCULATED)
def test_equals_nvidias_calculator(
    capability: tuple[int, int], threads: int, registers: int, shared: int, blocks: int
) -> None:
    """Every compute capability gives the blocks that NVIDIA's own calculator gives."""
    assert occupancy(limits(*capability), threads, registers, shared).blocks_per_sm == blocks


@pytest.mark.parametrize(
    ("threads", "registers", "shared", "limited_by"),
    [
        (1025, 16, 0, "block-size"),
        (1024, 33, 0, "registers"),  # 40960 registers, where a block of the TX1 may hold 32768
        (64, 256, 0, "registers"),
        (64, 16, 48 * 1024 + 1, "shared-memory"),
    ],
)
def test_a_block_that_no_multiprocessor_takes(
    threads: int, registers: int, shared: int, limited_by: str
) -> None:
    """A block over a limit of its own gives no blocks, and the limit is named."""
    filled = occupancy(TX1, threads, registers, shared)
    assert (filled.blocks_per_sm, filled.warps_per_sm, filled.occupancy) == (0, 0, 0.0)
    assert filled.limited_by == limited_by


def test_everything_that_binds_is_named() -> None:
    """Limits that bind together are all named, and the first of them is the one answer."""
    filled = occupancy(TX1, 64, 32, 2048)
    assert filled.binding == ("blocks", "warps", "registers", "shared-memory")
    assert filled.limited_by == "blocks"


def test_pascals_gp100_refuses_what_its_family_would() -> None:
    """6.0 has two schedulers to an SM, and runs no block that a GPU of 6.1 could not."""
    gp100, gp104 = limits(6, 0), limits(6, 1)
    assert occupancy(gp100, 96, 178, 4741).blocks_per_sm == 3  # 10 warps fit; of 6.1, 8 do
    assert occupancy(gp104, 96, 178, 4741).blocks_per_sm == 2
    assert (
        occupancy(gp100, 32 * 9, 200, 0).blocks_per_sm == occupancy(gp104, 32 * 9, 200, 0).blocks_per_sm == 0
    )


def test_w_sm_and_b_a_of_the_embedded_paper() -> None:
    """B_a leaves the warp slots out and W_SM puts them in; where warps do not bind, B_a is what fits."""
    assert warps_and_blocks(TX1, 1024, 8, 0) == (64, 8)  # registers alone allow 8 blocks; 2 fit
    assert occupancy(TX1, 1024, 8, 0).blocks_per_sm == 2
    for warps, registers, shared, percent, blocks in FIGURE_3A:
        W_SM, B_a = warps_and_blocks(TX1, 32 * warps, registers, shared)
        assert B_a == blocks
        assert round(100 * W_SM / TX1.max_warps_per_sm) == percent
    assert warps_and_blocks(TX1, 1025, 8, 0) == (0, 0)


@pytest.mark.parametrize(
    ("threads", "registers", "shared"), [(0, 1, 0), (-32, 1, 0), (32, -1, 0), (32, 1, -1)]
)
def test_numbers_that_mean_nothing_are_refused(threads: int, registers: int, shared: int) -> None:
    """No threads and negative resources are the user's mistake."""
    with pytest.raises(InputError):
        occupancy(TX1, threads, registers, shared)
    with pytest.raises(InputError):
        warps_and_blocks(TX1, threads, registers, shared)


def test_an_unknown_family_is_refused_and_an_unknown_member_is_not() -> None:
    """A new minor version takes the numbers of the one below it; a new family has none to take."""
    assert replace(limits(9, 7), compute_capability=(9, 0)) == limits(9, 0)
    with pytest.raises(InputError, match=r"4\.0 is unknown; known are 2\.0"):
        limits(4, 0)


@pytest.mark.parametrize("capability", CAPABILITIES)
def test_limits_fit_together(capability: tuple[int, int]) -> None:
    """Threads are warps, a full block fits, and what a product adds is passed through."""
    of = limits(*capability)
    assert of.compute_capability == capability
    assert of.max_threads_per_sm == of.warp_size * of.max_warps_per_sm
    assert of.shared_bytes_per_block + of.shared_reserved_bytes <= of.shared_bytes_per_sm
    assert (of.multiprocessors, of.memory_bytes, of.l2_bytes) == (2, 1 << 32, 1 << 18)
    assert occupancy(of, of.max_threads_per_block, 16, of.shared_bytes_per_block).blocks_per_sm >= 1


devices = st.sampled_from([limits(*capability) for capability in CAPABILITIES])
threads_of_blocks = st.integers(1, 1100)
register_counts = st.integers(0, 260)
shared_sizes = st.integers(0, 240 * 1024)


@given(devices, threads_of_blocks, register_counts, shared_sizes)
def test_no_limit_is_exceeded(of: DeviceLimits, threads: int, registers: int, shared: int) -> None:
    """Resident blocks never take more than there is, and one more block always would."""
    filled = occupancy(of, threads, registers, shared)
    warps = -(-threads // of.warp_size)
    assert filled.warps_per_sm == filled.blocks_per_sm * warps
    assert filled.warps_per_sm <= of.max_warps_per_sm
    assert filled.blocks_per_sm <= of.max_blocks_per_sm
    assert filled.warps_per_sm * registers * of.warp_size <= of.registers_per_sm
    assert filled.blocks_per_sm * (shared + of.shared_reserved_bytes) <= of.shared_bytes_per_sm
    assert 0.0 <= filled.occupancy <= 1.0
    assert filled.limited_by == filled.binding[0]


@given(
    devices,
    threads_of_blocks,
    register_counts,
    shared_sizes,
    st.tuples(st.integers(0, 64), st.integers(0, 4096)),
)
def test_more_resources_never_raise_occupancy(
    of: DeviceLimits, threads: int, registers: int, shared: int, more: tuple[int, int]
) -> None:
    """Occupancy falls, if it moves, with registers and with shared memory."""
    filled = occupancy(of, threads, registers, shared)
    with_more = occupancy(of, threads, registers + more[0], shared + more[1])
    assert with_more.blocks_per_sm <= filled.blocks_per_sm


@given(devices, threads_of_blocks, register_counts, shared_sizes, st.integers(0, 4096))
def test_the_upper_bound_is_one(
    of: DeviceLimits, threads: int, registers: int, dynamic: int, static: int
) -> None:
    """What is known before compiling never prunes what compiling would keep."""
    assert (
        occupancy(of, threads, registers, dynamic + static).occupancy
        <= upper_bound(of, threads, dynamic).occupancy
    )


@given(devices, threads_of_blocks, register_counts, shared_sizes)
def test_the_two_papers_agree_on_resident_warps(
    of: DeviceLimits, threads: int, registers: int, shared: int
) -> None:
    """W_SM is never below the warps of equation (1), and equals them where warp slots do not bind."""
    filled = occupancy(of, threads, registers, shared)
    W_SM, B_a = warps_and_blocks(of, threads, registers, shared)
    assert filled.warps_per_sm <= W_SM
    if "warps" not in filled.binding:
        assert (W_SM, B_a) == (filled.warps_per_sm, filled.blocks_per_sm)
