"""``tuner import`` and ``tuner export``."""

import json
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
import recorded_samples as samples
from click.testing import CliRunner, Result
from report_documents import run_document, run_trial

from tuner.cli.main import main

DATA = Path(__file__).parent / "data" / "exchange"


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(main, [*map(str, arguments)])


def test_a_t1_file_is_imported_and_passes_its_check(tmp_path: Path) -> None:
    """The kernel file names the source relative to itself; a file that is there stays."""
    for name in ("axpy.json", "axpy.cu"):
        shutil.copy(DATA / name, tmp_path)
    target = tmp_path / "axpy.toml"
    result = run("import", tmp_path / "axpy.json")
    assert result.exit_code == 0, result.output
    assert 'source = "axpy.cu"' in target.read_text()
    checked = run("kernels", "check", target, "--arch", "sm_90")
    assert checked.exit_code == 0, checked.output
    assert "--force replaces it" in run("import", tmp_path / "axpy.json").stderr


def test_values_are_never_run(tmp_path: Path) -> None:
    """A text that would write a file is refused, and writes none."""
    text = (DATA / "axpy.json").read_text()
    trick = text.replace("[2**i for i in range(5, 9)]", f"[open('{tmp_path}/made', 'w')]")
    (tmp_path / "axpy.json").write_text(trick)
    shutil.copy(DATA / "axpy.cu", tmp_path)
    result = run("import", tmp_path / "axpy.json")
    assert result.exit_code == 2
    assert "TuningParameters[0] (block_size_x): Values" in result.stderr
    assert not (tmp_path / "made").exists()
    assert not (tmp_path / "axpy.toml").exists()


