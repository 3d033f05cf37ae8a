"""PTX, cubins and build commands: what they are compiled to, what they may touch, and what is refused."""

import importlib.util
import re
import shlex
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import cache
from pathlib import Path

import host_build
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.compiler.compiler import CompiledStage, Compiler, resources_in
from tuner.compiler.contract import misfit
from tuner.compiler.cubin import read_cubin
from tuner.compiler.nvrtc import Nvrtc, Output, library_files, supported
from tuner.devices.simulated.device import SimulatedDevice
from tuner.kernel_files.catalog import load_kernel_file
from tuner.kernel_files.kernel_file import KernelFile
from tuner.kernel_files.source_checks import unused_names
from tuner.model.errors import CompileError, InputError, KernelFileError
from tuner.model.plan import Configuration, Workload
from tuner.search.compilation import prepare_compiled

BLOCKS = (64, 128)
HEAD = ".version 8.0\n.target sm_75\n.address_size 64\n"
SOURCE = """template <int B> __global__ void __launch_bounds__(B) scale(float* y, const float* x, int n) {
  __shared__ float s[B]; int i = blockIdx.x * B + threadIdx.x;
  s[threadIdx.x] = i < n ? x[i] : 0.f; __syncthreads(); if (i < n) y[i] = 2 * s[threadIdx.x ^ 1]; }"""


@cache
def compiled(block: int, number: int | str) -> Output:
    """A kernel of one block size, as NVRTC compiles it."""
    options = (f"--gpu-architecture=sm_{number}", "--ptxas-options=-v")
    return Nvrtc(str(library_files()[0])).compile("scale.cu", SOURCE, (), f"scale<{block}>", options)


def ptx(block: int) -> str:
    return HEAD + compiled(block, 75).ptx


def cubin(block: int, number: int | str = 90) -> bytes:
    code = compiled(block, number).cubin
    assert code is not None
    return code


def kernel_of(folder: Path, *lines: str, tunables: str = "B = [64, 128]") -> KernelFile:
    """A kernel of the lines of its first table, with its files beside it."""
    for block in BLOCKS:
        (folder / f"scale_{block}.ptx").write_text(ptx(block))
        (folder / f"scale_{block}.cubin").write_bytes(cubin(block))
        (folder / f"old_{block}.cubin").write_bytes(cubin(block, 80))
    (folder / "scale.cu").write_text(SOURCE)
    (folder / "generate").write_text("#!/bin/sh\ncat scale_$1.ptx\n")
    (folder / "generate").chmod(0o755)
    (folder / "damaged.cubin").write_bytes(cubin(64)[:-100])
    (folder / "late.ptx").write_text(ptx(64).replace("sm_75", "sm_120"))
    path = folder / "kernel.toml"
    path.write_text(
        "\n".join(["[kernel]", 'name = "scaling"', *lines])
        + f"""
[problem]
sizes.N = [65536]
reference.y = "2 * x"
[arguments]
y = "out float32[N]"
x = "in float32[N]"
n = "int32 = N"
[tunables]
{tunables}
[launch]
grid = "ceil_div(N, B)"
block = "B"
"""
    )
    return load_kernel_file(path)


def built(*words: str) -> tuple[str, ...]:
    return ('source = "scale.cu"', 'entry = "scale<{B}>"', f"build = {list(words)!r}")


@pytest.fixture
def compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Compiler]:
    """A compiler, whose children are in a place without UTF-8."""
    for name, value in (("LC_ALL", "C"), ("PYTHONUTF8", "0"), ("PYTHONCOERCECLOCALE", "0")):
        monkeypatch.setenv(name, value)
    with Compiler("sm_90", tmp_path / "cubins", jobs=2) as one:
        yield one


def results(kernel: KernelFile, compiler: Compiler) -> list[CompiledStage | CompileError]:
    (workload,) = kernel.workloads()
    return compiler.compile(
        [kernel.plan(workload, configuration).stages[0] for configuration in kernel.space(workload)]
    )


