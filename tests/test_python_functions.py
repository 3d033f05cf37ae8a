"""Digests of functions: the same in every process, another for other code or other values."""

import functools
import json
import operator
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tuner.model.expressions.callables import function_digest

LIMIT = 3
SCRIPT = """
import functools, json, operator, sys
from tuner.model.expressions.callables import function_digest
class Bound:
    def __init__(self, most): self.most = most
    def __call__(self, p): return p["x"] < self.most
    def held(self, p): return self(p)
allowed, bound = {"one", "two", "three"}, Bound(3)
print(json.dumps([function_digest(f) for f in (
    lambda p: p["x"] in {"a", "b", "c", "d"}, lambda p: p["x"] in allowed, lambda p: bound(p),
    bound, bound.held, functools.partial(operator.contains, allowed), lambda p, b=bound: b.held(p),
)]))
"""


class Bound:
    """Something that can be called, whose text has an address."""

    def __init__(self, most: int) -> None:
        self.most = most

    def __call__(self, p: dict[str, Any]) -> bool:
        return bool(p["x"] < self.most)


def capturing(value: Any) -> Callable[..., Any]:
    return lambda p: p["x"] in value


def calls_itself(p: dict[str, Any]) -> Any:
    return calls_itself(p)


def below(p: Any) -> Any:
    return p["x"] < LIMIT


def of_attribute(p: Any) -> Any:
    return p.LIMIT


def test_digests_are_the_same_in_another_process(capsys: pytest.CaptureFixture[str]) -> None:
    """Whatever the seed of hashes and the addresses are."""
    exec(SCRIPT, {"__name__": "__main__"})  # noqa: S102 - a text of this file
    here = json.loads(capsys.readouterr().out)
    command = [sys.executable, "-c", SCRIPT]
    environment = {**os.environ, "PYTHONHASHSEED": "1"}
    there = subprocess.run(
        command, env=environment, cwd=Path(__file__).parent.parent, capture_output=True, check=True
    )

    assert json.loads(there.stdout) == here
    assert len(set(here)) == len(here)


LARGE = np.zeros(5000)
OTHER = np.where(np.arange(5000) == 2500, 1.0, 0.0)


@pytest.mark.parametrize(
    ("one", "same", "other"),
    [
        (capturing({"a", "b"}), capturing({"b", "a"}), capturing({"a", "c"})),
        (capturing(LARGE), capturing(LARGE.copy()), capturing(OTHER)),
        (capturing([Bound(1)]), capturing([Bound(1)]), capturing([Bound(2)])),
        (Bound(1), Bound(1), Bound(2)),
        (functools.partial(below, 1), functools.partial(below, 1), functools.partial(below, 2)),
        (functools.partial(below), functools.partial(below), functools.partial(operator.lt)),
        (np.minimum, np.minimum, np.maximum),
        (functools.cache(below), functools.cache(below), functools.cache(calls_itself)),
        (calls_itself, calls_itself, below),
    ],
)
def test_what_is_captured_counts(one: Any, same: Any, other: Any) -> None:
    """Every element and attribute of it."""
    assert function_digest(one) == function_digest(same)
    assert function_digest(one) != function_digest(other)


def test_globals_that_a_function_names_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """A limit beside a function decides what it returns; an attribute of that name is another thing."""
    before, attribute = function_digest(below), function_digest(of_attribute)
    monkeypatch.setitem(globals(), "LIMIT", 4)

    assert function_digest(below) != before
    assert function_digest(of_attribute) == attribute
