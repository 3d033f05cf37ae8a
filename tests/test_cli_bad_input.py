"""Command lines and inputs that are refused: named, with the right exit code, and nothing half done."""

import shlex
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from cli_process import FAULTY, TX1, document, refused, rows, tuner
from fake_nvml_state import fake_nvml, script, sensors_of_h200
from small_spaces import space

from tuner.recordings.files import write
from tuner.system.untrusted.reading import load_toml

KERNEL = """
[kernel]
name = "toy"
description = "y = x"
family = "copies"
source = "toy.cu"
entry = "toy<{L}, {variant}>"
[problem]
name = "expression"
batch = "2**20 // N"
[problem.sizes]
N = [64]
[problem.reference]
y = "x"
[[argument]]
buffer = "x"
dtype = "float32"
shape = ["batch", "N"]
role = "in"
[[argument]]
buffer = "y"
dtype = "float32"
shape = ["batch", "N"]
role = "out"
[tunables]
L = [64, 128]
variant = [0, 1]
[constraints]
rules = ["L >= 64"]
[default]
L = 64
variant = 0
[launch]
grid = "ceil_div(batch * N, L)"
block = "L"
[work]
bytes = "8 * N * batch"
operations = "N * batch"
"""
SOURCE = """
template <int L, int variant>
__global__ void toy(const float* x, float* y) {
    static_assert(variant == 0, "no such variant");
    y[blockIdx.x * L + threadIdx.x] = x[blockIdx.x * L + threadIdx.x];
}
"""

Write = Callable[..., Path]


@pytest.fixture(autouse=True)
def _no_other_kernels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))


@pytest.fixture
def db(tmp_path: Path) -> Path:
    return tmp_path / "tuner.db"


@pytest.fixture
def toy(tmp_path: Path) -> Write:
    """Writes a kernel file, with some of its text replaced, and its source; returns the file."""

    def write(old: str = "", new: str = "", source: str = SOURCE) -> Path:
        assert old in KERNEL
        (tmp_path / "toy.cu").write_text(source)
        path = tmp_path / "toy.toml"
        path.write_text(KERNEL.replace(old, new) if old else KERNEL)
        return path

    return write


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("[work]", "[work", ("toy.toml", "line")),
        ('name = "toy"', "name = 7", ("toy.toml", "[kernel] name")),
        ("L = [64, 128]", 'L = "many"', ("toy.toml", "[tunables] L")),
        ("block = ", "blocks = ", ("toy.toml", "[launch] blocks")),
        ('"L >= 64"', '"L >= 65 and L <= 127"', ("toy.toml", "breaks the rule 'L >= 65 and L <= 127'")),
        ('"L >= 64"', "\"__import__('os').getpid() > 0\"", ("toy.toml", "rules")),
        ('"L >= 64"', '"open(L)"', ("toy.toml", "rules", "open")),
        ('"L >= 64"', '"K >= 64"', ("toy.toml", "rules", "K")),
        ('source = "toy.cu"', 'source = "other.cu"', ("toy.toml", "source", "other.cu")),
    ],
    ids=["syntax", "type", "type-of-list", "key", "nothing-left", "import", "call", "name", "no-source"],
)
def test_kernel_file_that_cannot_be(old: str, new: str, says: tuple[str, ...], toy: Write, db: Path) -> None:
    """A wrong kernel file is named with its key; nothing in it is run."""
    refused(db, ("toy:N=64", "--kernel", toy(old, new), *TX1), *says)


def test_file_that_is_no_text(tmp_path: Path, db: Path) -> None:
    """A kernel file that cannot be decoded, or is a folder, is named."""
    path = tmp_path / "bytes.toml"
    path.write_bytes(b"\xff\xfe\x00")
    refused(db, ("toy:N=64", "--kernel", path, *TX1), "bytes.toml")
    refused(db, ("toy:N=64", "--kernel", tmp_path, *TX1), str(tmp_path))


# --- kernels that do not compile -----------------------------------------------------------------


def test_kernel_that_does_not_compile(toy: Write, db: Path) -> None:
    """When no configuration compiles, the first error stands there with its file and line."""
    path = toy(source=SOURCE.replace("y[", "z["))
    refused(db, ("toy:N=64", "--kernel", path, *TX1), "toy:N=64: none of 4", "toy.cu(5): error", '"z"')