WAYS: dict[str, tuple[str, ...]] = {
    "ptx files": ('source = "scale_{B}.ptx"', 'entry = "scale<{B}>"'),
    "cubin files": ('source = "scale_{B}.cubin"', 'entry = "scale"'),
    "printed": built("cat", "scale_{B}.ptx"),
    "written": built("cp", "scale_{B}.ptx", "{output}"),
    "built cubins": (*built("cp", "scale_{B}.cubin", "{output}"), 'language = "cubin"'),
    "for the architecture": built("sh", "-c", "test {architecture} = sm_90 && cat scale_{B}.ptx"),
    "of the source": built("sh", "-c", "grep -q scale {source} && cat scale_{B}.ptx"),
    "by a program beside it": built("./generate", "{B}"),
    "of one generation": built("sed", "s/sm_75/sm_90a/", "scale_{B}.ptx"),
    "with a comment": built("sed", r"1i // caf\xc3\xa9", "scale_{B}.ptx"),
    "by options": (*built("cat", "scale_{B}.ptx"), 'options = ["--ptxas-options=-maxrregcount=32"]'),
}


@pytest.mark.parametrize("way", WAYS)
def test_code_of_each_configuration(tmp_path: Path, compiler: Compiler, way: str) -> None:
    """Every way to code leads to that of the configuration, with its resources, whatever made it."""
    codes = results(kernel_of(tmp_path, *WAYS[way]), compiler)
    for block, code in zip(BLOCKS, codes, strict=True):
        assert isinstance(code, CompiledStage)
        assert f"ILi{block}E" in code.lowered_name
        assert code.resources.static_shared_bytes == 4 * block
        assert code.resources.registers_per_thread > 0
        assert code.resources.architecture == "sm_90"


def test_expressions_beside_each_other_name_one_file(tmp_path: Path, compiler: Compiler) -> None:
    """What lies between two expressions of a name may be nothing."""
    lines = ('source = "scale_{B // 64}{B % 64}.ptx"', 'entry = "scale<{B}>"')
    for name, block in (("scale_10.ptx", 64), ("scale_20.ptx", 128)):
        (tmp_path / name).write_text(ptx(block))
    assert all(isinstance(code, CompiledStage) for code in results(kernel_of(tmp_path, *lines), compiler))


def test_a_tunable_that_only_chooses_a_file_is_used(tmp_path: Path) -> None:
    """Names in words of a command, and in that of a file, count as used."""
    for lines in (('source = "{F}_64.ptx"', 'entry = "k"'), built("cat", "{F}_64.ptx")):
        kernel = kernel_of(tmp_path, *lines, tunables='B = [64]\nF = ["scale"]\nG = [1]')
        assert [text.split(":")[0] for text in unused_names(kernel.recipe)] == ["[tunables] G"]


@pytest.mark.parametrize("way", ["ptx files", "cubin files", "printed"])
def test_what_their_code_asks_of_launches_is_held_against_them(tmp_path: Path, way: str) -> None:
    """A block beyond the launch bounds of the code is pruned, however the code came; the others are left."""
    lines = [line.replace("{B}", "{min(B, 64)}") for line in WAYS[way]]
    kernel = kernel_of(tmp_path, *lines)
    (workload,) = kernel.workloads()
    device = SimulatedDevice("h200")
    try:
        (prepared,) = prepare_compiled([(kernel, workload)], device)
    finally:
        device.close()
    assert [dict(each.configuration) for each in prepared.candidates] == [{"B": 64}]
    assert sum(prepared.pruned.values()) == 1


FAILING = {
    ("no-such-command", "{output}"): ["no command 'no-such-command' is on this machine"],
    ("sh", "-c", "echo x.c:3: error: no such thing >&2; exit 3"): ["status 3", "x.c:3: error: no such thing"],
    ("sh", "-c", "kill -9 $$"): ["build: sh was killed by signal 9"],
    ("python3", "-c", "import no_such_module"): ["No module named 'no_such_module'"],
    ("yes",): ["build: yes wrote more than 64 MiB"],
    ("true",): ["wrote nothing to standard output, and no word of build is {output}"],
    ("echo", "{output}"): ["wrote nothing to {output}"],
    ("cat", "scale.cu"): ["is no PTX, which has .version and .target"],
    ("sh", "-c", "sed s/scale/other/g scale_64.ptx"): ["has no entry scale<64>; it has other<64>"],
    ("cat", "scale_64.cubin"): ["is no PTX", "language = 'cubin' takes it"],
    ("cat", "late.ptx"): ["ptxas", "sm_120"],
    ("/",): ["no command '/'"],
}
FAILING_CUBINS = {
    "old_64.cubin": ["is code for sm_80, not for sm_90"],
    "damaged.cubin": ["is a cubin that is damaged or cut off"],
    "scale_64.ptx": ["is no cubin, which is an ELF file"],
}


