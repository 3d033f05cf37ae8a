"""Formats of other tools: safe texts of values, T1, T4, and what exports hold."""

import contextlib
import copy
import json
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tuner.model.errors import InputError
from tuner.model.plan import Configuration
from tuner.model.trial import Status
from tuner.recordings.exchange.build_files import flags, header, notes, values_of, wisdom
from tuner.recordings.exchange.exported_run import (
    ExportedRun,
    ExportedTrial,
    results_document,
    run_of_document,
    run_of_space,
)
from tuner.recordings.exchange.t1_t4 import kernel_of_t1, results_of, space_of_t4
from tuner.recordings.files import RecordingFile, write
from tuner.recordings.values import RecordedSpace
from tuner.system.untrusted.build_texts import define_words

DATA = Path(__file__).parent / "data" / "exchange"


def document(name: str) -> Any:
    return json.loads((DATA / name).read_text())


def trial(time_s: float, energy_j: float | None = None, **values: Any) -> ExportedTrial:
    return ExportedTrial((Configuration(values),), Status.OK, "", time_s, energy_j, 0.1)


def run_on(
    device: str, *trials: ExportedTrial, objective: str = "time", name: str = "axpy:N=64,M=8"
) -> ExportedRun:
    return ExportedRun(device, objective, (name,), trials, trials[0], (64, 8))


H200 = run_on(
    "NVIDIA H200",
    trial(1e-3, 2.0, P=4, fast=True),
    trial(1.02e-3, P=2, fast=False),
    trial(2e-3, P=1, fast=True),
)
A100 = run_on("NVIDIA A100", trial(3e-3, P=8, fast=True))


# --- values ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("[16, 32]", (16, 32)),
        ("[i for i in range(3,9,2)]", (3, 5, 7)),
        ("[2**i for i in range(3)]", (1, 2, 4)),
        ("[1, 2] + list(range(32, 97, 32))", (1, 2, 32, 64, 96)),
        ("[16*i+1 for i in [1, 2] if i != 2]", (17,)),
        ("range(2)", (0, 1)),
        ("['row', \"column\"]", ("row", "column")),
        ("[True, False]", (True, False)),
        ("[-1.5, 4 // 2]", (-1.5, 2)),
        ([1, "a"], (1, "a")),
    ],
)
def test_texts_of_values(text: object, values: tuple[Any, ...]) -> None:
    """All forms that are in use are read."""
    assert values_of(text) == values


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os').system('true')",
        "[__import__('os')]",
        "[i for i in ().__class__.__base__.__subclasses__()]",
        "[open('/etc/passwd').read()]",
        "list(map(int, '12'))",
        "[i for i in range(10**9)]",
        "[9**9**9]",
        "[2**65]",
        "[1 / 0]",
        "[[1]]",
        "[lambda: 1]",
        "[i for i in range(2) for j in range(2)]",
        "[(x := 1)]",
        "[1] * 9",
        "range(1, 2, 0)",
        "[",
        "[]",
        "[None]",
        "-" * 5000 + "1",
        "[" * 3000,
        5,
        "[f'{1}']",
    ],
)
def test_texts_that_are_no_lists_are_refused(text: object) -> None:
    """Nothing of a text is run: what is not of a known form is an error."""
    with pytest.raises(ValueError, match=r".+"):
        values_of(text)


@settings(max_examples=80, deadline=None)
@given(st.text("[]()0123456789+*/%-,. irangeforlst=<>!'_", max_size=40))
def test_any_text_of_values_is_read_or_refused(text: str) -> None:
    """No other error than that of a wrong value comes out."""
    with contextlib.suppress(ValueError):
        assert values_of(text)


# --- T1 --------------------------------------------------------------------------------------------


def test_a_t1_file_is_a_kernel_file() -> None:
    """Parameters, conditions, sizes, divisors, defaults and arguments are taken over, the rest is noted."""
    kernel = kernel_of_t1(document("axpy.json"), "", "src/axpy.cu")
    assert kernel.name == "my-axpy"
    for line in (
        'source = "src/axpy.cu"',
        'options = ["--use_fast_math"]',
        "sizes.X = [1024]",
        'x = "in float32[(X + 7) * Y] = uniform(0, 2.0)"',
        'y = "inout float32[X * Y] = constant(1.0)"',
        'a = "float32 = 0.5"',
        "block_size_y = [1, 2, 4, 8, 12, 16]",
        'rules = ["block_size_x * block_size_y <= 1024", "reach < 7 or block_size_x % 64 == 0"]',
        "reach = 5",
        'grid = ["ceil_div(X, (block_size_x))", "ceil_div(Y, (block_size_y))", "1"]',
        'block = ["block_size_x", "block_size_y", "1"]',
    ):
        assert line in kernel.toml
    assert [note.split(" ")[0] for note in kernel.notes] == ["Budget", "CompilerOptions:"]


