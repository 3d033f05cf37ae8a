"""How all tests run: what Python and its libraries may do, how many examples, and which tiers."""

import contextlib
import gc
import importlib
import logging
import os
import signal
import sys
import tempfile
from collections.abc import Generator, Iterator
from fnmatch import fnmatch
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from build_cache import BUILDS
from hypothesis import HealthCheck, settings
from suites import SUITES, TESTS, left_out

if TYPE_CHECKING:
    from fake_apply import Bench
    from fake_nvml_state import State

    from tuner.database.runs import Store
    from tuner.devices.cuda.device import CudaDevice

# The threads of OpenBLAS spin while they wait for each other: on busy processors that takes forty times as
# long as to do without them.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
# Hundreds of tests start Python, and pytest rewrites 200 files: both are to be compiled once.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
# Reports are as wide as COLUMNS says, from wherever the tests are started. readline, which pytest imports to
# show a failure, sets it for all processes that are started later: it is to do so now.
with contextlib.suppress(ImportError):
    importlib.import_module("readline")
os.environ.pop("COLUMNS", None)
os.unsetenv("COLUMNS")
# A shell starts what it runs in the background with Ctrl-C ignored, nohup with SIGHUP: what the tests start
# would inherit that.
for number, handler in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, handler)

# Databases and calibrated sensors of whoever runs the tests are not theirs.
_STATE = tempfile.TemporaryDirectory(prefix="tuner-state-")
os.environ["XDG_STATE_HOME"] = _STATE.name