@pytest.mark.parametrize("words", [*FAILING, *FAILING_CUBINS], ids=str)
def test_what_does_not_become_code_says_why(
    tmp_path: Path, compiler: Compiler, words: tuple[str, ...] | str
) -> None:
    """Commands that are missing, fail, or make something else, and files that are no code for this GPU."""
    if isinstance(words, str):
        lines = [f'source = "{words}"', 'entry = "scale"', 'language = "cubin"']
    else:
        lines = [*built(*words)]
    (code,) = results(kernel_of(tmp_path, *lines, tunables="B = [64]"), compiler)
    assert isinstance(code, CompileError)
    for text in FAILING_CUBINS[words] if isinstance(words, str) else FAILING[words]:
        assert text in str(code)


@pytest.mark.parametrize("start", ["", "setsid "])
def test_a_command_that_hangs_ends_with_all_that_it_started(tmp_path: Path, start: str) -> None:
    """A build is given up at the time-out, and nothing of it is left, in a session of its own neither."""
    kernel = kernel_of(tmp_path, *built("sh", "-c", f"{start}sleep 86398.625 & wait"), tunables="B = [64]")
    with Compiler("sm_90", tmp_path / "cubins", timeout_s=2.0) as compiler:
        (code,) = results(kernel, compiler)
    assert "not compiled within 2 s" in str(code)
    while any(b"86398.625" in line for line in commands()):  # they are killed already
        pass


def test_what_a_command_leaves_behind_ends_with_it(tmp_path: Path, compiler: Compiler) -> None:
    """A process that runs on in the background, in a session of its own, is none when the code is there."""
    script = "setsid sleep 86397.625 > /dev/null 2>&1 & cat scale_64.ptx"
    (code,) = results(kernel_of(tmp_path, *built("sh", "-c", script), tunables="B = [64]"), compiler)
    assert isinstance(code, CompiledStage)
    assert not any(b"86397.625" in line for line in commands())


def commands() -> Iterator[bytes]:
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):  # it has ended
            yield path.read_bytes()


@pytest.mark.skipif(not supported(), reason="this kernel has no Landlock")
@pytest.mark.parametrize(
    "script",
    ["echo > {beside}/left", "cat {beside}/secret", "cat /etc/shadow", "ls /root", "echo > scale.cu"],
)
def test_a_command_touches_nothing_else(tmp_path: Path, compiler: Compiler, script: str) -> None:
    """It can neither read what is beside its folder nor write anywhere, its source among it."""
    folder, beside = tmp_path / "kernel", tmp_path / "beside"
    folder.mkdir()
    beside.mkdir()
    (beside / "secret").write_text("secret")
    text = f"{script.format(beside=shlex.quote(str(beside)))} && cat scale_64.ptx"
    (code,) = results(kernel_of(folder, *built("sh", "-c", text), tunables="B = [64]"), compiler)
    assert isinstance(code, CompileError)
    assert "ermission denied" in str(code)
    assert [path.name for path in beside.iterdir()] == ["secret"]
    assert (folder / "scale.cu").read_text() == SOURCE


@pytest.mark.skipif(not supported(), reason="this kernel has no Landlock")
@pytest.mark.parametrize("home", ["home", "users/other"])
def test_a_program_of_somebody_reads_what_is_installed_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, home: str
) -> None:
    """The folder above ``bin`` is that of a toolkit, unless it is where the user lives, wherever that is."""
    kernel, place = tmp_path / "kernel", tmp_path / "home"
    for folder in (kernel, place / "bin"):
        folder.mkdir(parents=True)
    (place / "file").write_text(ptx(64))
    (place / "bin" / "generate").write_text(f"#!/bin/sh\ncat {shlex.quote(str(place / 'file'))}\n")
    (place / "bin" / "generate").chmod(0o755)
    monkeypatch.setenv("HOME", str(tmp_path / home))
    lines = built(str(place / "bin" / "generate"))
    with Compiler("sm_90", tmp_path / "cubins") as compiler:
        (code,) = results(kernel_of(kernel, *lines, tunables="B = [64]"), compiler)
    assert isinstance(code, CompileError) == (home == "home"), str(code)


