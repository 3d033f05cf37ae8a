"""What comes from outside: options of NVRTC, includes, and texts with control characters."""

import io
import json
import logging
import os
import re
import time
from pathlib import Path

import numpy as np
import pytest
from cli_process import tuner
from hostile_files import ESCAPES
from hypothesis import given
from hypothesis import strategies as st
from rich.table import Table

from tuner.compiler.compiler import CompiledStage, Compiler
from tuner.compiler.nvrtc import Output, confined, library_files, supported
from tuner.kernel_files.catalog import load_kernel_file
from tuner.kernel_tuner.translation import read_call
from tuner.kernel_tuner.tuning_call import say
from tuner.model.errors import CompileError, InputError, KernelFileError, TunerError
from tuner.model.plan import Source, Stage
from tuner.report.layout import PlainConsole
from tuner.system.logs import JsonFormatter, TextFormatter, entry
from tuner.system.processes import Child
from tuner.system.untrusted.compiler_options import RefusedOptionError, check_name_expression, check_options
from tuner.system.untrusted.includes import RefusedIncludeError, check_includes, included
from tuner.system.untrusted.reading import PlainFormatter, continued, escaped, plain, plain_line, shortened

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


# --- Texts from outside reach no terminal and no log with control characters; JSON has them, escaped.

HOSTILE = "".join(ESCAPES.values())
CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
FORGED = "done\n2026-01-31T12:00:00Z INFO job 3: forged"


@given(st.text())
def test_nothing_is_left_that_a_terminal_acts_on(text: str) -> None:
    """Whatever text; what is harmless stays as it is, and cleaning again changes nothing."""
    once = plain(text)
    assert not CONTROL.search(once)
    assert plain(once) == once
    assert "\n" not in plain_line(text)
    if text.isprintable() and not any(character in text for character in "\u200e\u200f\u061c"):
        assert once == text
    assert escaped(json.dumps(text)).isprintable()
    assert json.loads(escaped(json.dumps(text))) == text


def test_lines_and_tabs_stay() -> None:
    """In texts of several lines."""
    assert plain("a\tb\r\nc\n") == "a\tb\nc\n"
    assert plain("a\rb") == "a\ufffdb"
    assert plain("naïve µ 漢字 👩\u200d🔬") == "naïve µ 漢字 👩\u200d🔬"


def test_long_messages_are_cut() -> None:
    """A value of megabytes in an error fills no screen."""
    assert len(shortened("x" * 10**6)) < 5000
    assert shortened("a\n" * 10**4).endswith("[cut]")
    assert shortened("short\nlines") == "short\nlines"


@pytest.mark.parametrize("terminal", [True, False])
def test_a_console_prints_texts_without_their_escapes(terminal: bool) -> None:
    """In tables, styles and plain lines; no markup is taken out of them; colours of our own stay."""
    file = io.StringIO()
    console = PlainConsole(
        file=file, force_terminal=terminal, width=400, color_system="standard" if terminal else None
    )
    table = Table("name")
    table.add_row(f"[link=http://example.invalid]{HOSTILE}")
    console.print(table)
    console.print(f"{HOSTILE} [red]:smile:", style="bold", soft_wrap=True)
    text = re.sub(r"\x1b\[[0-9;]*m", "", file.getvalue())
    assert not CONTROL.search(text)
    assert "[link=http" in text
    assert "[red]:smile:" in text
    assert ("\x1b[" in file.getvalue()) == terminal


@pytest.mark.parametrize("formatter", [TextFormatter(), PlainFormatter("%(message)s")])
def test_a_log_has_one_entry_for_one_message(formatter: logging.Formatter) -> None:
    """A line break in a name begins no entry; tracebacks are indented, too."""
    record = logging.LogRecord("x", logging.INFO, "x.py", 1, "%s", (FORGED + HOSTILE,), None)
    first, *others = formatter.format(record).split("\n")
    assert "done" in first
    assert all(line.startswith("    ") for line in others)
    assert not CONTROL.search(formatter.format(record))
    assert continued("a\nb") == "a\n    b"


