"""What ``tuner export`` writes for vLLM, SGLang and Triton, read as these read it."""

import ast
import functools
import importlib.util
import json
import logging
import os
import re
import sys
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st
from report_documents import H200, TX1, run_document, run_trial

from tuner.cli.main import main
from tuner.database.answer_lock import LockedAnswer, LockedWorkload, Quantity, written
from tuner.kernel_files.catalog import load_kernel_file
from tuner.model.errors import InputError
from tuner.model.plan import Configuration
from tuner.model.records import WorkloadName
from tuner.model.trial import Status
from tuner.recordings.exchange.build_files import moe_files, triton_configs
from tuner.recordings.exchange.exported_run import ExportedRun, ExportedTrial

FOLDERS = {"vllm": "", "sglang": "configs/triton_3_6_0"}
ROW = {
    "BLOCK_SIZE_M": 16,
    "BLOCK_SIZE_N": 64,
    "BLOCK_SIZE_K": 128,
    "GROUP_SIZE_M": 8,
    "num_warps": 4,
    "num_stages": 3,
}


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(main, [*map(str, arguments)])


def answer(
    name: str, values: Mapping[str, Any], config: Any = None, device: str = "NVIDIA H200", entry: str = "moe"
) -> ExportedRun:
    """A run of one workload; ``config`` is what its function of Triton is told."""
    best = ExportedTrial((Configuration(values),), Status.OK, "", 1e-3)
    record: Any = {"macros": {}, "entries": [entry], "source": None, "config": config}
    sizes = dict(WorkloadName.parse(name).sizes)
    expanded = None if config is None else record
    return ExportedRun(device, "time", (name,), (), best, expanded=(expanded,), sizes=(sizes,))


def document(path: Path, name: str, device: Mapping[str, Any] = H200, **values: Any) -> Path:
    """A file of ``tuner run --json``."""
    trial = run_trial({name: {**ROW, **values}}, 1e-3)
    path.write_text(json.dumps(run_document([trial], objective="time", device=device)))
    return path


# --- Readers: by the rules of the loaders, and the loaders themselves where these are installed.


@dataclass(frozen=True)
class Layer:
    """What a framework knows when it looks for a file."""

    device: str
    experts: int
    size: int
    dtype: str | None = None
    block: tuple[int, int] | None = None


def by_rules(framework: str, folder: Path, layer: Layer) -> dict[int, Any] | None:
    """What the rules of vLLM 0.33 and SGLang 0.5.23 find."""
    word, name = layer.device.replace(" ", "_"), f"E={layer.experts},N={layer.size},device_name="
    if framework == "vllm":
        word = re.sub(r"[\s/]+", "_", layer.device)
        word = "NVIDIA_H200" if "H200" in word.split("_") else word
    name += word + (f",dtype={layer.dtype}" if layer.dtype else "")
    if layer.block:
        text = str(list(layer.block))
        name += f",block_shape={text.replace(' ', '') if framework == 'vllm' else text}"
    path = folder / FOLDERS[framework] / f"{name}.json"
    return (
        {int(key): value for key, value in json.loads(path.read_text()).items()} if path.is_file() else None
    )


@functools.cache
def own_loader(framework: str) -> str | None:
    """The file of an installed framework that has its loader; the package is not imported."""
    spec = importlib.util.find_spec(framework)
    for root in () if spec is None else spec.submodule_search_locations or ():
        for path in sorted(Path(root).rglob("fused_moe*.py")):
            if "def get_moe_configs" in path.read_text():
                return str(path)
    return None