# --- Fingerprints.


def test_what_a_command_makes_is_compiled_once(tmp_path: Path) -> None:
    """Another process finds the answer in the cache; a change of what the command reads makes it anew."""
    kernel = kernel_of(tmp_path, *built("cat", "scale_{B}.ptx"))
    with Compiler("sm_90", tmp_path / "cubins") as compiler:
        first = results(kernel, compiler)
    (tmp_path / "scale_64.ptx").unlink()  # PTX is none of the source files that count
    with Compiler("sm_90", tmp_path / "cubins") as compiler:
        assert results(kernel, compiler) == first
        (tmp_path / "header.h").touch()
        again = results(load_kernel_file(tmp_path / "kernel.toml"), compiler)
    assert isinstance(again[0], CompileError)


@pytest.mark.parametrize(
    "change",
    [
        *("source", "header", "module", "word", "program", "wrapped", "named file", "flags"),
        *("package", "extension"),
        *("nothing", "report"),
    ],
)
def test_answers_go_stale_with_all_that_made_the_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    """A changed source, header, command or program changes the fingerprint; other files do not."""
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "inner").write_text("1")
    (programs / "mycc").write_text(f"#!/bin/sh\nexec {programs}/inner\n")
    for program in programs.iterdir():
        program.chmod(0o755)
    monkeypatch.setenv("PATH", str(programs), prepend=":")
    lines = WAYS["ptx files"] if change == "named file" else built("mycc", "scale_{B}.ptx")
    if change in ("package", "extension"):
        (programs / "mycc").write_text(f"#!{sys.executable}\nfrom mypackage.cli import main\n")
        monkeypatch.syspath_prepend(tmp_path / "site")
        for name in ("mypackage", "mypackage_more"):
            (tmp_path / "site" / f"{name}-1.dist-info").mkdir(parents=True)
            (tmp_path / "site" / f"{name}-1.dist-info" / "METADATA").write_text(
                f"Name: {name.replace('_', '-')}\nVersion: 1\n"
            )
    if change == "module":
        lines = ('source = "generate.py"', 'entry = "k"', "build = ['mycc', '{source}']", 'language = "ptx"')
    (tmp_path / "library" / "inner").mkdir(parents=True)
    (tmp_path / "generate.py").write_text("from library import one")
    (tmp_path / "library" / "one.py").write_text("import library.inner.two")
    (tmp_path / "library" / "inner" / "two.py").write_text("2")
    before = kernel_of(tmp_path, *lines).fingerprint
    changes: dict[str, Callable[[], object]] = {
        "source": lambda: (tmp_path / "scale.cu").write_text(SOURCE + "\n"),
        "header": lambda: (tmp_path / "new.h").write_text("int a;"),
        "module": lambda: (tmp_path / "library" / "inner" / "two.py").write_text("3"),
        "word": lambda: (tmp_path / "kernel.toml").write_text(
            (tmp_path / "kernel.toml").read_text().replace("'mycc'", "'mycc', '-O3'")
        ),
        "program": lambda: (programs / "mycc").write_text("#!/bin/sh\nexec cat\n"),
        "wrapped": lambda: (programs / "inner").write_text("2"),
        "named file": lambda: (tmp_path / "scale_128.ptx").write_text(ptx(128) + "\n"),
        "flags": lambda: monkeypatch.setenv("NVCC_APPEND_FLAGS", "-O0"),
        "package": lambda: upgrade(tmp_path / "site" / "mypackage-1.dist-info"),
        "extension": lambda: upgrade(tmp_path / "site" / "mypackage_more-1.dist-info"),
        "nothing": lambda: None,
        "report": lambda: (tmp_path / "run.json").write_text("{}"),
    }
    changes[change]()
    after = load_kernel_file(tmp_path / "kernel.toml").fingerprint
    assert (after != before) == (change not in ("nothing", "report"))


def upgrade(package: Path) -> None:
    new = package.rename(package.with_name(package.name.replace("-1", "-2")))
    (new / "METADATA").write_text((new / "METADATA").read_text().replace("Version: 1", "Version: 2"))


COMMAND = built("cat", "scale_{B}.ptx")