def test_a_log_in_json_has_the_text_escaped() -> None:
    """One object on one line; the journal gets text without control characters but line breaks."""
    record = logging.LogRecord("x", logging.INFO, "x.py", 1, "%s", (FORGED + HOSTILE,), None)
    line = JsonFormatter().format(record)
    assert line.isprintable()
    assert json.loads(line)["message"] == FORGED + HOSTILE
    assert b"MESSAGE\n" in entry({"MESSAGE": plain(FORGED)})


@pytest.mark.parametrize("words", [("run",), ("kernels", "show"), ("show",), ("export",), ()])
def test_words_of_the_command_line_are_quoted_without_escapes(words: tuple[str, ...]) -> None:
    """In errors of this program and in click's own."""
    result = tuner(*words, HOSTILE if words else f"--x{HOSTILE}")
    assert result.exit_code == 2
    assert not CONTROL.search(result.output)


def test_results_as_kernel_tuner_prints_them(capsys: pytest.CaptureFixture[str]) -> None:
    """Names of parameters are those of the user, errors those of the compiler."""
    say(HOSTILE)
    assert not CONTROL.search(capsys.readouterr().out)


# --- What sources may include: their own headers and CUDA's; whatever is read is in the key of the cubin.

ONCE_INCLUDED = 'extern "C" __global__ void once(int* p) { *p = VALUE; }\n'
HIDDEN = "not for your eyes"

SPELLINGS = [
    '#include "{path}"',
    "#include <{path}>",
    '  #  include\t"{path}"',
    '/* */ #include "{path}"',
    '%:include "{path}"',
    '??=include "{path}"',
    '#inc\\\nlude "{path}"',
    '#inc??/\nlude "{path}"',
    '#/*x*/include/*\n*/"{path}"',
    '#\v\finclude "{path}"',
    '#if __has_include("{path}")\n#endif',
    "#if __has_include ( <{path}>)\n#endif",
    '#define HEADER "{path}"\n#include HEADER',
    "#define TEXT(x) #x\n#include TEXT({path})",
    'const char* s = R"(\n/*)";\n#include "{path}"\n/* */',
    '/*\n// */ #include "{path}"',
    '//\r#include "{path}"',
    '#include_next "{path}"',
]


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_a_path_out_of_the_kernel_is_found_in_every_spelling(spelling: str) -> None:
    """Absolute, climbing, and made by a macro."""
    for path in ("/etc/passwd", "../../secret.h"):
        with pytest.raises(RefusedIncludeError, match=r"a\.cu, line \d+: "):
            check_includes("a.cu", spelling.format(path=path) + "\n", (), ())


@pytest.mark.parametrize(
    "text",
    [
        '// #include "/etc/passwd"\n',
        "#include <cuda_fp16.h>\n#include <cub/block/block_reduce.cuh>\n",
        '#include "beside.cuh"\n',
        "#ifndef __CUDACC_RTC__\n#include <vector>\n#endif\n",
        "#if defined(__has_include)\n#endif\n#define HAS(x) __has_include(x)\n",
        "#pragma unroll\n#define includes 3\n",
    ],
)
def test_usual_sources_pass(text: str) -> None:
    """Headers beside the source, of CUDA, and what only another compiler sees."""
    check_includes("a.cu", text, (("beside.cuh", "#define B 1\n"),), ())