def by_loader(framework: str, folder: Path, layer: Layer) -> dict[int, Any] | None:
    """What the loader of the installed framework finds, with the GPU and Triton that it would see."""
    path = own_loader(framework)
    if path is None:
        pytest.skip(f"no {framework}")
    functions: list[ast.stmt] = [
        one
        for one in ast.parse(Path(path).read_text()).body
        if isinstance(one, ast.FunctionDef) and one.name in ("get_config_file_name", "get_moe_configs")
    ]
    logger: Any = logging.getLogger(framework)
    logger.info_once = logger.warning_once = lambda *_, **__: None
    deterministic = SimpleNamespace(enable_deterministic_inference=False)
    seen: dict[str, Any] = {
        **vars(typing),
        "functools": functools,
        "json": json,
        "os": os,
        "logger": logger,
        "__file__": str(folder / "x.py"),
        "envs": SimpleNamespace(VLLM_BATCH_INVARIANT=False, VLLM_TUNED_CONFIG_FOLDER=str(folder)),
        "get_device_name_as_file_name": lambda: re.sub(r"[\s/]+", "_", layer.device),
        "get_exec": lambda: SimpleNamespace(deterministic=deterministic),
        "get_device_name": lambda: layer.device,
        "triton": SimpleNamespace(__version__="3.6.0"),
    }
    exec(compile(ast.Module(functions, []), path, "exec"), seen)  # noqa: S102 - of a package that the tester has installed
    block = layer.block or (0, 0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SGLANG_MOE_CONFIG_DIR", str(folder))
        found: dict[int, Any] | None = seen["get_moe_configs"](layer.experts, layer.size, layer.dtype, *block)
    return found


# --- Fused-MoE files.

LAYERS = {
    "E=8,N=7168": Layer("NVIDIA H200", 8, 7168),
    "E=8,N=7168,dtype=bfloat16": Layer("NVIDIA H100 80GB HBM3", 8, 7168),
    "E=256,N=128,dtype=fp8_w8a8,block_n=128,block_k=128": Layer(
        "NVIDIA H200 NVL", 256, 128, "fp8_w8a8", (128, 128)
    ),
    "E=1,N=64,dtype=int8_w8a16,K=9": Layer("NVIDIA A100-SXM4-80GB", 1, 64, "int8_w8a16"),
    "E=3,N=5,dtype=float32": Layer("Intel(R) Arc(TM) Pro B60 Graphics", 3, 5, "float32"),
}


@pytest.mark.parametrize("reader", [by_rules, by_loader], ids=lambda one: one.__name__)
@pytest.mark.parametrize("sizes", LAYERS)
@pytest.mark.parametrize("framework", FOLDERS)
def test_a_framework_finds_its_file(
    tmp_path: Path, framework: str, sizes: str, reader: Callable[[str, Path, Layer], Any]
) -> None:
    """Answers of several numbers of tokens make one file, of the name that is looked for, in its order."""
    layer, folder = LAYERS[sizes], tmp_path / FOLDERS[framework]
    folder.mkdir(parents=True, exist_ok=True)
    device = {**H200, "name": layer.device}
    files = [
        document(tmp_path / f"{m}.json", f"fused-moe:M={m},{sizes}", device, BLOCK_SIZE_M=b, SPLIT_K=1)
        for m, b in ((64, 64), (1, 16), (1024, 128))
    ]
    done = run("export", *files, "--format", framework, "--output", folder)

    assert done.exit_code == 0, done.output
    assert reader(framework, tmp_path, layer) == {
        m: {**ROW, "BLOCK_SIZE_M": b} for m, b in ((1, 16), (64, 64), (1024, 128))
    }
    again = run("export", *files, "--format", framework, "--output", folder)
    assert again.exit_code == 2
    assert "is there already" in again.stderr


def test_options_that_are_no_tunables_are_in_the_file() -> None:
    """What Triton is told is written, and what it would take anyway is not; the tokens may have any name."""
    tunables = {key: value for key, value in ROW.items() if key != "num_warps"}
    told = {**ROW, "num_warps": 8, "num_ctas": 1, "enable_fp_fusion": True, "HALF": 8}
    runs = [answer(f"moe:tokens={n},K=2", {**tunables, "maxnreg": 0}, told) for n in (4, 2)]
    (file,) = moe_files(runs, "vllm")

    assert json.loads(file.text()) == {n: {**ROW, "num_warps": 8} for n in ("2", "4")}
    assert not file.name
    assert "no size is called E or N" in file.note
    (other,) = moe_files([answer("moe:M=1", ROW, {**ROW, "num_ctas": 2, "maxnreg": 64})], "sglang")
    assert json.loads(other.text())["1"] == {**ROW, "num_ctas": 2, "maxnreg": 64}


REFUSED: dict[str, tuple[list[ExportedRun], str]] = {
    "other names": (
        [answer("mm:M=1", {"TILE_M": 1, "num_warps": 4, "GROUP_SIZE_M": 1})],
        "mm:M=1: vllm needs BLOCK_SIZE_M, BLOCK_SIZE_N, BLOCK_SIZE_K, num_stages, .* it has TILE_M,",
    ),
    "one more": (
        [answer("moe:M=1", {**ROW, "USE_TMA": True})],
        "moe:M=1: the kernel of vllm takes no USE_TMA",
    ),
    "split": ([answer("moe:M=1", {**ROW, "SPLIT_K": 2})], "takes no SPLIT_K"),
    "no number": (
        [answer("moe:M=1", {**ROW, "num_warps": "4"})],
        "num_warps is '4'; vllm takes whole numbers",
    ),
    "no tokens": ([answer("moe:E=8,N=4", ROW)], "moe:E=8,N=4: its number of tokens is not known"),
    "digits": ([answer(f"moe:M={'9' * 5000},E=8,N=4", ROW)], "number of tokens is not known"),
    "a word": ([answer("moe:M=many", ROW)], "number of tokens is not known"),
    "two answers": (
        [answer("moe:M=1,E=8,N=4,K=2", ROW), answer("moe:M=1,E=8,N=4,K=3", {**ROW, "num_warps": 8})],
        "1 tokens have two answers, moe:M=1,E=8,N=4,K=2 on NVIDIA H200: .* moe:M=1,E=8,N=4,K=3",
    ),
    "no answer": ([ExportedRun("G", "time", ("moe:M=1",), (), None, sizes=({},))], "has no answer"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_no_framework_takes_is_refused(case: str) -> None:
    """The message names the workload, and what is missing or too much."""
    runs, words = REFUSED[case]
    with pytest.raises(InputError, match=words):
        moe_files(runs, "vllm")


@given(st.text(max_size=12), st.sampled_from(["vllm", "sglang"]), st.text(max_size=6))
def test_a_name_stays_in_its_folder(device: str, framework: str, dtype: str) -> None:
    """Whatever a GPU or a type is called: the name has no folder in it, and is what the rules look for."""
    (file,) = moe_files([answer(f"moe:M=1,E=8,N=4,dtype={dtype}", ROW, device=device)], framework)
    assert re.fullmatch(r"(E=8,N=4,device_name=[\w.()+-]+(,dtype=\w+)?\.json)?", file.name, re.ASCII)


def test_what_is_said_where_no_file_is_written(tmp_path: Path) -> None:
    """Names that are not known, folders of no version, several files and no folder."""
    one = document(tmp_path / "one.json", "moe:M=1,E=8,N=4")
    other = document(tmp_path / "other.json", "moe:M=1,E=8,N=8")
    modelled = document(tmp_path / "modelled.json", "moe:M=1,E=8,N=4", TX1)
    nameless = document(tmp_path / "nameless.json", "moe:M=1,K=4")
    (tmp_path / "empty").mkdir()
    before = sorted(tmp_path.rglob("*"))
    cases: list[tuple[tuple[Path, ...], str, tuple[str | Path, ...], str]] = [
        ((one,), "sglang", ("--output", tmp_path / "empty"), "configs/triton_3_6_0"),
        ((one, other), "vllm", (), "these runs make 2 files"),
        ((modelled,), "vllm", ("--output", tmp_path / "empty"), "(modelled)' is no GPU that vllm runs on"),
        ((nameless,), "vllm", ("--output", tmp_path / "empty"), "no size is called E or N; name the file"),
        ((one,), "vllm", ("--output", f"{tmp_path}/none/"), "there is no such folder"),
        ((one,), "triton", ("--output", tmp_path / "empty"), "this is a directory; name a file"),
        ((one,), "triton", (), "is not known to launch one function of Triton"),
        ((one,), "vllm", ("--objective", "time"), "no RUN is the name of one"),
        ((one,), "vllm", ("--workload", "moe"), "--workload: is for"),
    ]
    for files, kind, words, says in cases:
        refused = run("export", *files, "--format", kind, *words)
        assert refused.exit_code == 2
        assert says in refused.stderr
    assert sorted(tmp_path.rglob("*")) == before
    Path(tmp_path / "moe.json").write_text(json.dumps({"triton_version": "3.6.0", "1": ROW}))
    assert "no times to import" in run("import", tmp_path / "moe.json").stderr
    shown = run("export", one, "--format", "vllm")
    assert shown.stderr == "vllm looks for E=8,N=4,device_name=NVIDIA_H200.json\n"
    assert json.loads(shown.stdout) == {"1": ROW}


MOE = """
#define SUM (BLOCK_SIZE_M + BLOCK_SIZE_N + BLOCK_SIZE_K + GROUP_SIZE_M + num_warps + num_stages)
__global__ void moe(const float* in, float* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = in[i] + 0 * SUM;
}
"""
MOE_FILE = """
kernel.name = "moe"
kernel.source = "moe.cu"
problem.sizes = { M = [64, 128] }
problem.reference.y = "x"
arguments = { x = "in float32[M]", y = "out float32[M]", n = "int32 = M" }
launch = { grid = "ceil_div(M, 64)", block = 64 }
[tunables]
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A user's folder with the kernel, and an empty database."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TUNER_DATABASE", str(tmp_path / "runs.db"))
    Path("moe.toml").write_text(MOE_FILE + "".join(f"{key} = [{value}]\n" for key, value in ROW.items()))
    Path("moe.cu").write_text(MOE)


@pytest.mark.usefixtures("folder")
def test_a_kernel_stands_for_its_newest_answers() -> None:
    """One per workload, for one objective, of the newest source; a workload stands for its own."""
    tuned = ("run", "--kernel", "moe.toml", "--device", "sim:h200", "--objective")
    exported = ("export", "moe", "--format", "vllm", "--output", "moe.json")

    assert run(*tuned, "time", "--all-sizes").exit_code == 0
    assert "moo: neither the number of a run" in run("export", "moo").stderr
    assert "moe:M=7: has no answer; there are moe:M=" in run("export", "moe:M=7").stderr
    assert run("export", "moe", "--workload", "moe:M=64").stdout.startswith("-DBLOCK_SIZE_M=16 ")
    assert run(*exported).exit_code == 0
    assert json.loads(Path("moe.json").read_text()) == {"64": ROW, "128": ROW}
    assert list(json.loads(run("export", "moe.toml:M=128", "--format", "vllm").stdout)) == ["128"]
    assert run(*tuned, "energy", "moe:M=64").exit_code == 0
    assert "has answers for energy, time; --objective chooses" in run(*exported).stderr
    assert "; --objective chooses" in run(*exported, "--objective", "edp").stderr
    assert run(*exported, "--objective", "energy").exit_code == 0
    assert list(json.loads(Path("moe.json").read_text())) == ["64"]
    Path("moe.cu").write_text(MOE + "// changed\n")
    assert run(*tuned, "time", "moe:M=64").exit_code == 0
    left_out = run(*exported, "--objective", "time")
    assert "moe:M=128: left out, as the source of moe has changed since" in left_out.stderr
    assert list(json.loads(Path("moe.json").read_text())) == ["64"]


def locked(name: str, objective: str = "time", **change: Any) -> LockedAnswer:
    key = load_kernel_file(Path("moe.toml")).fingerprint
    part = LockedWorkload(name, 1, key, {**ROW, **change})
    return LockedAnswer((part,), "NVIDIA H200", "580", objective, Quantity(1e-3), "2026-11-29", "0.2.0")


@pytest.mark.usefixtures("folder")
def test_answers_come_from_a_lock_file(monkeypatch: pytest.MonkeyPatch) -> None:
    """All of one that is named, or those of a kernel of one in force; what has changed since is left out."""
    other = replace(locked("moe:M=64"), workload=(LockedWorkload("soft:n=1", 1, "c0ffee", {}),))
    both, all_of = [locked("moe:M=64"), locked("moe:M=128")], ("--lock", "tuner.lock", "--kernel", "moe.toml")
    says: list[tuple[list[LockedAnswer], tuple[str, ...], str]] = [
        ([], (), "--lock tuner.lock: has no answer of a kernel that is here"),
        (both, ("soft",), "--lock tuner.lock: has no answer of soft"),
        (both, ("7", "moe"), "--lock tuner.lock: has answers of kernels; leave out other RUNs"),
        (both, ("--max-slowdown", "5%"), "and --max-slowdown"),
        ([*both, locked("moe:M=64", "energy")], (), "has answers for energy, time; --objective chooses"),
        (both, ("--objective", "edp"), "has answers for time; --objective chooses"),
        ([locked("moe:M=64", num_warps=8)], (), "num_warps"),
        ([locked("moe:M=64", "")], (), "objective is ''"),
        ([other], (), "has no answer of a kernel that is here"),
    ]
    for answers, words, message in says:
        Path("tuner.lock").write_text(written(answers))
        refused = run("export", *words, "--format", "vllm", *all_of)
        assert refused.exit_code == 2, refused.output
        assert message in refused.stderr
    Path("tuner.lock").write_text(written([*both, other]))
    done = run("export", "--format", "vllm", *all_of)
    assert json.loads(done.stdout) == {"64": ROW, "128": ROW}
    assert "tuner.lock: is a lock file; --lock tuner.lock reads it" in run("export", "tuner.lock").stderr
    assert "left out: " in done.stderr
    assert "soft:n=1 at a batch of 1 on NVIDIA H200 for time: the kernel is not here" in done.stderr
    monkeypatch.setenv("TUNER_LOCK", "tuner.lock")
    assert list(json.loads(run("export", "moe.toml:M=64", "--format", "vllm").stdout)) == ["64"]
    results = json.loads(run("export", "moe.toml:M=64", "--format", "t4").stdout)["results"]
    assert [one["configuration"] for one in results] == [ROW]
    Path("moe.cu").write_text(MOE + "// changed\n")
    assert "left out: " in run("export", "moe.toml", "--format", "vllm").stderr
    monkeypatch.setenv("TUNER_LOCK_FROZEN", "1")
    assert "Error: " + str(Path("tuner.lock").absolute()) in run("export", "moe.toml").stderr


# --- Configurations of Triton.


def configs_of(text: str, monkeypatch: pytest.MonkeyPatch) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """What is in the list, with a module in the place of Triton that notes what it is given."""
    triton, language = ModuleType("triton"), ModuleType("triton.language")
    noted: Any = triton
    noted.Config, noted.language = lambda constants, **options: (constants, options), language
    typing.cast("Any", language).float16 = "the type"
    monkeypatch.setitem(sys.modules, "triton", triton)
    monkeypatch.setitem(sys.modules, "triton.language", language)
    module: dict[str, Any] = {}
    exec(compile(text, "configs.py", "exec"), module)  # noqa: S102 - what was written is what is tested
    found: list[tuple[dict[str, Any], dict[str, Any]]] = module["configs"]
    return found


def test_configurations_of_triton(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is listed once; options have their names, and a text may be a type."""
    told = {"BLOCK": 64, "kind": "tl.float16", "form": "a'\"\\", "enable_fp_fusion": True}
    options = {"num_warps": 8, "num_stages": 2, "num_ctas": 1}
    runs = [
        answer("soft:n=1", {"BLOCK": 64}, {**told, **options}),
        answer("soft:n=2\n]", {"BLOCK": 64}, {**told, **options}),
        answer(
            "soft:n=3", {"BLOCK": 64}, {"fast": True, "enable_fp_fusion": False, **options, "maxnreg": 96}
        ),
    ]

    assert configs_of(triton_configs(runs), monkeypatch) == [
        ({"BLOCK": 64, "kind": "the type", "form": "a'\"\\"}, options),
        ({"fast": True, "enable_fp_fusion": False}, {**options, "maxnreg": 96}),
    ]


@pytest.mark.parametrize(
    ("runs", "words"),
    [
        ([answer("a:n=1", ROW)], "a:n=1: is not known to launch one function of Triton"),
        ([answer("a:n=1", ROW, {"x y": 1})], "'x y' is no name of a parameter"),
        (
            [answer("a:n=1", ROW, ROW), answer("b:n=1", ROW, ROW, entry="other")],
            "is of one function; these runs launch moe, other",
        ),
    ],
)
def test_what_triton_does_not_take_is_refused(runs: list[ExportedRun], words: str) -> None:
    """Another language, and names that no function has."""
    with pytest.raises(InputError, match=words):
        triton_configs(runs)


@given(
    st.dictionaries(st.text(max_size=5), st.text(max_size=8) | st.integers() | st.booleans()),
    st.text(max_size=8),
)
def test_what_is_read_is_what_was_written(values: dict[str, Any], name: str) -> None:
    """Whatever names and values a document has: the module holds them, or they are refused."""
    try:
        text = triton_configs([answer(f"a{name}", {}, values)])
    except InputError:
        assert not all(key.isidentifier() for key in values)
        return
    told = {key: value for key, value in values.items() if (key, value) != ("enable_fp_fusion", True)}
    with pytest.MonkeyPatch.context() as patch:
        ((constants, options),) = configs_of(text, patch)
    assert {**constants, **options} == told
