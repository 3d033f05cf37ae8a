"""``tuner.apply`` and ``tuner.plan`` on arrays whose rows lie apart, and in place."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fake_apply import SUMS, Bench, FakeCompiler, fake_bench
from fake_cupy import DeviceArray, Kernel
from fake_torch import FakeTorch, Tensor, fake_torch

from tuner.application.calls import Application
from tuner.application.keys import only_rows_apart, overlap
from tuner.kernel_files.catalog import Catalog
from tuner.model.errors import InputError

ROWS = (
    SUMS.replace('"sums"', '"rows"')
    .replace("sums<{form}>", "rows<{row_align}, {in_place}>")
    .replace('role = "in"\n', 'role = "in"\nrow_pitch = true\n')
    .replace('role = "out"\n', 'role = "out"\nrow_pitch = true\nin_place = "x"\n')
    .replace(SUMS[SUMS.index('[[argument]]\nbuffer = "counters"') : SUMS.index("[tunables]")], "")
    .replace('rules = ["P <= N"]', 'rules = ["P <= N", "row_align == 0 or P <= row_align"]')
    .replace(
        "[tunables]",
        """[[argument]]
scalar = "from"
dtype = "int32"
value = "x_pitch"
[[argument]]
scalar = "to"
dtype = "int32"
value = "y_pitch"
[tunables]""",
    )
)


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Bench:
    made = fake_bench(monkeypatch, tmp_path)
    made.cp.kernels["rows"] = Kernel(rows, 1e-3)
    (tmp_path / "rows.toml").write_text(ROWS)
    made.catalog = Catalog.load(search_path=[tmp_path])
    made.application = Application(made.catalog, made.database)
    return made


@pytest.fixture
def torch(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> FakeTorch:
    return fake_torch(monkeypatch, bench.cp)


def rows(x: DeviceArray, y: DeviceArray, x_pitch: int, y_pitch: int) -> None:
    """A kernel that is told where rows begin."""
    assert x.shape == y.shape
    if len(x) > 1:
        assert (x.strides[0] // x.itemsize, y.strides[0] // y.itemsize) == (x_pitch, y_pitch)
    y[...] = np.cumsum(x, axis=-1)


def test_rows_that_lie_apart(bench: Bench) -> None:
    """Part of a wider array, and every other row, are taken as they are, and the output is contiguous."""
    wide = bench.array(6, 96)
    for part in (wide[:, :64], wide[:, 8:72], wide[::2]):
        for _ in range(2):
            found = bench.apply("rows", part)
            assert found.flags.c_contiguous
            assert np.array_equal(found, np.cumsum(part, axis=1))
    assert set(FakeCompiler.compiled) == {"rows<16, false>"}


def test_output_rows_that_lie_apart(bench: Bench) -> None:
    """An output may be part of a wider array, even of the one whose other part is read."""
    wide, x = bench.array(6, 128), bench.array(6, 64)
    out = wide[:, 64:]
    assert bench.apply("rows", x, out=out) is out
    assert np.array_equal(out, np.cumsum(x, axis=1))
    left = wide[:, :64]
    right = np.cumsum(left, axis=1)
    assert np.array_equal(bench.apply("rows", left, out=out), right)
    plan = bench.plan("rows", left, out=out)
    out[...] = 0
    assert np.array_equal(plan(), right)


def test_alignment_of_rows(bench: Bench) -> None:
    """The code is compiled for what divides all pitches, and contiguous arrays have code of their own."""
    for width in (65, 66, 68, 80, 100):
        wide = bench.array(3, width)
        bench.apply("rows", wide[:, :64], configuration={"P": 1, "L": 64})
    bench.apply("rows", bench.array(3, 64))
    aligned = {f"rows<{align}, false>" for align in (0, 1, 2, 4, 16)}
    assert set(FakeCompiler.compiled) == aligned


def test_rows_that_share_memory(bench: Bench) -> None:
    """Rows of an input may overlap, as frames of a signal do; those of an output must not."""
    signal = bench.array(256)
    frames = np.lib.stride_tricks.as_strided(signal, (13, 64), (64, 4), subok=True)
    assert np.array_equal(bench.apply("rows", frames), np.cumsum(frames, axis=1))
    with pytest.raises(InputError, match="rows of out overlap"):
        bench.apply("rows", bench.array(13, 64), out=frames)


def test_rules_of_configurations(bench: Bench) -> None:
    """A configuration that a rule forbids for rows that lie apart gives way to the default, unless given."""
    wide = bench.array(3, 65)
    with pytest.raises(
        InputError, match="breaks the rule 'row_align == 0 or P <= row_align' at rows:N=64 for"
    ):
        bench.apply("rows", wide[:, :64], configuration={"P": 8, "L": 64})
    with pytest.raises(InputError, match="for rows that lie apart; it is allowed for contiguous arrays"):
        bench.chosen("rows", wide[:, :64])
    assert bench.chosen("rows", bench.array(3, 66)[:, :64]).configuration["P"] == 2


@pytest.mark.parametrize("given", ["apply", "plan"])
def test_in_place(bench: Bench, given: str) -> None:
    """An output that is the input makes a call that works in place, with contiguous arrays and others."""
    for x in (bench.array(3, 64), bench.array(3, 80)[:, :64]):
        for _ in range(3):
            right = np.cumsum(x, axis=1)
            found = bench.apply("rows", x, out=x) if given == "apply" else bench.plan("rows", x, out=x)()
            assert found is x
            assert np.array_equal(x, right)
        bench.apply("rows", x)
    assert set(FakeCompiler.compiled) == {
        f"rows<{align}, {place}>" for align in (0, 16) for place in ("true", "false")
    }


def test_plans_in_place_stay_in_place(bench: Bench) -> None:
    """A plan made in place runs on other arrays in place alone, and one that is not never does."""
    x, y = bench.array(3, 64), bench.array(3, 64)
    plan = bench.plan("rows", x, out=x)
    assert np.array_equal(plan(y, out=y), np.cumsum(bench.array(3, 64), axis=1))
    with pytest.raises(InputError, match="rows: out must be x: this plan works in place"):
        plan(y)
    with pytest.raises(InputError, match="rows: out must be x: this plan works in place"):
        plan(out=y)
    apart = bench.plan("rows", x)
    with pytest.raises(InputError, match="out overlaps x; it must be an array of its own"):
        apart(y, out=y)


def test_pitches_of_plans(bench: Bench) -> None:
    """A plan is for rows of one pitch."""
    wide = bench.array(3, 96)
    plan = bench.plan("rows", wide[:, :64])
    other = bench.array(3, 96)
    assert np.array_equal(plan(other[:, 32:]), np.cumsum(other[:, 32:], axis=1))
    with pytest.raises(
        InputError, match=re.escape("x is float32 of shape (3, 64) with rows 80 elements apart")
    ):
        plan(bench.array(3, 80)[:, :64])
    with pytest.raises(InputError, match=re.escape("it must be float32 of shape (3, 64) with rows 96")):
        plan(bench.array(3, 64))
    with pytest.raises(InputError, match="this plan is for a contiguous array"):
        bench.plan("rows", (3, 64))(wide[:, :64])


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (
            lambda b, w: b.apply("sums", w[:, :64]),
            "sums: x is not contiguous (96 elements from one row to the",
        ),
        (
            lambda b, w: b.apply("sums", b.array(3, 64), out=w[:, :64]),
            "sums: out is not contiguous (96 elements",
        ),
        (lambda b, _: b.apply("rows", b.array(64, 3).T), "rows: x is not contiguous (strides (4, 12)"),
        (lambda b, w: b.apply("rows", w[:, :64:2]), "rows: x is not contiguous (strides (384, 8)"),
        (lambda b, w: b.apply("rows", w[::-1, :64]), "rows: x is not contiguous (strides (-384, 4)"),
        (lambda b, w: b.apply("rows", w[:, 1:65]), "rows: x begins 4 bytes past a multiple of 16"),
        (lambda b, w: b.apply("rows", w[:, :64], out=w[:, 32:]), "rows: out overlaps x; it must be an array"),
        (
            lambda b, w: b.apply("rows", w[:2, :64], out=w[1:, :64]),
            "rows: out overlaps x; it must be an array",
        ),
        (lambda b, w: b.apply("rows", w[:2, :64], out=w.reshape(-1)[:128].reshape(2, 64)), "out overlaps x"),
        (lambda b, w: b.plan("rows", w[:, :64], out=w[:, 32:]), "rows: out overlaps x; it must be an array"),
    ],
)
def test_what_cannot_be_taken(bench: Bench, call: Callable[[Bench, DeviceArray], Any], words: str) -> None:
    """Other strides, kernels without a row pitch, and overlaps are refused before anything runs."""
    with pytest.raises(InputError, match=re.escape(words)):
        call(bench, bench.array(3, 96))
    assert bench.cp.kernels["rows"].runs == bench.cp.kernels["sums"].runs == 0


def test_rows_of_tensors(bench: Bench, torch: FakeTorch) -> None:
    """Torch tensors whose rows lie apart are taken as they are, as outputs and in place as well."""
    wide = torch.tensor(3, 96)
    x = torch.of(wide.held[:, :64])
    right = np.cumsum(x.held, axis=1)
    found = bench.apply("rows", x)
    assert isinstance(found, Tensor)
    assert np.array_equal(found.held, right)
    out = torch.of(torch.tensor(3, 80).held[:, :64])
    assert bench.apply("rows", x, out=out) is out
    assert np.array_equal(out.held, right)
    assert bench.plan("rows", x)() is not x
    assert bench.apply("rows", x, out=x) is x
    assert np.array_equal(x.held, right)


def test_memory_that_is_shared(bench: Bench) -> None:
    """Two arrays overlap if a row of one meets a row of the other; other pitches count by their ranges."""
    memory = bench.array(8, 96)
    left, right = memory[:, :48], memory[:, 48:]
    assert not overlap(left, right)
    assert not overlap(right, left)
    assert not overlap(memory[:4], memory[4:])
    assert not overlap(memory[:4, :48], memory[4:, :48])
    assert overlap(left, memory[:, 47:])
    assert overlap(memory[1:, :48], memory[:-1, :48])
    assert not overlap(memory[1:, :48], memory[:-1, 48:])
    assert overlap(memory[::2, :48], memory[1::3, :48])
    assert overlap(memory.reshape(-1)[:192], left)
    assert not overlap(memory.reshape(-1)[:96], memory[1:, :48])


def test_strides_of_rows() -> None:
    """Rows lie apart where their own elements follow each other; axes of one element have any stride."""
    assert only_rows_apart((3, 64), (96, 1))
    assert only_rows_apart((3, 4, 8), (64, 8, 1))
    assert only_rows_apart((3, 64), (0, 1))
    assert only_rows_apart((3, 1, 8), (64, 7, 1))
    for shape, strides in (((3, 4, 8), (64, 16, 1)), ((3, 64), (1, 3)), ((64,), (2,)), ((3, 64), (-64, 1))):
        assert not only_rows_apart(shape, strides)
    assert not only_rows_apart((3, 64), (385, 4), unit=4)
