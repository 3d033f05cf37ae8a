"""What sources may include: their own headers and CUDA's; whatever is read is in the key of the cubin."""

import os
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.compiler.compiler import CompiledStage, Compiler
from tuner.compiler.nvrtc import Output, confined, library_files, supported
from tuner.kernel_files.catalog import load_kernel_file
from tuner.model.errors import CompileError, InputError, KernelFileError
from tuner.model.plan import Source, Stage
from tuner.system.processes import Child
from tuner.system.untrusted.includes import RefusedIncludeError, check_includes, included

ONCE = 'extern "C" __global__ void once(int* p) { *p = VALUE; }\n'
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
    (tmp_path / "k.cu").write_text('#include "/etc/hostname"\n' + ONCE)
    (tmp_path / "kernel.toml").write_text(
        'kernel.name = "k"\nkernel.source = "k.cu"\nlaunch = { grid = 1, block = 32 }\n'
        '[arguments]\np = "out int32[4]"\n[tunables]\nVALUE = [1, 2]\n'
    )
    with pytest.raises(KernelFileError, match=r"\[kernel\] source: .*k\.cu, line 1: .*path from the root"):
        load_kernel_file(tmp_path / "kernel.toml")


@pytest.mark.parametrize("folder", ["/", "/etc", "/proc/self", "/home"])
def test_a_folder_of_the_system_holds_no_headers(tmp_path: Path, folder: str) -> None:
    """Include paths are those of headers."""
    (tmp_path / "k.cu").write_text(ONCE)
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
            (result,) = compiler.compile([_stage(spelling.format(path=tmp_path / "secret.h") + "\n" + ONCE)])
            assert isinstance(result, CompileError)
            assert HIDDEN not in str(result)


@pytest.mark.skipif(not supported(), reason="this Linux kernel has no Landlock")
@pytest.mark.parametrize("spelling", ['#include "{path}"', '#define H "{path}"\n#include H'])
def test_a_child_reads_nothing_else(tmp_path: Path, spelling: str) -> None:
    """Not even where no look at the source has found it."""
    (tmp_path / "secret.h").write_text(HIDDEN)
    text = spelling.format(path=tmp_path / "secret.h") + "\n" + ONCE
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
    (tmp_path / "k.cu").write_text("#include <a.h>\n" + ONCE)
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