def test_a_cut_cache_is_imported_and_replayed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is whole of it is read, with a word about the rest; a replay of it is exported again."""
    monkeypatch.chdir(tmp_path)
    cache = samples.cache_file(tmp_path / "cache.json")
    cache.write_text(cache.read_text().rstrip()[:-12])
    result = run("import", cache)
    assert result.exit_code == 0, result.output
    assert "its end was missing" in result.output
    done = run(
        *(
            "run",
            "--device",
            "replay:cache.zip",
            "--objective",
            "time",
            "--database",
            "runs.db",
            "--json",
            "run.json",
        )
    )
    assert done.exit_code == 0, done.output
    assert run("export", "run.json").output == run("export", "1", "--database", "runs.db").output
    assert run("export", "run.json").output.startswith("-Dblock_size_x=")
    assert run("export", "cache.zip", "--format", "t4", "--output", "t4.json").exit_code == 0
    assert run("import", "t4.json").exit_code == 0
    assert json.loads(run("export", "t4.zip", "--format", "t4").output) == json.loads(
        Path("t4.json").read_text()
    )
    assert "two are" not in run("export", "run.json", "run.json", "--format", "header").output


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("[2**i for i in range(5, 9)]", "range(-9*10**18, 9*10**18)", "lists more than 100000 values"),
        ('["-std=c++11", "--use_fast_math"]', "1.5", "CompilerOptions is 1.5"),
        ('"--use_fast_math"', '"\\ud800"', "surrogates not allowed"),
        ("[1024, 64]", "[1e3, 64]", "ProblemSize is"),
        ("[1024, 64]", "[99999999999999999999, 64]", "more than 63 bits"),
    ],
)
def test_hostile_t1_files_are_refused_whole(tmp_path: Path, old: str, new: str, words: str) -> None:
    """The message names the key, and no file is left."""
    text = (DATA / "axpy.json").read_text()
    assert old in text
    (tmp_path / "axpy.json").write_text(text.replace(old, new, 1))
    shutil.copy(DATA / "axpy.cu", tmp_path)
    result = run("import", tmp_path / "axpy.json")
    assert result.exit_code == 2
    assert words in result.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["axpy.cu", "axpy.json"]


def test_t4_files_with_odd_tables_are_refused(tmp_path: Path) -> None:
    """Units and measurements of the wrong type are named."""
    one = {"configuration": {"a": 1}, "invalidity": "correct", "times": {"runtimes": [1.0]}}
    odd = [
        {"metadata": {"timeunit": []}, "results": [one]},
        {"metadata": {}, "results": [{**one, "measurements": 7}]},
        {"metadata": {}, "results": [{**one, "times": {"runtimes": [1.7e308, 1.7e308]}}]},
    ]
    for document in odd:
        (tmp_path / "t4.json").write_text(json.dumps(document))
        result = run("import", tmp_path / "t4.json", "--output", tmp_path / "o.zip")
        assert result.exit_code == 2, result.output
        assert not (tmp_path / "o.zip").exists()


def test_without_a_run_the_newest_answer_is_exported(tmp_path: Path) -> None:
    """Of stored runs the newest with an answer is written, and standard error says which."""
    db = ("--database", tmp_path / "runs.db")
    cache = samples.cache_file(tmp_path / "cache.json")
    run("run", "--device", f"replay:{cache}", "--objective", "time", *db)
    found = run("export", *db)

    assert found.stdout == run("export", "1", *db).stdout
    assert found.stderr == "run 1, the newest with an answer\n"
    assert "name a kernel that was trained" in run("export", "--format", "c-selector", *db).stderr


def test_flags_of_several_workloads_do_not_enter_a_command(tmp_path: Path) -> None:
    """Into a pipe they are refused; one workload, a header, or an output that is named are taken."""
    file, workloads = tmp_path / "run.json", ["scan:N=64", "fft:N=2"]
    values = {"scan:N=64": {"P": 2}, "fft:N=2": {"P": 4}}
    file.write_text(json.dumps(run_document([run_trial(values, 1e-3)], objective="time")))
    refused = run("export", file)

    assert refused.exit_code == 2
    for way in ("--workload scan:N=64", "--format header", "--output -", *workloads):
        assert way in refused.stderr
    assert run("export", file, "--workload", "fft:N=2").stdout == "-DP=4\n"
    assert "#define P 4" in run("export", file, "--workload", "fft:N=2", "--format", "header").stdout
    assert run("export", file, "--output", "-").stdout.splitlines()[1::2] == ["-DP=2", "-DP=4"]
    wrong = run("export", file, "--workload", "fft:N=3")
    assert "did you mean 'fft:N=2'?" in wrong.stderr
    assert run("export", file, "--workload", "fft:N=2", "--format", "t4").exit_code == 2


# --- what a report says to use ----------------------------------------------------------------------

SIM = ("--device", "sim:h200", "--objective", "time")
TRIAD = """
namespace user {
template <class T, int W, bool vec> __global__ void triad(const T* x, T* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = T(W) * x[i];
}
}
"""
TRIAD_FILE = """
[kernel]
source = "triad.cu"
entry = "user::triad<float, {W}, {vec}>"
options = ["--maxrregcount={regs}"]
[problem]
sizes.N = [4096]
name = "consistent"
[arguments]
x = "in float32[N]"
y = "out float32[N]"
n = "int32 = N"
[tunables]
block = [64, 128]
W = [8]
vec = [false]
regs = [32]
[launch]
grid = "ceil_div(N, block)"
block = "block"
"""
HALF = """
__global__ void half(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = FACTOR * x[i];
}
"""
HALF_FILE = (
    TRIAD_FILE.replace("triad.cu", "half.cu")
    .replace('entry = "user::triad<float, {W}, {vec}>"\noptions = ["--maxrregcount={regs}"]\n', "")
    .replace("W = [8]\nvec = [false]\nregs = [32]", "FACTOR = [2]")
)
TEXTS = HALF_FILE.replace("FACTOR = [2]", 'FACTOR = ["(1 + 1)"]')


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user's folder, with kernels whose tunables are no macros, and a database of its own."""
    for name, text in (("triad", TRIAD), ("half", HALF), ("texts", HALF)):
        (tmp_path / f"{name}.cu").write_text(text)
    for name, text in (("triad", TRIAD_FILE), ("half", HALF_FILE), ("texts", TEXTS)):
        (tmp_path / f"{name}.toml").write_text(text.replace("half.cu", f"{name}.cu"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path


def used(*words: str) -> dict[str, str]:
    """What a run says at its end: ``use``, ``source`` and ``launch``, which may stand side by side."""
    done = run("run", *words, *SIM, "--budget", "2")
    assert done.exit_code == 0, done.output
    parts = re.split(r"(?:^| {3})(use|source|launch|holds for|more): ", done.stdout, flags=re.MULTILINE)[1:]
    said = {key: " ".join(text.split()) for key, text in zip(parts[::2], parts[1::2], strict=True)}
    assert said.pop("more").startswith("tuner show 1")
    assert re.fullmatch(r"NVRTC [\d.]+( --std=c\+\+17)?, rounds back to back", said.pop("holds for"))
    return said


HEADER = "tuner export 1 --format header --output tuned.h"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("half.toml",), {"use": "-DFACTOR=2", "launch": "half with block=(64|128)"}),
        (
            ("triad.toml",),
            {"use": "--maxrregcount=32", "launch": "user::triad<float, 8, false> with block=(64|128)"},
        ),
        (("texts.toml",), {"use": HEADER, "launch": "half with block=(64|128)"}),
        (("half.toml", "scan-lf:N=4"), {"use": HEADER}),
        (("scan-lf:N=4",), {"launch": "scan_lf<.*> with cap=0"}),
        (("scan-long:N=4096",), {"launch": ".*<.*>.*"}),
        (
            ("mvmul:H=1024,W=1024",),
            {"use": "-D.*", "source": "what tuner kernels expand mvmul writes", "launch": "mvmul<.*>"},
        ),
        (("geqrf:n=64",), {"use": "-Dahead=[012]", "launch": ".*panel<.*>.* with NB=64"}),
    ],
    ids=lambda one: " ".join(one) if isinstance(one, tuple) else "",
)
def test_what_a_report_says_to_use_can_be_used(
    folder: Path, words: tuple[str, ...], said: dict[str, str]
) -> None:
    """Commands end well and write what compiles; options define their macros; the rest names the launch."""
    files = {"half.toml": "half:N=4096", "triad.toml": "triad:N=4096", "texts.toml": "texts:N=4096"}
    kernels = [word for one in words if one in files for word in ("--kernel", one)]
    found = used(*(files.get(one, one) for one in words), *kernels)
    assert found.keys() == said.keys()
    for key, text in said.items():
        assert re.fullmatch(text, found[key]), found[key]
    if "source" in found:
        assert run(*found["source"].split()[2:-1]).exit_code == 0
    use = found.get("use", "")
    if use.startswith("tuner "):
        assert run(*shlex.split(use)[1:]).exit_code == 0
        compiled = ["g++", "-xc++", "-Wall", "-Werror", "-fsyntax-only", "tuned.h"]
        subprocess.run(compiled, cwd=folder, check=True, stderr=subprocess.DEVNULL)
    elif use:
        assert run("export", "1", *kernels).stdout == f"{use}\n"
        macros = " ".join(one for one in shlex.split(use) if one.startswith("-D"))
        subprocess.run(
            ["sh", "-c", f"g++ {macros} -E -xc++ /dev/null"], check=True, stdout=subprocess.DEVNULL
        )