def test_an_empty_option_is_none() -> None:
    """As suites of benchmarks write it where there is none."""
    changed = document("axpy.json")
    changed["KernelSpecification"]["CompilerOptions"] = [""]
    assert "options" not in kernel_of_t1(changed).toml


def test_a_constant_argument_is_a_symbol() -> None:
    """Memory of the kind constant is filled before the launch."""
    changed = document("axpy.json")
    changed["KernelSpecification"]["Arguments"].append(
        {
            "Name": "taps",
            "Type": "int32",
            "MemType": "Constant",
            "Size": 9,
            "FillType": "Random",
            "FillValue": 4,
        }
    )
    line = 'taps = "constant int32[9] = integers(0, 4)"'
    assert line in kernel_of_t1(changed).toml
    taken = kernel_of_t1(changed, "__global__ void axpy(float* x, float* y, float a, int* taps) {}")
    assert f'{line}\ntaps_argument = "inout int32[9] = integers(0, 4)"' in taken.toml


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        (("KernelSpecification", "Language"), "OpenCL", "Language is 'OpenCL'; only CUDA"),
        (("KernelSpecification", "KernelFile"), None, "KernelFile is None"),
        (("KernelSpecification", "ProblemSize"), "callable", "ProblemSize is 'callable'"),
        (("KernelSpecification", "GridDivX"), ["tile"], "GridDivX: 'tile' uses tile, which is no parameter"),
        (("KernelSpecification", "SharedMemory"), "much", "SharedMemory is 'much'"),
        (("KernelSpecification", "Arguments", 0, "Size"), "__import__('os')", "Arguments[0]: Size"),
        (
            ("KernelSpecification", "Arguments", 0, "Size"),
            "max(width)",
            "no parameter of numbers is called 'width'",
        ),
        (("KernelSpecification", "Arguments", 0, "Type"), "custom", "Type is 'custom'"),
        (("KernelSpecification", "Arguments", 0, "MemoryType"), "Local", "MemoryType is 'Local'"),
        (("KernelSpecification", "Arguments", 0, "AccessType"), "Never", "AccessType is 'Never'"),
        (
            ("ConfigurationSpace", "TuningParameters", 1, "Values"),
            "__import__('os').listdir()",
            "TuningParameters[1] (block_size_y): Values: ",
        ),
        (("ConfigurationSpace", "TuningParameters", 0, "Name"), "block_size_y", "no other parameter has"),
        (("ConfigurationSpace", "TuningParameters"), [], "TuningParameters is empty"),
        (("ConfigurationSpace", "Conditions", 0, "Expression"), "exec('x')", "Conditions[0]: Expression"),
    ],
)
def test_a_wrong_t1_file_names_its_key(path: tuple[Any, ...], value: object, words: str) -> None:
    """What is not supported, missing or not to be trusted is refused."""
    changed = document("axpy.json")
    inner = changed
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - its words are looked at below
        kernel_of_t1(changed)
    assert words in str(caught.value)


# --- T4 --------------------------------------------------------------------------------------------


def test_t4_results_are_a_space() -> None:
    """Times of runs, or as measurements in units of their own; every invalidity has its status."""
    space = space_of_t4(document("results.json"), "kernel")
    statuses = [measurement.status for measurement in space.trials.values()]
    times = [measurement.makespan_s for measurement in space.trials.values()]
    assert times == pytest.approx([3e-3, 1.5e-3, None, None, None, None])
    assert statuses == [
        *(Status.OK, Status.OK, Status.COMPILE_ERROR),
        *(Status.LAUNCH_ERROR, Status.WRONG_ANSWER, Status.TIMEOUT),
    ]
    assert space.workloads[0].tunables == {"width": (16, 32, 64), "layout": ("row", "column")}


@pytest.mark.parametrize(
    ("unit", "in_ms"), [("s", 1e3), ("milliseconds", 1.0), ("us", 1e-3), ("nanoseconds", 1e-6)]
)
def test_t4_times_have_the_unit_that_the_file_states(unit: str, in_ms: float) -> None:
    """Two runs of 2 and 4 ms are the same trial in any unit: its mean, its spread and its window."""
    stated = document("results.json")
    stated["metadata"]["timeunit"] = unit
    stated["results"][0]["times"]["runtimes"] = [2.0 / in_ms, 4.0 / in_ms]
    trial = next(iter(space_of_t4(stated, "kernel").trials.values()))
    times_s = (trial.makespan_s, trial.makespan_spread_s, trial.window_s)
    assert times_s == pytest.approx((3e-3, 2**0.5 * 1e-3, 6e-3))


