"""Scripts of benchmarks/ as modules."""

import importlib.util
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent


def benchmark(name: str) -> Any:
    """A script of benchmarks/ as a module; the name has its folder below that, where it has one."""
    sys.path.append(str(ROOT / "benchmarks"))  # for those beside it
    try:
        return module_of(ROOT / "benchmarks" / f"{name}.py")
    finally:
        sys.path.pop()


def module_of(path: Path) -> Any:
    """A file beside the package as a module, by its name."""
    name = path.stem
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


@contextmanager
def siblings_importable(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Lets scripts of benchmarks/ be imported by bare names, as they import each other, and forgets them."""
    folder, before = ROOT / "benchmarks", set(sys.modules)
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.syspath_prepend(str(folder / "kernels"))
    yield
    for name in set(sys.modules) - before:
        if folder in Path(getattr(sys.modules[name], "__file__", None) or "/").parents:
            del sys.modules[name]