@pytest.mark.parametrize(
    ("change", "lines"),
    [
        ("scale.cu", COMMAND),
        ("below/header.cuh", COMMAND),
        ("included/header.h", COMMAND),
        ("included/header.h", COMMAND[:2]),  # by NVRTC
    ],
)
def test_what_changes_after_it_was_read_is_not_kept(
    tmp_path: Path, change: str, lines: tuple[str, ...]
) -> None:
    """Code of files that are other ones than those of its key is refused, and never stored for them."""
    for name in ("below/header.cuh", "included/header.h"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).touch()
    kernel_of(tmp_path, *lines, 'include_paths = ["included"]')
    (tmp_path / "scale.cu").write_text('#include "below/header.cuh"\n' + SOURCE)
    kernel = load_kernel_file(tmp_path / "kernel.toml")
    text = (tmp_path / change).read_text()
    for edit, refused in (("// edited", True), ("", False)):
        (tmp_path / change).write_text(text + edit)
        with Compiler("sm_90", tmp_path / "cubins") as compiler:
            codes = results(kernel, compiler)
        assert ["has changed since it was read" in str(code) for code in codes] == [refused] * 2


# --- Kernel files that are refused.

REFUSED = {
    ('source = "../scale_{B}.ptx"', 'entry = "k"'): "leads out of the folder of the kernel file",
    ('source = "/tmp/scale_{B}.ptx"', 'entry = "k"'): "leads out of the folder of the kernel file",
    ('source = "none_{B}.ptx"', 'entry = "k"'): "no file is called none_*.ptx in",
    ('source = "none.ptx"', 'entry = "k"'): "none.ptx: cannot be read: No such file",
    ('source = "scale_{C}.ptx"', 'entry = "k"'): "[kernel] source: expression 'C': unknown name 'C'",
    ('source = "scale_64.ptx"',): "[kernel] entry: is needed, as the source is ptx",
    ('source = "scale_64.ptx"', 'entry = "k"', 'options = ["-DN=4"]'): "PTX takes options of ptxas alone",
    ('source = "scale_64.cubin"', 'entry = "k"', 'options = ["-DN=4"]'): "a cubin is code already",
    ('language = "ptx"', 'entry = "k"'): "no file is named here or in [kernel], and language is 'ptx'",
    (*built("cat", "{C}"),): "[kernel] build: expression 'C': unknown name 'C'",
    (*built("cat", "{B"),): "[kernel] build: braces of '{B' are not in pairs",
    (*built("{B}cc"),): "[kernel] build: the program, '{B}cc', is named, and is the same for all",
    (*built("cat"), 'language = "cuda"'): "makes ptx or a cubin, and language is 'cuda'",
    ('source = "scale.cu"', 'language = "opencl"'): "[kernel] language",
}


@pytest.mark.parametrize("lines", REFUSED)
def test_refused_kernel_files(tmp_path: Path, lines: tuple[str, ...]) -> None:
    """Keys that cannot be are named, with what would be right."""
    with pytest.raises(KernelFileError) as refused:
        (kernel := kernel_of(tmp_path, *lines)).plan(*next(plans(kernel)))
    assert REFUSED[lines] in str(refused.value)


def plans(kernel: KernelFile) -> Iterator[tuple[Workload, Configuration]]:
    (workload,) = kernel.workloads()
    for configuration in kernel.space(workload):
        yield workload, configuration


@pytest.mark.parametrize("part", ["scale_32", "../x/scale_64"])
def test_a_configuration_without_a_file_is_named(tmp_path: Path, part: str) -> None:
    """Values without a file, and those that lead out of the folder, are refused by name."""
    folder = tmp_path / "kernel"
    for made in (folder, tmp_path / "x"):
        made.mkdir()
    (tmp_path / "x" / "scale_64.ptx").touch()
    kernel = kernel_of(folder, 'source = "{F}.ptx"', 'entry = "k"', tunables=f'B = [64]\nF = ["{part}"]')
    with pytest.raises(KernelFileError, match=f"no file {part}.ptx is in .*, which has late.ptx, scale_128"):
        kernel.plan(*next(plans(kernel)))


# --- Cubins as files.