def test_configuration_that_does_not_compile(toy: Write, db: Path) -> None:
    """A configuration that does not compile is named, dropped and counted; the others are tuned."""
    words = ("run", "toy:N=64", "--kernel", toy(), *TX1, "--policy", "exhaustive", "--database", db)
    result, found = tuner(*words), document(*words)
    (workload,) = found["workloads"]

    assert result.exit_code == 0
    assert result.stdout.count("2 × does not compile") == 1, "what fails has a line of its own"
    assert "failed: 2 × does not compile: toy:N=64 [L=64 variant=1]: stage 'toy'" in result.stdout
    assert result.stdout.count("no such variant") == 1
    assert len(workload["compile_errors"]) == 2
    assert all("no such variant" in message for message in workload["compile_errors"])
    assert workload["space"]["dropped"] == {"does not compile": 2}
    assert {t["configurations"]["toy:N=64"]["variant"] for t in found["trials"]} == {0}


def test_default_that_does_not_compile(toy: Write, db: Path) -> None:
    """A default that does not compile costs the comparison with it, not the run, and is told once."""
    path = toy("variant = 0", "variant = 1")
    words = ("run", "toy:N=64", "--kernel", path, *TX1, "--policy", "exhaustive", "--database", db)
    found = document(*words)
    shown = tuner(*words, "--verbose").stdout

    assert shown.count("failed: does not compile: toy:N=64 [L=64 variant=1]: ") == 1
    assert shown.count("failed: does not compile: ") == len(found["workloads"][0]["compile_errors"])
    assert found["default"]["status"] == "compile-error"
    assert found["best"]["configurations"]["toy:N=64"]["variant"] == 0


def test_broken_file_of_a_folder_hides_no_other_kernel(tmp_path: Path, db: Path) -> None:
    """A kernel file of the user's folder that is wrong is no reason to refuse the others."""
    folder = tmp_path / "config" / "tuner" / "kernels.d"
    folder.mkdir(parents=True)
    (folder / "broken.toml").write_text("[kernel")
    shutil.copytree(FAULTY.parent, folder / "faulty")
    found = document("run", "faulty:N=256", *TX1, "--budget", "1", "--database", db)

    assert found["best"]["status"] == "ok"


TABLE = load_toml((Path(__file__).parent / "data" / "refusals.toml").read_text("utf-8"))
CASES = [
    pytest.param(f"{one['command']} {line}", says, one.get("code", 2), id=f"{one['command']} {line}".strip())
    for one in TABLE["refused"]
    for line, says in one["says"].items()
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A user's folder, on a machine with an idle H200 whose driver is not CUDA's."""
    path, home = tmp_path_factory.mktemp("refused"), tmp_path_factory.mktemp("home")
    spaces = [
        space(["scan:N=1"], [3.0, 2.0, 1.0, 4.0]),
        space(["scan:N=2"], [1.0, 2.0, 3.0, None], joules=10.0),
        space(["fft:N=1"], [None, None]),
    ]
    write(path / "hand.zip", spaces)
    (path / "other.json").write_text('{"a": 1}')
    (path / "broken.json").write_text('{"a": ')
    with pytest.MonkeyPatch.context() as patch, fake_nvml(home) as state:
        script(state, (0.0, 120.0))
        sensors_of_h200(state)
        patch.chdir(path)
        patch.setattr("tuner.devices.cuda.probe.driver_problem", lambda: "no driver (a test)")
        patch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
        for name in ("XDG_CONFIG_HOME", "XDG_RUNTIME_DIR"):
            patch.setenv(name, str(home))
        yield path
        assert state.sets + state.resets + state.app_sets + state.app_resets == 0


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where databases and calibrations go that nobody places elsewhere."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return tmp_path


@pytest.mark.parametrize(("line", "says", "code"), CASES)
def test_it_is_refused(folder: Path, state: Path, line: str, says: str | list[str], code: int) -> None:
    """The message names what is wrong and what would be right; no file is written, and no run stored."""
    before = sorted(folder.iterdir())
    result = tuner(*shlex.split(line))

    assert result.exit_code == code, result.output
    for part in [says] if isinstance(says, str) else says:
        assert part in " ".join(result.stderr.split())
    assert "Traceback" not in result.output
    assert result.stdout == ""
    assert sorted(folder.iterdir()) == before
    assert not list(state.rglob("sensors.json"))
    assert all(rows(path, "runs") == 0 for path in state.rglob("*.db"))
