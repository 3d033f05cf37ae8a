"""Options of NVRTC that a kernel may have, whatever way it comes in, and what the others would have done."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.compiler.compiler import Compiler
from tuner.compiler.nvrtc import library_files
from tuner.kernel_files.catalog import load_kernel_file
from tuner.kernel_tuner.translation import read_call
from tuner.model.errors import CompileError, InputError, TunerError
from tuner.model.plan import Source, Stage
from tuner.system.processes import Child
from tuner.system.untrusted.compiler_options import RefusedOptionError, check_name_expression, check_options

ALLOWED = [
    ("-DN=4",),
    ("-D", "N=4"),
    ("--define-macro=F(a, b)=a + b",),
    ("-UN",),
    ("--undefine-macro", "N"),
    ("--std=c++17",),
    ("-std=c++20",),
    ("--use_fast_math",),
    ("-use_fast_math",),
    ("--ftz=true", "--prec-div=false", "--prec-sqrt=false", "--fmad=true"),
    ("--maxrregcount=64",),
    ("-maxrregcount", "64"),
    ("--restrict", "--extra-device-vectorization", "-default-device"),
    ("-G", "-lineinfo", "-w"),
    ("--diag-suppress=177,550",),
    ("--ptxas-options=-v", "-Xptxas", "-O2", "--ptxas-options=-dlcm=cg"),
    ("--ptxas-options=--maxrregcount=32",),
    ("--split-compile=2", "--minimal", "--dopt=on"),
]
REFUSED = [
    (("--create-pch=/tmp/x",), "precompiled headers"),
    (("-create-pch", "/x"), "precompiled headers"),
    (("--pch",), "precompiled headers"),
    (("--use-pch=x",), "precompiled headers"),
    (("--time=/tmp/x",), "writes a file"),
    (("-time",), "writes a file"),
    (("--fdevice-time-trace=x",), "writes a file"),
    (("--options-file=x",), "reads options from a file"),
    (("-optf", "x"), "reads options from a file"),
    (("--pre-include=/etc/passwd",), "reads a file"),
    (("-include", "/etc/passwd"), "reads a file"),
    (("-Xcudafe=--create_pch=/tmp/x",), "hands a text"),
    (("--ptxas-options=--compiler-stats-file=/tmp/x",), "writes a file"),
    (("-Xptxas", "-o=/tmp/x"), "writes a file"),
    (("--ptxas-options=-v,-o=x",), "one option of ptxas"),
    (("--ptxas-options=-v -o=x",), "one option of ptxas"),
    (("--gpu-architecture=sm_90",), "that of the device"),
    (("-dlto",), "no code that a GPU can load"),
    (("-O3",), "--ptxas-options=-O3"),
    (("--maxregcount=64",), "did you mean 'maxrregcount'"),
    (("--use-fast-math",), "did you mean 'use_fast_math'"),
    (("--frobnicate",), "not known to be harmless"),
    (("--fmad=off",), "'off' is no value"),
    (("-DX=1\n#include </etc/passwd>",), "line break"),
    (("@x",), "does not begin with -"),
    ((" --create-pch=x",), "does not begin with -"),
    (("-D",), "lacks its value"),
    (("-I/etc",), "leads out of the folders"),
    (("--include-path", "/etc"), "leads out of the folders"),
    (("-I", "relative"), "leads out of the folders"),
    (("-w",) * 300, "at most 256"),
    (("-DX=" + "1" * 5000,), "more than 4000 characters"),
]
ONCE = 'extern "C" __global__ void once(int* p) { *p = 1; }\n'


@pytest.mark.parametrize("options", ALLOWED, ids=" ".join)
def test_usual_options_are_allowed(options: tuple[str, ...]) -> None:
    """What changes the code, and nothing else, passes in all its spellings."""
    check_options(options)


@pytest.mark.parametrize(("options", "why"), REFUSED, ids=lambda value: str(value)[:40])
def test_others_are_refused_with_the_reason(options: tuple[str, ...], why: str) -> None:
    """The message says what the option would do, or what is known."""
    with pytest.raises(RefusedOptionError) as caught:
        check_options(options)
    assert why in str(caught.value)


@given(st.text(max_size=12), st.sampled_from(["-", "--", ""]), st.sampled_from(["", "=", "=x"]))
def test_only_listed_names_pass(name: str, dashes: str, value: str) -> None:
    """Whatever is made up is refused, or begins with a name of the list; nothing else is raised."""
    option = f"{dashes}{name}{value}"
    try:
        check_options([option])
    except RefusedOptionError:
        return
    assert option.lstrip("-").split("=")[0] in {"G", "w", "v", "dc", "dw", "ewp", "restrict"} or option[
        :2
    ] in {
        "-D",
        "-U",
    }


def test_include_folders_stay_in_those_of_the_kernel(tmp_path: Path) -> None:
    """-I may name a folder of the include paths, and what is below it."""
    (tmp_path / "inc/deep").mkdir(parents=True)
    (tmp_path / "inc/out").symlink_to("/etc")
    folders = [str(tmp_path / "inc")]
    check_options([f"-I{tmp_path}/inc/deep"], folders)
    for outside in (f"-I{tmp_path}", f"-I{tmp_path}/inc/../..", f"-I{tmp_path}/inc/out"):
        with pytest.raises(RefusedOptionError, match="leads out"):
            check_options([outside], folders)


def test_a_name_expression_is_one_line() -> None:
    """NVRTC compiles it: a line break would begin a line of the source."""
    check_name_expression("scan<4, (N > 3)>")
    with pytest.raises(RefusedOptionError, match="line break"):
        check_name_expression('k\n#include "/etc/passwd"')


# --- every way in --------------------------------------------------------------------------------

KERNEL = """\
[kernel]
name = "once"
source = "once.cu"
entry = "once"
options = {options}
[problem]
name = "consistent"
sizes.N = [4]
[arguments]
p = "out int32[N]"
[tunables]
X = {values}
[launch]
grid = 1
block = "32"
"""


@pytest.mark.parametrize(
    ("options", "values"),
    [
        ('["--create-pch={victim}"]', "[1]"),
        ('["{{X}}"]', '["--create-pch={victim}"]'),
        ('["--{{X}}={victim}"]', '["create-pch"]'),
        ('["-D", "A=1", "--{{X}}"]', '["time={victim}"]'),
        ('["-{{X}}"]', '["Xcudafe=--create_pch={victim}"]'),
    ],
)
def test_a_kernel_file_names_file_key_and_option(tmp_path: Path, options: str, values: str) -> None:
    """Before and after expressions have their values."""
    victim = tmp_path / "victim"
    text = KERNEL.format(options=options, values=values).replace("{{", "{").replace("}}", "}")
    path = tmp_path / "kernel.toml"
    path.write_text(text.replace("{victim}", str(victim)))
    (tmp_path / "once.cu").write_text(ONCE)
    with pytest.raises(InputError, match=r"kernel\.toml: \[kernel\] options: option '-") as caught:
        _plan(path)
    assert caught.value.exit_code == 2
    assert not victim.exists()


def _plan(path: Path) -> None:
    kernel = load_kernel_file(path)
    workload = kernel.workload({"N": 4})
    kernel.plan(workload, next(iter(kernel.space(workload))))


def test_a_folder_beside_the_kernel_file_becomes_an_include_path(tmp_path: Path) -> None:
    """So its headers count as part of the kernel."""
    (tmp_path / "inc").mkdir()
    (tmp_path / "inc/a.h").write_text("#define A 1\n")
    (tmp_path / "once.cu").write_text('#include "a.h"\n' + ONCE)
    path = tmp_path / "kernel.toml"
    path.write_text(KERNEL.format(options='["-I", "inc"]', values="[1]"))
    before = load_kernel_file(path).fingerprint
    (tmp_path / "inc/a.h").write_text("#define A 2\n")
    assert load_kernel_file(path).fingerprint != before
    path.write_text(KERNEL.format(options='["-I.."]', values="[1]"))
    with pytest.raises(InputError, match="leads out of the folders"):
        load_kernel_file(path)


def test_kernel_tuners_options_pass_the_same_list() -> None:
    """Its usual ones pass, those that write are refused by name."""

    def call(options: list[str]) -> None:
        read_call("once", ONCE, 32, [np.zeros(1, np.int32)], {"block_size_x": [32]}, compiler_options=options)

    call(["-std=c++17", "-O3", "--use_fast_math", "-lineinfo", "-arch=sm_90", "-DN=3", "--ptxas-options=-v"])
    with pytest.raises(InputError, match="compiler_options: option '--create-pch"):
        call(["--create-pch=/tmp/victim"])


# --- with NVRTC ----------------------------------------------------------------------------------

WRITING = [
    ("--create-pch={victim}",),
    ("--time={victim}",),
    ("--fdevice-time-trace={victim}",),
    ("-Xcudafe=--create_pch={victim}",),
    ("--ptxas-options=--compiler-stats=time", "--ptxas-options=--compiler-stats-file={victim}"),
    ("--pch", "--pch-dir={folder}"),
]


@pytest.mark.parametrize("options", WRITING, ids=lambda options: options[-1][:28])
def test_what_writes_is_refused_by_compiler_and_child(tmp_path: Path, options: tuple[str, ...]) -> None:
    """A stage that no reader has looked at is refused twice, and its victim is as it was."""
    folder = tmp_path / "theirs"
    folder.mkdir()
    victim = folder / "victim"
    victim.write_text("precious")
    written = tuple(one.format(victim=victim, folder=folder) for one in options)
    stage = Stage("s", Source("a.cu", ONCE), "once", written, (1, 1, 1), (1, 1, 1), 0, ("p",))
    with Compiler("sm_90", tmp_path / "cache", jobs=1) as compiler:
        (result,) = compiler.compile([stage])
    assert isinstance(result, CompileError)
    with Child("tuner.compiler.nvrtc:CompileServer", str(library_files()[0])) as child:
        arguments = ("a.cu", ONCE, (), "once", ("--gpu-architecture=sm_90", *written))
        with pytest.raises(TunerError, match="option '"):
            child.call("compile", *arguments, timeout_s=60.0)
    assert [path.name for path in folder.iterdir()] == ["victim"]
    assert victim.read_text() == "precious"