@pytest.mark.parametrize(
    ("made_for", "serves", "not_these"),
    [
        ("80", (80, 86, 89), (75, 90)),
        ("89", (89,), (80, 86, 90)),
        ("90a", (90,), (89, 100)),
        ("100", (100, 103), (90, 120)),
        ("100a", (100,), (103, 120)),
    ],
)
def test_gpus_that_a_cubin_serves(made_for: str, serves: tuple[int, ...], not_these: tuple[int, ...]) -> None:
    """Those of its generation that are not older; of code that needs what one has, that one."""
    code = read_cubin(cubin(64, made_for))
    found = {number for number in (*serves, *not_these) if code.serves(f"sm_{number}")}
    assert found == set(serves)


@pytest.mark.parametrize("number", Nvrtc(str(library_files()[0])).describe()[1])
def test_cubins_tell_what_ptxas_reports(number: int) -> None:
    """Of all architectures, registers, shared and local memory are those of the report."""
    output = compiled(64, number)
    architecture = f"sm_{number}"
    code = read_cubin(cubin(64, number))
    assert code.number == number
    assert code.serves(architecture)
    entry = code.entries[output.lowered_name]
    assert entry.resources(architecture) == resources_in(output.log, output.lowered_name, architecture)
    assert entry.launch.parameters == (("b", 8), ("b", 8), ("b", 4))
    assert entry.launch.most_threads == 64


@given(st.data())
def test_damaged_cubins_are_refused(data: st.DataObject) -> None:
    """Whatever bytes are changed or cut off, a cubin is read or refused, and nothing else happens."""
    code = bytearray(cubin(64))
    for at in data.draw(st.lists(st.integers(0, len(code) - 1), max_size=20)):
        code[at] = data.draw(st.integers(0, 255))
    del code[data.draw(st.integers(0, len(code))) :]
    with suppress(InputError):
        assert read_cubin(bytes(code)).number < 256


EXAMPLES = Path(__file__).parents[1] / "examples" / "compilers"


@pytest.mark.parametrize("name", ["nvcc", "numba"])
def test_examples_compile(name: str, compiler: Compiler) -> None:
    """The examples become code of the same launch, where their compilers are installed."""
    if shutil.which("nvcc") is None if name == "nvcc" else importlib.util.find_spec("numba") is None:
        pytest.skip(f"{name} is not here")
    kernel = load_kernel_file(EXAMPLES / f"{name}.toml")
    workload = kernel.workloads()[0]
    plan = kernel.plan(workload, kernel.default(workload))
    (code,) = compiler.compile(plan.stages)
    assert isinstance(code, CompiledStage)
    assert misfit(plan, plan.stages[0], code) == ""


@pytest.mark.skipif(host_build.COMPILER is None, reason="needs g++")
@pytest.mark.parametrize("width", [1, 4])
def test_the_source_of_the_example_is_right_on_the_host(width: int) -> None:
    """The file that nvcc gets, compiled by g++ without the code of the host, computes what it says."""
    kernel = load_kernel_file(EXAMPLES / "nvcc.toml")
    workload = kernel.workload({"N": 65536})
    plan = kernel.plan(workload, kernel.configuration(workload, {"block_size_x": 64, "WIDTH": width}))
    (stage,) = plan.stages
    options = tuple(word for word in stage.build if word.startswith("-D"))
    text = re.sub("#include <.*>", "", stage.source.text)  # of the code of the host, which is left out
    source = replace(stage.source, text=text, language="cuda")
    plan = replace(plan, stages=(stage.changed(source=source, options=options, build=()),))
    x = np.arange(65536, dtype=np.float32)
    outputs = host_build.run_plan_on_host(plan, {"x": x, "y": np.ones_like(x)})
    np.testing.assert_array_equal(outputs["y"], 2 * x + 1)


def test_nvcc_with_headers_of_the_host(tmp_path: Path, compiler: Compiler) -> None:
    """A source that includes what NVRTC has not, compiled by nvcc."""
    if shutil.which("nvcc") is None:
        pytest.skip("nvcc is not here")
    text = f"#include <vector>\n{SOURCE}\ntemplate __global__ void scale<B>(float*, const float*, int);"
    kernel = kernel_of(
        tmp_path, *built("nvcc", "-ptx", "-arch={architecture}", "-DB={B}", "{source}", "-o", "{output}")
    )
    (tmp_path / "scale.cu").write_text(text.replace("<int B>", "<int W>").replace("s[B]", "s[W]"))
    codes = results(load_kernel_file(kernel.path), compiler)
    assert all(isinstance(code, CompiledStage) for code in codes)