def stored(space: RecordedSpace, path: Path) -> RecordedSpace:
    write(path, [space])
    return RecordingFile(path).space(space.names)


def test_t4_comes_back_as_it_was(tmp_path: Path) -> None:
    """Configuration, status and time survive T4, recording, T4; our own files do completely."""
    first = results_of(run_of_space(stored(space_of_t4(document("results.json"), "k"), tmp_path / "a.zip")))
    again = results_of(run_of_space(stored(space_of_t4(first, "k"), tmp_path / "b.zip")))
    assert again == first
    for before, after in zip(document("results.json")["results"], first["results"], strict=True):
        assert set(after) >= {"configuration", "times", "invalidity", "correctness"}
        assert after["configuration"] == before["configuration"]
        assert after["invalidity"] == before["invalidity"]
    assert first["schema_version"] == "1.0.0"
    assert [one["times"] for one in first["results"][:3]] == [{"runtimes": [3.0]}, {"runtimes": [1.5]}, {}]


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("configuration", {"width": 1}, "results[0].configuration has no layout"),
        ("configuration", {"width": [1], "layout": "row"}, "results[0].configuration: width is [1]"),
        ("invalidity", "maybe", "results[0]: invalidity is 'maybe'"),
        ("times", {}, "a correct result needs times.runtimes"),
        ("times", {"runtimes": [-1]}, "runtimes is [-1]"),
        ("configuration", {"width": 64, "layout": "row"}, "twice"),
    ],
)
def test_wrong_t4_results_name_their_key(key: str, value: object, words: str) -> None:
    """The message has the number of the result."""
    changed = copy.deepcopy(document("results.json"))
    changed["results"][0][key] = value
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - its words are looked at below
        space_of_t4(changed, "k")
    assert words in str(caught.value)


# --- exports ---------------------------------------------------------------------------------------


def test_flags_are_for_a_shell() -> None:
    """One run is a line; of several workloads each stands under its name, which is no option either."""
    assert flags([H200]) == "-DP=4 -Dfast=1\n"
    named = run_on("G -ccbin /evil", trial(1.0, taps="-1,0,1"), name="b:N=1")
    assert flags([H200, named]) == (
        "# axpy:N=64,M=8 on NVIDIA_H200 for time\n-DP=4 -Dfast=1\n"
        "# b:N=1 on G_-ccbin_/evil for time\n-Dtaps=-1\\,0\\,1\n"
    )
    assert any("Makefile" in one for one in notes([named]))
    with pytest.raises(InputError, match="no answer"):
        flags([ExportedRun("G", "time", ("a",), (), None)])


HOSTILE = (
    *("1 -ccbin /tmp/evil -DW=1", "$(touch made)", "`touch made`", '"', "'", "1\n-ccbin x", "1\t2", "a;b"),
    *(
        "a|b",
        "a&b",
        "a>b",
        "*",
        "?",
        "[ab]",
        "{a,b}",
        "~root",
        "a\\b",
        "a#b",
        "!1",
        "f(1)",
        "größe",
        "a\u00a0b",
    ),
)


@pytest.mark.parametrize("value", HOSTILE)
def test_what_a_shell_reads_otherwise_is_no_flag(value: str) -> None:
    """Quotes do not survive ``$(...)``, and nvcc has a shell of its own: the value is a header's."""
    with pytest.raises(InputError, match=r"(?s)V: its value .* --format header"):
        flags([run_on("G", trial(1.0, V=value))])
    with pytest.raises(InputError, match="is no name of a macro"):
        flags([run_on("G", trial(1.0, None, **{f"V{value}": 1}))])


@pytest.mark.parametrize(
    "option",
    ["-ccbin=/evil", "--run", "-Xcompiler=-B/evil", "--options-file=o", "-I/evil", "-o=x", "evil.cu"],
)
def test_an_option_that_no_kernel_may_have_is_no_flag(option: str) -> None:
    """A record of a build may come from anybody: nvcc starts, reads and writes nothing that it names."""
    record: Any = {"macros": {"V": "2"}, "options": ["--maxrregcount=32", option]}
    named = replace(run_on("G", trial(1.0, V=2)), expanded=(record,))
    with pytest.raises(InputError, match=rf"{re.escape(repr(option))}.* --format header"):
        flags([named])
    record["options"] = ["--maxrregcount=32"]
    assert flags([named]) == "-DV=2 --maxrregcount=32\n"


