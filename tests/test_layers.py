"""The import rule: a room uses the rooms below it, never one above or beside it."""

import ast
import functools
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

# From the faces to the errors, as docs/architecture.md draws them.
LAYERS: tuple[tuple[str, ...], ...] = (
    ("tuner.__main__",),
    ("tuner.cli",),
    ("tuner.daemon", "tuner.doctor", "tuner.kernel_tuner"),
    ("tuner.python", "tuner.regions", "tuner.linalg", "tuner.terminal"),
    ("tuner.report", "tuner.installing", "tuner.page"),
    ("tuner.sweep",),
    ("tuner.comparing", "tuner.application", "tuner.training", "tuner.pool"),
    ("tuner.search",),
    ("tuner.measurement",),
    ("tuner.tracing",),
    ("tuner.devices", "tuner.database", "tuner.client", "tuner.exchange"),
    ("tuner.compiler", "tuner.recordings", "tuner.problems"),
    ("tuner.config", "tuner.registry"),
    ("tuner.pragmas", "tuner.prediction", "tuner.space"),
    ("tuner.cuda_source",),
    ("tuner.interfaces", "tuner.expressions", "tuner.system"),
    ("tuner.model",),
    ("tuner.untrusted",),
    ("tuner.errors", "tuner.options"),
)
# The rooms of the daemon and its modules beside them, in the same way.
DAEMON = (
    ("process",),
    ("service",),
    ("api", "status"),
    ("archive", "live"),
    ("devices", "scrub"),
    ("attempts", "backlog", "metrics"),
    ("answers",),
    ("queue",),
    ("interface", "state"),
    ("settings",),
)
CORE_OF_PLUGINS = {"tuner", "tuner.interfaces", "tuner.model", "tuner.errors"}
CORE_OF_POWER = CORE_OF_PLUGINS | {
    *("tuner.system.boot", "tuner.system.lock_files", "tuner.system.owner", "tuner.system.service_manager"),
    *("tuner.untrusted.files", "tuner.untrusted.json", "tuner.untrusted.limits"),
    *("tuner.untrusted.text", "tuner.untrusted.toml"),
}
CORE_OF_POLICIES = CORE_OF_PLUGINS | {"tuner.space", "tuner.space.occupancy"}

# A third-party package and the only modules that may import it.
BORDERS = {
    "cupy": ("tuner.devices.cuda",),
    "dask": ("tuner.pool",),
    "distributed": ("tuner.pool",),
    "pynvml": ("power.nvml",),
    "jtop": ("power.sensors.jtop",),
    "sqlite3": ("tuner.database",),
    "click": ("tuner.cli",),
    "sklearn": ("tuner.prediction",),
    "textual": ("tuner.terminal",),
    "tree_sitter": ("tuner.pragmas",),
    "tree_sitter_cuda": ("tuner.pragmas",),
}


@functools.cache
def modules(folder: str) -> list[Path]:
    found = sorted((ROOT / folder).rglob("*.py"))
    assert found, f"no module in {folder}"
    return found


def name_of(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@functools.cache
def imports(path: Path) -> tuple[str, ...]:
    """Absolute names of the modules a file imports; relative imports stay within their folder."""
    return tuple(_imports(ast.parse(path.read_text())))


def _imports(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            inner = [f"{node.module}.{alias.name}" for alias in node.names]
            yield from (name for name in inner if is_module(name))
            if not all(map(is_module, inner)):
                yield node.module


@functools.cache
def is_module(name: str) -> bool:
    path = ROOT / name.replace(".", "/")
    return path.with_suffix(".py").is_file() or (path / "__init__.py").is_file()


def layer(name: str) -> int | None:
    for depth, row in enumerate(LAYERS):
        if any(name == entry or name.startswith(f"{entry}.") for entry in row):
            return depth
    return None


def test_imports_point_down() -> None:
    """A module of tuner/ imports only from its own layer or deeper ones."""
    for path in modules("tuner"):
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


def test_power_and_policies_are_reached_by_name_only() -> None:
    """No file of tuner/ names tuner.power or tuner.policies in an import statement."""
    for path in modules("tuner"):
        named = [name for name in imports(path) if name.startswith(("tuner.power", "tuner.policies"))]
        assert not named, f"{name_of(path)} imports {', '.join(named)}"


@pytest.mark.parametrize(
    ("folder", "allowed"),
    [("power", CORE_OF_POWER), ("policies", CORE_OF_POLICIES)],
    ids=["power", "policies"],
)
def test_plugins_lean_on_the_core_only(folder: str, allowed: set[str]) -> None:
    """power/ and policies/ import the core absolutely and their siblings relatively."""
    for path in modules(folder):
        for name in imports(path):
            fine = name in allowed if name.startswith("tuner") else not name.startswith(("power", "policies"))
            assert fine, f"{name_of(path)} imports {name}"


@pytest.mark.parametrize("package", sorted(BORDERS))
def test_vendor_packages_stay_at_their_border(package: str) -> None:
    """Each vendor package is imported by the modules that translate its errors, and by no others."""
    for folder in ("tuner", "power", "policies"):
        for path in modules(folder):
            if any(n.split(".")[0] == package for n in imports(path)):
                assert name_of(path).startswith(BORDERS[package]), f"{name_of(path)} imports {package}"


def test_modules_have_no_cycle() -> None:
    """The module graph of tuner/ has no circular imports, lazy ones included."""
    names = {name_of(path): path for path in modules("tuner")}
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


@pytest.mark.parametrize("folder", ["kernels", "systemd"])
def test_data_folders_are_no_packages(folder: str) -> None:
    """kernels/ and systemd/ hold data: an __init__.py there would shadow other projects' packages."""
    assert not list((ROOT / folder).rglob("__init__.py"))
