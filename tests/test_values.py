"""Values that a device looks at often."""

import hashlib
import pickle
from dataclasses import replace
from unittest.mock import patch

from tuner.model import Source


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