def test_headers_are_followed(tmp_path: Path) -> None:
    """Within the include paths everything may be included, by paths relative to the header, too."""
    inc = tmp_path / "inc"
    (inc / "part").mkdir(parents=True)
    (inc / "a.h").write_text('#include "part/b.h"\n')
    (inc / "part/b.h").write_text('#include "../c.h"\n')
    (inc / "c.h").write_text('#include "a.h"\n')
    check_includes("a.cu", "#include <a.h>\n", (), [str(inc)])
    (inc / "c.h").write_text('#include "../secret.h"\n')
    (tmp_path / "secret.h").write_text(HIDDEN)
    with pytest.raises(
        RefusedIncludeError, match=r"c\.h, line 1: .* leads to .*secret\.h, out of the folders"
    ):
        check_includes("a.cu", "#include <a.h>\n", (), [str(inc)])
    (inc / "c.h").unlink()
    (inc / "c.h").symlink_to(tmp_path / "secret.h")
    with pytest.raises(RefusedIncludeError, match="leads to"):
        check_includes("a.cu", "#include <a.h>\n", (), [str(inc)])


@pytest.mark.parametrize(("odd", "says"), [("\0", "a null"), ("\udcff", "half a character")])
def test_what_a_compiler_sees_a_part_of_is_no_text(odd: str, says: str) -> None:
    """A null ends a text in C: what follows would be left out without a word."""
    for text, header in ((f"int a; {odd} int b;", ""), ("", f"int a; {odd}")):
        with pytest.raises(RefusedIncludeError, match=f"character 7 is {says}"):
            check_includes("a.cu", text, (("b.h", header),), ())


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    """Nor anything else that is no file."""
    os.mkfifo(tmp_path / "pipe.h")
    with pytest.raises(RefusedIncludeError, match="is not a file"):
        check_includes("a.cu", "#include <pipe.h>\n", (), [str(tmp_path)])


@given(st.text('#include<>"/*\\\n \r?=%:_hasn(', max_size=80))
def test_any_text_is_looked_at(text: str) -> None:
    """Nothing but names comes out, and a plain directive behind it is always seen."""
    assert all(isinstance(one.name, str) for one in included(text))
    assert '"' in text or "/*" in text or "/x" in {one.name for one in included(f'{text}\n#include "/x"\n')}


