"""Adds one option to ``tuner/model/options.py`` when it is imported, in this process only.

One field is written into the source before anything else of ``tuner`` is imported.
"""

import sys
import types
from importlib.util import find_spec
from pathlib import Path

FIELD = '    passes: int = _option(2, "Passes over a space.", Range(1, 9, whole=True), table="tuning")\n'
BEFORE = "    objective: str = _option("


def _add() -> None:
    spec = find_spec("tuner.model.options")
    assert spec is not None
    assert spec.origin is not None
    source = Path(spec.origin).read_text()
    assert source.count(BEFORE) == 1
    module = types.ModuleType("tuner.model.options")
    sys.modules["tuner.model.options"] = module
    exec(compile(source.replace(BEFORE, FIELD + BEFORE), spec.origin, "exec"), module.__dict__)  # noqa: S102 - our own source


_add()
