"""The import rule: a room uses the rooms below it, never one above or beside it."""

import functools
import importlib.util
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from suites import import_statements
from suites import imports as absolute_imports

from tuner.model import registry

ROOT = Path(__file__).parent.parent

# From the faces to the errors, as docs/architecture.md draws them.
LAYERS: tuple[tuple[str, ...], ...] = (
    ("tuner.__main__",),
    ("tuner.cli", "tuner.inductor", "tuner.kernel_tuner", "tuner.triton"),
    (
        "tuner.fft",
        "tuner.linalg",
        "tuner.programs",
        "tuner.python",
        "tuner.scan",
        "tuner.studies",
        "tuner.tridiagonal",
    ),
    ("tuner.application", "tuner.daemon", "tuner.pool", "tuner.report"),
    ("tuner.search",),
    ("tuner.joules", "tuner.measurement"),
    ("tuner.devices",),
    ("tuner.compiler", "tuner.database", "tuner.problems", "tuner.recordings"),
    ("tuner.client", "tuner.kernel_files", "tuner.policies", "tuner.power", "tuner.prediction"),
    ("tuner.space", "tuner.system"),
    ("tuner.model",),
)
# Parts of a room that stand by themselves, and all that they may use of their room.
PARTS: dict[str, tuple[str, ...]] = {
    "tuner.cli.doctor": (),
    "tuner.cli.page": (),
    "tuner.cli.top": (),
    "tuner.daemon.installing": (),
    "tuner.kernel_files.cuda_source": (),
    "tuner.kernel_files.pragmas": ("tuner.kernel_files.cuda_source",),
    "tuner.model.expressions": ("tuner.model.errors",),
    "tuner.system.untrusted": (),
}
# The rooms of the daemon and its modules beside them, in the same way.
DAEMON = (
    ("start",),
    ("main",),
    ("http",),
    ("service",),
    ("devices",),
    ("backlog", "stored_runs"),
    ("answers", "metrics"),
    ("jobs", "state"),
    ("interface", "machine", "power_probe", "settings_file"),
    ("installing", "settings", "tokens"),
)
CORE_OF_PLUGINS = {
    *("tuner.model.distributions", "tuner.model.errors", "tuner.model.jobs"),
    *("tuner.model.objective", "tuner.model.plan"),
    *("tuner.model.records", "tuner.model.trial", "tuner.model.units", "tuner.model.version"),
}
CORE_OF_POWER = CORE_OF_PLUGINS | {
    *("tuner.model.typed", "tuner.system.ownership", "tuner.system.service_manager"),
    "tuner.system.untrusted.reading",
}
CORE_OF_POLICIES = CORE_OF_PLUGINS | {"tuner.space.occupancy", "tuner.space.search_view"}

# Modules that start processes or answer --help: what they import costs every start of one. Beside the
# standard library without asyncio, which takes 30 ms, and what stands here they import nothing.
LIGHT = {
    "tuner.cli.main": {"click"},
    "tuner.cli.completion": {"click"},
    "tuner.cli.manual": {"click"},
    "tuner.compiler.nvrtc": set[str](),
    "tuner.compiler.triton_server": set[str](),
    "tuner.devices.cuda.opening": set[str](),
    "tuner.joules.watching": set[str](),  # as program exec finds its GPU
    "tuner.power.clocks.guardian": set[str](),
    "tuner.power.clocks.clockd": set[str](),
    "tuner.power.sensors.jtop_child": set[str](),
    "tuner.programs.program": set[str](),  # as program exec reads its run
    "tuner.search.job_launcher": {"asyncio"},
    "tuner.system.processes": set[str](),
    "tuner.system.untrusted.compiler_options": set[str](),
}

# What a run for time on a simulated GPU does without.
NOT_FOR_TIME = (
    *("asyncio", "rich.progress", "rich.table", "scipy"),
    *("tuner.daemon", "tuner.devices.replay", "tuner.kernel_files.pragmas", "tuner.policies.bayesian"),
    *("tuner.policies.steering", "tuner.pool.pool", "tuner.power.clocks", "tuner.power.energy"),
    *("tuner.power.response", "tuner.power.sensors.pipe", "tuner.power.sensors.rails"),
    "tuner.recordings.values",
)