# How long an example takes depends on the machine; fixtures of a test are such that examples may share them.
# CI draws twice as many, and others each week (`SEED` of the Makefile).
settings.register_profile(
    "default",
    deadline=None,
    derandomize=True,
    max_examples=25,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
settings.register_profile(
    "ci", settings.get_profile("default"), derandomize=False, max_examples=50, print_blob=True
)
settings.register_profile("thorough", settings.get_profile("ci"), max_examples=1000)
settings.load_profile("ci" if os.environ.get("CI") else "default")


_OMITTED = pytest.StashKey[dict[str, str]]()
_NEEDS = {
    "*_gpu.py": "gpu",
    "test_browser_*": "browser",
    "test_image.py": "network",
    "test_install.py": "network",
    "test_systemd_real.py": "systemd",
}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--suites",
        default="auto",
        help="suites of tests/suites.py that run: auto (where what they are about differs from main), all,"
        f" none, or names with commas: {', '.join(SUITES)}",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Decide once, in the process that starts the others, and hand them what it decided."""
    if hasattr(config, "workerinput"):
        config.option.suites = config.workerinput["suites"]
        return
    try:
        omitted = left_out(config.rootpath, config.getoption("suites"))
    except ValueError as error:
        raise pytest.UsageError(f"--suites: {error}") from error
    config.stash[_OMITTED] = omitted
    config.option.suites = ",".join(name for name in SUITES if name not in omitted) or "none"


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    node.workerinput["suites"] = node.config.option.suites


def _omitted(config: pytest.Config) -> set[str]:
    return SUITES.keys() - set(config.getoption("suites").split(","))


def pytest_unconfigure(config: pytest.Config) -> None:
    """Say at the very end what did not run, and why."""
    omitted = config.stash.get(_OMITTED, {})
    if omitted and not config.option.help:
        reasons = {why: [name for name, other in omitted.items() if other == why] for why in omitted.values()}
        told = "; ".join(f"{', '.join(names)} ({why})" for why, names in reasons.items())
        sys.stdout.write(f"suites left out: {told}; all: make test SUITES=all\n")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Files of which no test is to run are not even read: of a GPU, a browser ..., of suites left out.

    A file that is named on the command line runs whatever has changed.
    """
    name, chosen = collection_path.name, str(config.option.markexpr)
    needs = next((marker for files, marker in _NEEDS.items() if fnmatch(name, files)), "")
    if needs:
        return True if f"not {needs}" in chosen else None
    if collection_path.suffix != ".py" or not collection_path.is_relative_to(TESTS):
        return None
    below = collection_path.relative_to(TESTS).as_posix()
    if not any(fnmatch(below, pattern) for suite in _omitted(config) for pattern in SUITES[suite].files):
        return None
    named = {(config.invocation_params.dir / word.split("::")[0]).resolve() for word in config.args}
    return None if collection_path in named else True


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    markers = [marker for suite in _omitted(config) if (marker := SUITES[suite].marker)]
    omitted = [item for item in items if any(map(item.get_closest_marker, markers))]
    if omitted:
        items[:] = [item for item in items if not any(map(item.get_closest_marker, markers))]
        config.hook.pytest_deselected(items=omitted)


def pytest_sessionfinish(session: pytest.Session) -> None:
    if not hasattr(session.config, "workerinput"):  # once, in the process that starts the others
        BUILDS.prune()


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """What is collected stays to the end: the garbage collector need not look at it, now or later."""
    importlib.import_module("kept_kernels").keep_shipped_kernels()  # the settings above come first
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()
        gc.set_threshold(20_000)  # Python's 700 costs a hundredth of the time


@pytest.fixture(scope="module", autouse=True)
def _threads_of_blas() -> Iterator[None]:
    """Take back how many threads host stages of a module have set: the next one is not to spin."""
    yield
    pools = sys.modules.get("threadpoolctl")  # who sets them has imported it
    if pools is not None:
        pools.threadpool_limits(int(os.environ["OPENBLAS_NUM_THREADS"]), user_api="blas")


@pytest.fixture(scope="module", autouse=True)
def _root_logger() -> Iterator[None]:
    """A module leaves the root logger as it was: else lines of later tests go elsewhere or are left out."""
    root = logging.getLogger()
    before = root.handlers[:], root.filters[:], root.level
    yield
    assert (root.handlers, root.filters, root.level) == before


@pytest.fixture(scope="session")
def kernels_differ(pytestconfig: pytest.Config) -> bool:
    """True where kernels, or the host that runs them, may differ from main's: the suite of pairs runs."""
    return "pairs" not in _omitted(pytestconfig)


@pytest.fixture(scope="session")
def cp() -> Any:
    """CuPy, where there is a GPU; the test is skipped elsewhere."""
    cupy = pytest.importorskip("cupy")
    try:
        cupy.cuda.runtime.getDeviceCount()
    except cupy.cuda.runtime.CUDARuntimeError as error:
        pytest.skip(f"no CUDA GPU: {error}")
    return cupy


@pytest.fixture(scope="module")
def device() -> Iterator["CudaDevice"]:
    """The first GPU, in this process, for tests that need one."""
    from tuner.devices.cuda.device import CudaDevice  # noqa: PLC0415 - most tests need none

    opened = CudaDevice(0)
    yield opened
    opened.close()


@pytest.fixture
def cubins(tmp_path: Path) -> Path:
    """Where tests of what was compiled keep cubins: across runs, where anything is."""
    return tmp_path if BUILDS.directory is None else BUILDS.directory / "cubins"


@pytest.fixture
def store(tmp_path: Path) -> Iterator["Store"]:
    """An empty database."""
    from tuner.database.runs import Store  # noqa: PLC0415 - as few tests want one

    with Store(tmp_path / "tuner.db") as opened:
        yield opened


@pytest.fixture
def nvml(tmp_path: Path) -> Iterator["State"]:
    """A GPU of the fake NVML, on which nobody computes."""
    from fake_nvml_state import fake_nvml  # noqa: PLC0415 - as of stores

    with fake_nvml(tmp_path) as state:
        yield state


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> "Bench":
    """An application over a fake CuPy."""
    from fake_apply import fake_bench  # noqa: PLC0415 - as of stores

    return fake_bench(monkeypatch, tmp_path)