@pytest.mark.parametrize("name", ["half", "triad", "texts"])
def test_exports_say_the_same_as_reports(folder: Path, name: str) -> None:
    """A tunable that is no macro is no flag and no macro of a header, whoever has the kernel file."""
    used(f"{name}:N=4096", "--kernel", f"{name}.toml")
    for words in ((), ("--kernel", f"{folder}/{name}.toml")):
        header = run("export", "1", "--format", "header", *words).stdout
        assert re.search("^#define TUNED_block (64|128)$", header, re.MULTILINE)
        assert not re.search("^#define (block|W|vec|regs) ", header, re.MULTILINE)
        flags = run("export", "1", *words)
        assert (flags.exit_code, flags.stdout) == {
            "half": (0, "-DFACTOR=2\n"),
            "triad": (0, "--maxrregcount=32\n"),
            "texts": (2, ""),
        }[name]
        assert ("--format header" if name == "texts" else "with block=") in flags.stderr


EVIL = "1 -ccbin /tmp/evil -DW=1"


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The document of a run."""
    folder = tmp_path_factory.mktemp("whole")
    words = ("run", "scan-lf:N=4", *SIM, "--budget", "2", "--database", folder / "db")
    assert run(*words, "--json", folder / "r.json").exit_code == 0
    return (folder / "r.json").read_text()


@pytest.mark.parametrize(
    "change", [{"P": EVIL}, {"P": 3}, {"unknown": 1}, {"stream_priority": EVIL}], ids=str
)
def test_a_configuration_that_its_kernel_lacks_is_not_exported(
    tmp_path: Path, whole: str, change: dict[str, object]
) -> None:
    """A document may come from anybody: what it says of a kernel that is here is held against its space."""
    kinds, file = ("flags", "header", "json", "t4", "kernel-launcher"), tmp_path / "r.json"
    file.write_text(whole)
    assert {run("export", file, "--format", kind).exit_code for kind in kinds} == {0}
    document = json.loads(whole)
    document["best"]["configurations"]["scan-lf:N=4"] |= change
    document["trials"].append(document["best"])
    file.write_text(json.dumps(document))
    for kind in kinds:
        refused = run("export", file, "--format", kind)
        assert refused.exit_code == 2
        assert "scan-lf:N=4: a configuration of its run is none of the kernel" in refused.stderr
        assert next(iter(change)) in refused.stderr


def test_builds_are_those_of_the_kernel_and_not_of_the_document(tmp_path: Path, whole: str) -> None:
    """Macros that a document claims for a kernel that is here are not believed."""
    path = tmp_path / "r.json"
    path.write_text(whole)
    right = run("export", path)
    document = json.loads(whole)
    claimed = {"source": None, "macros": {"system": "1"}, "entries": ["evil<1>"], "options": ["--evil"]}
    document["workloads"][0]["expanded"] = claimed
    path.write_text(json.dumps(document))
    assert right.exit_code == 0
    assert run("export", path).output == right.output
