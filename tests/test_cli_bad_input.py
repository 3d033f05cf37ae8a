"""What `tuner run` cannot use: a message that names it, the right exit code, and nothing half done."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from cli_process import FAULTY, SMALL, TX1, document, refused, tuner

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
    ("words", "says"),
    [
        (("scan-l:N=64", *TX1), ("unknown kernel 'scan-l'", "did you mean 'scan-lf'?")),
        (("scan-lf:N=9000", *TX1), ("scan-lf has no N=9000", "from 2 to 8192")),
        (("scan-lf", *TX1), ("size N is missing", "scan-lf:N=2")),
        (("scan-lf:M=64", *TX1), ("scan-lf: unknown size 'M'", "choose from N, dtype, form, batch")),
        (("scan-lf:64", *TX1), ("'64' is not of the form size=value", "scan-lf:N=2")),
        (("scan-lf:N=4,batch=0", *TX1), ("batch is 0", "at least 1")),
        (("scan-lf:N=4,batch=many", *TX1), ("batch=many is not a whole number",)),
        (("scan-lf:N=4", *SMALL), ("scan-lf:N=4: named more than once",)),
        (("scan-lf:N=4", "--device", "sim:jetson-tx"), ("sim:jetson-tx", "did you mean 'jetson-tx1'")),
        (("scan-lf:N=4", "--device", "sim:k40c.9"), ("further GPUs like k40c are k40c.2 to k40c.8",)),
        (("scan-lf:N=4", "--device", "kind:Tesla K40c"), ("a kind is for jobs of the daemon", "as cuda:0")),
        (("scan-lf:N=4", "--device", "gpu"), ("unknown device 'gpu'", "cuda:N", "sim:jetson-tx1")),
        (("scan-lf:N=4", "--device", "sim:gtx680"), ("no power sensor", "--objective time")),
        ((*SMALL, "--policy", "gredy"), ("unknown policy 'gredy'", "exhaustive, random, greedy")),
        ((*SMALL, "--policy", "greedy", "--patience", "3"), ("--patience is no option", "auto, bayesian")),
        ((*SMALL, "--patience", "0"), ("--patience", "x>=1")),
        ((*SMALL, "--runs-per-day", "0"), ("--runs-per-day", "x>0")),
        (
            (*SMALL, "--runs-per-day", "inf"),
            ("--runs-per-day", "inf: write a number above 0 and at most 1e+15"),
        ),
        (
            (*SMALL, "--runs-per-day", "9", "--objective", "edp"),
            ("--runs-per-day", "use the objective time or energy"),
        ),
        ((*SMALL, "--pay-back-days", "5"), ("--pay-back-days 5: needs --runs-per-day",)),
        (
            (*SMALL, "--time-limit", "inf"),
            ("--time-limit", "inf: write a number above 0 and at most 31536000"),
        ),
        ((*SMALL, "--runs-per-day", "9", "--pay-back-days", "-1"), ("--pay-back-days", "x>0")),
        ((*SMALL, "--objective", "joules"), ("unknown objective 'joules'", "time, energy, edp, ed2p")),
        (
            (*SMALL, "--objective", "time", "--max-slowdown", "5%"),
            ("--max-slowdown", "with the objective time it says nothing"),
        ),
        ((*SMALL, "--max-slowdown", "much"), ("'much' is not a share", "5%")),
        ((*SMALL, "--min-occupancy", "5"), ("'5' is not a share; write for example 5% or 0.05",)),
        ((*SMALL, "--max-slowdown", "nan"), ("'nan' is not a share",)),
        ((*SMALL, "--budget", "-3"), ("--budget", "-3")),
        ((*SMALL, "--budget", "0"), ("--budget",)),
        ((*SMALL, "--time-limit", "0"), ("--time-limit",)),
        ((*SMALL, "--time-limit", "nan"), ("--time-limit", "nan: write a number above 0")),
        ((*SMALL, "--energy-precision", "0"), ("--energy-precision", "0: write a fraction above 0")),
        (
            (*SMALL, "--energy-precision", "80%"),
            ("--energy-precision", "80%: write a fraction", "at most 0.5 (50%)"),
        ),
        ((*SMALL, "--energy-precision", "good"), ("'good' is not a share",)),
        ((*SMALL, "--window", "inf"), ("--window", "0.01<=x<=600")),
        ((*SMALL, "--window", "nan"), ("--window", "nan: write a number from 0.01 to 600")),
        ((*SMALL, "--seed", "-1"), ("--seed",)),
        ((*SMALL, "--clocks", "fast"), ("--clocks: 'fast' is not a choice of clocks", "MIN:MAX[:STEP]")),
        ((*SMALL, "--clocks", "1000"), ("does not have 1000 MHz", "from 76 to 998 MHz")),
        ((*SMALL, "--clocks", "999:2000"), ("no clock in that range",)),
        ((*SMALL, "--min-occupancy", "101%"), ("101%: write a fraction from 0 to 1 (100%)",)),
        ((*SMALL, "--json", "/no/such/folder/x.json"), ("the directory /no/such/folder does not exist",)),
        ((*SMALL, "--json", "/"), ("this is a directory",)),
        ((*SMALL, "--kernel", "/no/such/kernel.toml"), ("/no/such/kernel.toml",)),
    ],
)
def test_words_that_cannot_be(words: tuple[str, ...], says: tuple[str, ...], db: Path) -> None:
    """A word that is wrong is named, with what would be right."""
    refused(db, words, *says)


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
    assert "2 × does not compile" in result.stdout.split("failed: ")[0]
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