# A third-party package and the only modules that may import it.
BORDERS = {
    "cupy": ("tuner.devices.cuda",),
    "dask": ("tuner.pool",),
    "distributed": ("tuner.pool",),
    "pynvml": ("tuner.power.nvml",),
    "jtop": ("tuner.power.sensors.jtop",),
    "sqlite3": ("tuner.database",),
    "click": ("tuner.cli",),
    "sklearn": ("tuner.prediction",),
    "textual": ("tuner.cli.top",),
    "triton": ("tuner.compiler.triton_server", "tuner.inductor", "tuner.triton"),
    "tree_sitter": ("tuner.kernel_files.pragmas",),
    "tree_sitter_cuda": ("tuner.kernel_files.pragmas",),
}


FOLDERS = ("tuner", "power", "policies")


@functools.cache
def modules(*folders: str) -> list[Path]:
    found = sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))
    assert found, f"no module in {folders}"
    return found


@functools.cache
def name_of(path: Path) -> str:
    """The name a module is imported by: ``power/`` and ``policies/`` are installed below ``tuner``."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    parts = parts if parts[0] == "tuner" else ("tuner", *parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@functools.cache
def names_in(path: Path) -> list[tuple[str, list[str]]]:
    """Each import of a file of the product: the whole name of the module, which may be none, and names."""
    package = name_of(path) if path.name == "__init__.py" else name_of(path).rpartition(".")[0]
    return [
        (module and importlib.util.resolve_name(module, package), names)
        for module, names in import_statements(path)
    ]


@functools.cache
def imports(path: Path, *, relative: bool = True) -> tuple[str, ...]:
    """Names of the modules a file imports, siblings it names relatively among them unless told otherwise."""
    return tuple(_imports(names_in(path) if relative else import_statements(path)))


def _imports(statements: list[tuple[str, list[str]]]) -> Iterator[str]:
    for module, names in statements:
        if module.startswith("."):
            continue
        inner = [f"{module}.{name}".strip(".") for name in names]
        yield from (name for name in inner if not module or name in module_names())
        if module and not module_names().issuperset(inner):
            yield module


@functools.cache
def module_names() -> frozenset[str]:
    return frozenset(map(name_of, modules(*FOLDERS)))


def layer(name: str) -> int | None:
    for depth, row in enumerate(LAYERS):
        if any(name == entry or name.startswith(f"{entry}.") for entry in row):
            return depth
    return None


def test_imports_point_down() -> None:
    """A module imports only from its own layer or deeper ones."""
    for path in modules(*FOLDERS):
        check_layer(path)


def check_layer(path: Path) -> None:
    own = layer(name_of(path))
    if name_of(path) == "tuner":
        own = 0
    assert own is not None, f"{name_of(path)} has no layer: give it one in {Path(__file__).name}"

    for name in imports(path):
        if name.startswith("tuner."):
            depth = layer(name)
            assert depth is not None, f"{name} has no layer"
            assert depth >= own, f"{name_of(path)} imports {name}, which stands above it"
            same = name.split(".")[:2] == name_of(path).split(".")[:2]
            assert depth > own or same or own == 0, f"{name_of(path)} imports {name}, which stands beside it"


def test_imports_of_the_daemon_point_down() -> None:
    """A room of the daemon imports only deeper ones."""
    depths = {room: depth for depth, row in enumerate(DAEMON) for room in row}
    for path in modules("tuner/daemon"):
        room = [*name_of(path).split("."), ""][2]
        for name in imports(path):
            other = [*name.split("."), "", ""][2]
            if name.startswith("tuner.daemon.") and room and other != room:
                assert depths[other] > depths[room], f"{name_of(path)} imports {name}"


@pytest.mark.parametrize("part", sorted(PARTS))
def test_parts_of_a_room_stand_by_themselves(part: str) -> None:
    """A part that was named as such needs nothing else of its room, so that it can be read alone."""
    room = ".".join(part.split(".")[:2])
    inside = [path for path in modules("tuner") if f"{name_of(path)}.".startswith(f"{part}.")]

    used = {name for path in inside for name in imports(path) if name.startswith(f"{room}.")}

    assert inside
    assert [name for name in used if not name.startswith((part, *PARTS[part]))] == []


def test_policies_are_reached_by_name_only() -> None:
    """A file of tuner/ or power/ imports nothing that users choose by name, nor a module of policies."""
    by_name = {target.replace(":", ".") for kind in registry.TABLE.values() for target in kind.values()}
    for path in modules("tuner", "power"):
        for module, inner in names_in(path):
            names = {f"{module}.{name}".strip(".") for name in inner}
            chosen = [name for name in names if name in by_name]
            whole = [name for name in names if name.startswith("tuner.policies") and name in module_names()]
            assert not chosen + whole, f"{name_of(path)} imports {', '.join(chosen + whole)}"


@pytest.mark.parametrize(
    ("folder", "allowed"),
    [("power", CORE_OF_POWER), ("policies", CORE_OF_POLICIES)],
    ids=["power", "policies"],
)
def test_plugins_lean_on_the_core_only(folder: str, allowed: set[str]) -> None:
    """power/ and policies/ import the core absolutely and their siblings relatively."""
    for path in modules(folder):
        for name in imports(path, relative=False):
            fine = name in allowed if name.startswith("tuner") else not name.startswith(("power", "policies"))
            assert fine, f"{name_of(path)} imports {name}"


@pytest.mark.parametrize("package", sorted(BORDERS))
def test_vendor_packages_stay_at_their_border(package: str) -> None:
    """Each vendor package is imported by the modules that translate its errors, and by no others."""
    for path in modules(*FOLDERS):
        if any(n.split(".")[0] == package for n in imports(path)):
            assert name_of(path).startswith(BORDERS[package]), f"{name_of(path)} imports {package}"


@pytest.mark.parametrize("module", sorted(LIGHT))
def test_light_modules_stay_light(module: str) -> None:
    """A module that starts processes, or answers --help, imports no package that it can do without."""
    code = (
        f"import sys; before = set(sys.modules); import {module};"
        " names = {name.partition('.')[0] for name in set(sys.modules) - before};"
        " print(*sorted(names - (sys.stdlib_module_names - {'asyncio'}) - {'tuner'}))"
    )
    ran = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)

    assert {name for name in ran.stdout.split() if "cython" not in name} <= LIGHT[module]  # which is NumPy's


def test_a_run_for_time_imports_no_more_than_it_needs(tmp_path: Path) -> None:
    """Of a short run most is imports: what others need, or who reads power, is left to them."""
    arguments = [
        *("run", "scan-lf:N=64", "--device", "sim:k40c", "--policy", "random", "--budget", "1"),
        *("--database", str(tmp_path / "db")),
    ]
    code = (
        "import sys; from tuner.cli.main import main;"
        f" main({arguments!r}, standalone_mode=False); print(*sys.modules)"
    )
    ran = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    loaded = ran.stdout.splitlines()[-1].split()

    assert "tuner.search.session" in loaded
    assert [name for name in loaded if name.startswith(NOT_FOR_TIME)] == []


def test_modules_have_no_cycle() -> None:
    """The module graph has no circular imports, lazy ones included."""
    names = {name_of(path): path for path in modules(*FOLDERS)}
    graph = {
        name: {target for target in imports(path) if target in names and target != name}
        for name, path in names.items()
    }
    state: dict[str, int] = {}

    def visit(name: str, trail: tuple[str, ...]) -> None:
        assert state.get(name) != 1, f"cycle: {' -> '.join((*trail, name))}"
        if name in state:
            return
        state[name] = 1
        for target in graph[name]:
            visit(target, (*trail, name))
        state[name] = 2

    for name in graph:
        visit(name, ())


@pytest.mark.parametrize("folder", ["tests", "benchmarks"])
def test_nothing_needs_the_district_of_the_kernels(folder: str) -> None:
    """The folder kernels uses what lies beside it, never the other way round."""
    inside = {path.stem for path in modules(f"{folder}/kernels")}
    for path in (ROOT / folder).glob("*.py"):
        assert not inside & absolute_imports(path), path.name


@pytest.mark.parametrize("folder", ["kernels", "systemd"])
def test_data_folders_are_no_packages(folder: str) -> None:
    """kernels/ and systemd/ hold data: an __init__.py there would shadow other projects' packages."""
    assert not list((ROOT / folder).rglob("__init__.py"))


def test_docstrings_begin_with_a_verb_or_a_noun() -> None:
    """No docstring is a clause that begins with a question word, those below constants included."""
    clause = re.compile(r'^[ \t]*[rR]?"""(?:What|How|Who|Whether|Why|Where)\b', re.MULTILINE)
    files = {str(path.relative_to(ROOT)): path.read_text() for path in modules(*FOLDERS)}

    assert [f"{file}: {found}" for file, text in files.items() for found in clause.findall(text)] == []