@given(st.text(max_size=8), st.text(max_size=8) | st.integers() | st.booleans() | st.floats())
def test_words_for_a_shell_mean_themselves(name: str, value: object) -> None:
    """Whatever a tunable is called and has for a value: one word, of letters that nobody reads otherwise."""
    with contextlib.suppress(InputError):
        (word,) = define_words({name: value})
        assert re.fullmatch(r"-D[A-Za-z_][A-Za-z0-9_]*=([A-Za-z0-9_@%+=:./-]|\\,)*", word, re.ASCII)


def test_nvcc_takes_the_words_whole(tmp_path: Path) -> None:
    """A comma in a value stays in its value, by a real nvcc that a real shell starts."""
    if shutil.which("nvcc") is None:
        pytest.skip("no nvcc")
    (tmp_path / "tuned").write_text(flags([run_on("G", trial(1.0, taps="-1,0,1", P=4, fast=True))]))
    (tmp_path / "k.cu").write_text("int found[] = {taps, P, fast};\n")
    command = "nvcc $(cat tuned) -E k.cu"
    done = subprocess.run(["sh", "-c", command], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert "int found[] = {-1,0,1, 4, 1};" in done.stdout


@pytest.mark.parametrize(
    ("target", "value"), [((), 4), (("-DTARGET_NVIDIA_H200",), 4), (("-DTARGET_NVIDIA_A100",), 8)]
)
def test_a_header_chooses_by_gpu(tmp_path: Path, target: tuple[str, ...], value: int) -> None:
    """It compiles without warnings about macros nobody defined."""
    (tmp_path / "tuned.h").write_text(header([H200, A100]))
    (tmp_path / "main.c").write_text(
        f'#include "tuned.h"\n#if P != {value}\n#error P\n#endif\nint x = P + fast;\n'
    )
    command = [
        "g++",
        "-xc",
        "-Wall",
        "-Wundef",
        "-Werror",
        *target,
        "-fsyntax-only",
        str(tmp_path / "main.c"),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_header_of_several_workloads_prefixes_names() -> None:
    """Two answers of one GPU for one workload are refused."""
    other = run_on("NVIDIA H200", trial(1.0, P=2), name="scan-lf:N=8")
    assert "#define scan_lf_N_8_P 2\n" in header([H200, other])
    with pytest.raises(InputError, match="two answers"):
        header([H200, run_on("NVIDIA H200", trial(1.0, P=2, fast=True))])


def test_a_results_file_has_the_layout_of_kernel_tuner() -> None:
    """It keeps what is within 3 % of the best, times in milliseconds."""
    found = results_document([H200, A100])
    assert found["tunable_parameters"] == ["P", "fast"]
    assert [(one["device_name"], one["problem_size"], one["time"]) for one in found["data"]] == [
        ("NVIDIA_H200", "64x8", 1.0),
        ("NVIDIA_H200", "64x8", 1.02),
        ("NVIDIA_A100", "64x8", 3.0),
    ]
    assert found["version_number"] == "1.0"
    with pytest.raises(InputError, match="one kernel and one objective"):
        results_document([H200, run_on("G", trial(1.0, 1.0, P=1), objective="energy")])


def test_kernel_tuner_reads_its_results_file(tmp_path: Path) -> None:
    """By its own reader, where it is installed."""
    integration = pytest.importorskip("kernel_tuner.integration")
    path = tmp_path / "results.json"
    path.write_text(json.dumps(results_document([H200, A100])))
    best = integration.TuneResults(str(path)).get_best_config("NVIDIA_A100", (64, 8))
    assert best["P"] == 8


def test_wisdom_is_a_line_per_configuration() -> None:
    """Joules are comments, and times milliseconds."""
    energy = ExportedRun("G", "energy", H200.workloads, H200.trials, H200.best, (64, 8))
    lines = wisdom([energy]).splitlines()
    assert json.loads(lines[0]) == {
        "version": "1.0",
        "objective": "time",
        "tunable_parameters": ["P", "fast"],
        "key": "axpy",
    }
    rows = [json.loads(line) for line in lines[1:] if not line.startswith("#")]
    assert [(row["config"], row["problem_size"], row["time"]) for row in rows] == [
        ([4, True], [64, 8], 1.0),
        ([2, False], [64, 8], 1.02),
        ([1, True], [64, 8], 2.0),
    ]
    assert "# for energy: P=4 fast=1, 2 J" in lines
    with pytest.raises(InputError, match="of one kernel"):
        wisdom([H200, run_on("G", trial(1.0, P=1), name="other:N=1")])


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"workloads": 3}, "workloads is 3"),
        ({"device": {}}, "device: name is missing"),
        ({"objective": ""}, "objective is ''"),
        ({"best": {"configurations": {}}}, "best: axpy is missing"),
        ({"best": {"configurations": {"axpy": {"P": [1]}}}}, "best: P is [1]"),
        ({"trials": [{"configurations": {"axpy": {}}, "status": "odd"}]}, "trials[0]: status is 'odd'"),
    ],
)
def test_a_document_that_is_none(changed: dict[str, Any], words: str) -> None:
    """The message has the key."""
    whole = {"workloads": [{"name": "axpy"}], "device": {"name": "G"}, "objective": "time", "best": None}
    assert run_of_document(whole, "d.json").best is None
    with pytest.raises(InputError) as caught:
        run_of_document(whole | changed, "d.json")
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("P", one) for one in ("1\n#include <evil>", "1 /* x", "1 // x", "*/", "1 \\", "a\\b", "1 ??/")),
        *(("P", one) for one in ("# x", '"', "'", 'R"x(', '"a', "%:include <x>", "1\r2", "a\u2028b")),
        *((one, 1) for one in ("P Q", "P(x)", "1P", "if", "int", "defined", "__CUDA_ARCH__", "größe", "")),
    ],
)
def test_a_header_defines_what_it_says_and_no_more(name: str, value: Any) -> None:
    """What would leave its line, begin a comment or a directive, or is no name of a program is refused."""
    with pytest.raises(InputError, match="cannot be a macro"):
        header([run_on("G", trial(1.0, None, **{name: value}))])