@pytest.mark.parametrize(
    "piece", ["#/*", "#/**/", '#include "', "#include <", "__has_include(", '//#include "a"', "#", "??/\n#"]
)
def test_looking_takes_time_with_the_length(piece: str) -> None:
    """A source of 64 KiB made to be slow is looked at within an eighth of a second of processor time."""
    text = piece * (2**16 // len(piece))
    before = time.process_time()
    included(text)
    assert time.process_time() - before < 1.0  # more than that, where a look were quadratic


def test_a_kernel_file_names_its_source(tmp_path: Path) -> None:
    """The message names file, key, source, line and the remedy."""
    (tmp_path / "k.cu").write_text('#include "/etc/hostname"\n' + ONCE_INCLUDED)
    (tmp_path / "kernel.toml").write_text(
        'kernel.name = "k"\nkernel.source = "k.cu"\nlaunch = { grid = 1, block = 32 }\n'
        '[arguments]\np = "out int32[4]"\n[tunables]\nVALUE = [1, 2]\n'
    )
    with pytest.raises(KernelFileError, match=r"\[kernel\] source: .*k\.cu, line 1: .*path from the root"):
        load_kernel_file(tmp_path / "kernel.toml")


@pytest.mark.parametrize("folder", ["/", "/etc", "/proc/self", "/home"])
def test_a_folder_of_the_system_holds_no_headers(tmp_path: Path, folder: str) -> None:
    """Include paths are those of headers."""
    (tmp_path / "k.cu").write_text(ONCE_INCLUDED)
    (tmp_path / "kernel.toml").write_text(
        f'kernel.name = "k"\nkernel.source = "k.cu"\nkernel.include_paths = ["{folder}"]\n'
        'launch = { grid = 1, block = 32 }\n[arguments]\np = "out int32[4]"\n[tunables]\nVALUE = [1, 2]\n'
    )
    with pytest.raises(InputError, match=r"holds no headers|holds more than"):
        load_kernel_file(tmp_path / "kernel.toml")


# --- with NVRTC ----------------------------------------------------------------------------------


def _stage(text: str, folders: tuple[str, ...] = (), digest: str = "") -> Stage:
    source = Source("once.cu", text, (), folders, digest)
    return Stage("s", source, "once", (), (1, 1, 1), (1, 1, 1), 0, ("p",))


def test_a_source_that_reads_elsewhere_is_not_compiled(tmp_path: Path) -> None:
    """Whatever way it came: the error holds no line of the file."""
    (tmp_path / "secret.h").write_text(HIDDEN)
    with Compiler("sm_90", tmp_path / "cache", jobs=1) as compiler:
        for spelling in SPELLINGS[:4]:
            (result,) = compiler.compile(
                [_stage(spelling.format(path=tmp_path / "secret.h") + "\n" + ONCE_INCLUDED)]
            )
            assert isinstance(result, CompileError)
            assert HIDDEN not in str(result)


@pytest.mark.skipif(not supported(), reason="this Linux kernel has no Landlock")
@pytest.mark.parametrize("spelling", ['#include "{path}"', '#define H "{path}"\n#include H'])
def test_a_child_reads_nothing_else(tmp_path: Path, spelling: str) -> None:
    """Not even where no look at the source has found it."""
    (tmp_path / "secret.h").write_text(HIDDEN)
    text = spelling.format(path=tmp_path / "secret.h") + "\n" + ONCE_INCLUDED
    with Child("tuner.compiler.nvrtc:CompileServer", str(library_files()[0])) as child:
        answer = child.call(
            "compile", "a.cu", text, (), "once", ("--gpu-architecture=sm_90",), timeout_s=60.0
        )
    assert isinstance(answer, Output)
    assert answer.cubin is None
    assert "Permission denied" in answer.log
    assert HIDDEN not in answer.log


@pytest.mark.skipif(not supported(), reason="this Linux kernel has no Landlock")
def test_a_confined_thread_writes_nothing_and_others_do(tmp_path: Path) -> None:
    """Errors come out of it; the process itself is free."""
    (tmp_path / "readable").write_text("x")
    assert confined((tmp_path / "readable").read_text, [str(tmp_path)]) == "x"
    for attempt in (
        lambda: (tmp_path / "new").write_text(""),
        lambda: (tmp_path / "readable").write_text(""),
    ):
        with pytest.raises(PermissionError):
            confined(attempt, [str(tmp_path)])
    assert (tmp_path / "readable").read_text() == "x"
    (tmp_path / "new").write_text("")


def test_a_changed_header_compiles_again(tmp_path: Path) -> None:
    """Of include paths, nested ones too, and of a toolkit, by size or time."""
    inc = tmp_path / "inc"
    inc.mkdir()
    (inc / "a.h").write_text('#include "b.h"\n')
    (inc / "b.h").write_text("#define VALUE 1\n")
    (tmp_path / "k.cu").write_text("#include <a.h>\n" + ONCE_INCLUDED)
    (tmp_path / "kernel.toml").write_text(
        'kernel.name = "k"\nkernel.source = "k.cu"\nkernel.include_paths = ["inc"]\n'
        'launch = { grid = 1, block = 32 }\n[arguments]\np = "out int32[4]"\n[tunables]\nother = [1, 2]\n'
    )

    def cubin() -> bytes:
        kernel = load_kernel_file(tmp_path / "kernel.toml")
        workload = kernel.workload({})
        plan = kernel.plan(workload, next(iter(kernel.space(workload))))
        with Compiler("sm_90", tmp_path / "cache", jobs=1) as compiler:
            (result,) = compiler.compile(plan.stages)
        assert isinstance(result, CompiledStage), result
        return result.cubin

    first = cubin()
    assert cubin() == first
    (inc / "b.h").write_text("#define VALUE 2\n")
    assert cubin() != first
