"""Values that a device looks at often."""

import hashlib
import pickle
from dataclasses import replace
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.model.plan import Source
from tuner.model.records import WorkloadName
from tuner.model.trial import Flag, FlagKind


def test_digest_of_a_source_is_made_once() -> None:
    """A source is digested at the first question only, and a source of another text has another digest."""
    source = Source("k.cu", "text", (("k.cuh", "header"),))
    first = source.sha256
    with patch.object(hashlib, "sha256", side_effect=AssertionError("digested again")):
        assert source.sha256 == first
        assert pickle.loads(pickle.dumps(source)).sha256 == first  # noqa: S301 - made here
    assert replace(source, text="other").sha256 != first
    assert replace(source, headers=()).sha256 != first
    assert replace(source, path="elsewhere.cu").sha256 == first


def test_digest_is_no_part_of_a_source() -> None:
    """Two equal sources are equal and of one hash, whichever was asked for its digest."""
    asked, fresh = Source("k.cu", "text"), Source("k.cu", "text")
    assert asked.sha256
    assert asked == fresh
    assert len({asked, fresh}) == 1


@given(st.sampled_from([kind.value for kind in FlagKind]), st.sampled_from([": ", ":", " ", ""]), st.text())
def test_flags_give_their_stored_text_back(name: str, sign: str, detail: str) -> None:
    """Whatever text a database or a recording holds, a flag that was parsed from it has the same text."""
    assert str(Flag.parse(f"{name}{sign}{detail}")) == f"{name}{sign}{detail}"


@given(st.sampled_from([kind for kind in FlagKind if kind is not FlagKind.OTHER]), st.text(min_size=1))
def test_flags_of_known_kinds_are_told_by_their_text(kind: FlagKind, detail: str) -> None:
    """A flag is the same again after its text was stored."""
    assert Flag.parse(str(Flag(kind, detail))) == Flag(kind, detail)


@pytest.mark.parametrize(
    ("text", "limited"),
    [
        ("throttled: hw-thermal, sw-power-cap", True),
        ("throttled: hw-thermal", False),
        ("sensor-gap: sw-power-cap", False),
    ],
)
def test_flags_tell_the_power_limit(text: str, limited: bool) -> None:
    """Only a GPU that its power limit throttled is at its power limit."""
    assert Flag.parse(text).at_power_limit is limited


@pytest.mark.parametrize(
    ("text", "kernel", "sizes", "batch"),
    [
        ("fft", "fft", (), None),
        ("fft:N=4", "fft", (("N", "4"),), None),
        ("fft:N=4,dtype=float64,batch=8", "fft", (("N", "4"), ("dtype", "float64")), "8"),
        ("fft:batch=8", "fft", (), "8"),
        ("my scan:N=64", "my scan", (("N", "64"),), None),
        ("fft:N", "fft", (("N", ""),), None),
        ("fft:N=", "fft", (("N=", ""),), None),
    ],
)
def test_workloads_as_text(
    text: str, kernel: str, sizes: tuple[tuple[str, str], ...], batch: str | None
) -> None:
    """A name has a kernel, sizes and perhaps a batch, and gives its text back."""
    name = WorkloadName.parse(text)
    assert (name.kernel, name.sizes, name.batch) == (kernel, sizes, batch)
    assert str(name) == text
    assert str(name.without_batch()) == text.replace(",batch=8", "").replace(":batch=8", "")
    assert name.with_batch(3).batch == "3"


def test_spaces_around_the_parts_of_a_workload_do_not_count() -> None:
    """What people type and what answers are stored under is the same workload."""
    assert str(WorkloadName.parse(" fft : N = 4 , batch=8 ")) == "fft:N=4,batch=8"