@settings(max_examples=30, deadline=None)
@given(st.text("aR1\"'()?/*\\#%:<> ,\n", max_size=7), st.text("P_ 1(", min_size=1, max_size=3))
def test_any_header_defines_its_names_only(value: str, name: str) -> None:
    """The preprocessor finds the guard and the tunables, and nothing left over."""
    try:
        text = header([run_on("G", trial(1.0, None, **{name: value}, zlast=2))])
    except InputError:
        return
    command = ["g++", "-xc++", "-std=c++14", "-w", "-E", "-dD", "-P", "-undef", "-nostdinc", "-"]
    done = subprocess.run(command, input=text, text=True, capture_output=True, check=True)
    told = [line.split(maxsplit=2)[1] for line in done.stdout.splitlines() if line]
    assert told[told.index("TUNED_AXPY_N_64_M_8_H") :] == ["TUNED_AXPY_N_64_M_8_H", name, "zlast"]


def test_two_names_that_become_one_are_refused() -> None:
    """Workloads that differ in signs only have one prefix, and their macros would be one."""
    with pytest.raises(InputError, match="a_b_P would be defined twice"):
        header([run_on("G", trial(1.0, P=1), name="a-b"), run_on("G", trial(1.0, P=2), name="a_b")])


def test_what_is_no_macro_is_named_apart() -> None:
    """Block sizes and template arguments are of the launch: no flag, and in a header under another name."""
    run = run_on("G", trial(1.0, vec=False, block=64, W=2, stream_priority=1), name="triad")
    record: Any = {"source": None, "macros": {"W": "2"}, "entries": ["triad<false>"], "parameters": ["block"]}
    told = replace(run, expanded=(record,))
    assert flags([told]) == "-DW=2\n"
    assert notes([told]) == ["triad: launch triad<false> with block=64"]
    without: Any = {**record, "macros": {}}
    bare = replace(run, expanded=(without,))
    assert (flags([bare]), notes([bare])) == ("\n", ["triad: no flags; launch triad<false> with block=64"])
    assert "#define W 2\n#define TUNED_vec 0\n#define TUNED_block 64\n" in header([told])
    assert "stream_priority" not in flags([run])
    assert "#define TUNED_stream_priority 1\n" in header([run])


def test_comments_stay_in_their_lines() -> None:
    """Names of devices and kernels are texts of others."""
    odd = run_on("G\n*/ int x;", trial(1.0, 2.0, P=1), objective="energy", name="k")
    assert "*/ int" not in header([odd])
    odd = run_on("G", trial(1.0, 2.0, P="a\nb"), objective="energy", name="k")
    assert all(line[0] in "{#" for line in wisdom([odd]).splitlines())
