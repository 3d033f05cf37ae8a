# ruff: noqa: E501 - files stand on as few lines as they can be read on
"""What NVRTC makes of files with pragmas: the code of kernels by hand, and errors at the user's lines."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
from pragma_files import FIRST, KERNEL, PAIRS, blanked, configurations, cubins, numbered, stages_of

from tuner.compiler.compiler import Compiler
from tuner.kernel_files.catalog import load_kernel_file
from tuner.model.errors import CompileError, CompilerUnavailableError


@pytest.fixture(scope="module")
def compiler(tmp_path_factory: pytest.TempPathFactory) -> Compiler:
    try:
        return Compiler("sm_90", tmp_path_factory.mktemp("cubins"))
    except CompilerUnavailableError as e:
        pytest.skip(str(e))


@pytest.mark.parametrize("name", PAIRS)
def test_every_configuration_is_the_code_by_hand(name: str, tmp_path: Path, compiler: Compiler) -> None:
    """For the same values, the file with pragmas and the kernel by hand are the same cubin."""
    pragmas, hand = PAIRS[name].files(tmp_path)
    mine = list(configurations(pragmas))
    names = dict(zip(pragmas.tunables, hand.tunables, strict=True))
    theirs = [
        hand.configuration(hand.workloads()[0], {names[key]: value for key, value in one.items()})
        for one in mine
    ]
    first = stages_of(pragmas, mine)
    second = stages_of(hand, theirs)
    if name == "alternatives":
        second = [
            replace(stage, options=(*stage.options, f"-DLOOP={int(one['FORM'] == 'loop')}"))
            for stage, one in zip(second, mine, strict=True)
        ]
    assert len(mine) > 1
    assert [(one.grid, one.block) for one in first] == [(one.grid, one.block) for one in second]
    assert cubins(compiler.compile(first)) == cubins(compiler.compile(second))


@pytest.mark.parametrize("name", [name for name, pair in PAIRS.items() if not pair.changed])
def test_the_default_is_the_source_without_pragmas(name: str, tmp_path: Path, compiler: Compiler) -> None:
    """The default compiles to the same cubin as the file with empty lines for its pragmas."""
    kernel, _ = PAIRS[name].files(tmp_path)
    (stage,) = stages_of(kernel, [kernel.default(kernel.workloads()[0])])
    text = FIRST + PAIRS[name].pragmas
    if name == "alternatives":  # which are both there without pragmas
        text = re.sub(r"#pragma tuner case loop.*?#pragma tuner end", "", text, flags=re.DOTALL)
    mine, plain = cubins(compiler.compile([stage, blanked(stage, text)]))
    assert mine == plain


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("name", PAIRS)
@pytest.mark.parametrize("default", [True, False])
def test_compile_errors_name_the_line_of_the_user(
    name: str, default: bool, end: str, tmp_path: Path, compiler: Compiler
) -> None:
    """An error behind all pragmas has the line that it has in the file, whatever values are given."""
    text = FIRST + PAIRS[name].pragmas.rstrip()[:-1] + "  missing_name = 1;\n}\n"
    line = next(number for number, one in enumerate(text.splitlines(), 1) if "missing_name" in one)
    (tmp_path / "k.cu").write_bytes(text.replace("\n", end).encode())
    kernel = load_kernel_file(tmp_path / "k.cu")
    found = [kernel.default(kernel.workloads()[0])] if default else list(configurations(kernel))[-1:]
    for result in compiler.compile(stages_of(kernel, found)):
        assert isinstance(result, CompileError)
        assert re.search(rf"k\.cu\({line}\): error: .*missing_name", str(result)), str(result)


def test_lines_count_between_pragmas_too(tmp_path: Path, compiler: Compiler) -> None:
    """Behind every kind of pragma, also one of several lines, ``__LINE__`` is that of the file."""
    text = (
        f"{FIRST}#pragma tuner values \\\n   1, \\\n   2\n#define A 1\nconstexpr int a = __LINE__;\n"
        "#pragma tuner values B: 1, 2\nconstexpr int B = 1, *p = nullptr;\n".replace(", *p = nullptr", "")
        + "constexpr int b = __LINE__;\n#pragma tuner launch grid(1) block(1)\n"
        f"{KERNEL}\n#pragma tuner unroll U: 1, 2\n  for (int i = 0; i < N; ++i)\n    y[i] = __LINE__ + A;\n"
        "#pragma tuner tile i values 4\n  for (int i = 0; /* from\n the first */ i < N; ++i)\n    y[i] = __LINE__;\n"
        "#pragma tuner select F\n#pragma tuner case a\n  y[0] = __LINE__;\n#pragma tuner case b\n"
        "  y[0] = __LINE__ * 2;\n#pragma tuner end\n  y[1] = __LINE__;\n}\n"
    )  # fmt: skip
    (tmp_path / "k.cu").write_text(text)
    stage = stages_of(kernel := load_kernel_file(tmp_path / "k.cu"), list(configurations(kernel))[:1])[0]
    shown = numbered(stage.source.text)
    for number, one in enumerate(text.splitlines(), 1):
        if "__LINE__" in one:
            assert one in shown[number]
    assert len(cubins(compiler.compile([stage]))) == 1
