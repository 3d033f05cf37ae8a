"""Damaged pragma files: an error that says so, or a kernel that is the source without pragmas."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pragma_files import FIRST, PAIRS, blanked, numbered, stages_of

from tuner.compiler.compiler import CompiledStage, Compiler
from tuner.kernel_files.catalog import load_kernel_file
from tuner.kernel_files.kernel_file import KernelFile
from tuner.kernel_files.pragmas.expansion import expansion
from tuner.model.errors import CompilerUnavailableError, InputError

FILES = [FIRST + pair.pragmas for pair in PAIRS.values()]
WITHOUT_ALTERNATIVES = [
    FIRST + pair.pragmas for pair in PAIRS.values() if not pair.changed and "select" not in pair.pragmas
]
PIECES = (
    *(
        "#pragma tuner ",
        "_Pragma(",
        "#if 0\n",
        "#endif\n",
        "/*",
        "*/",
        "//",
        '"',
        "'",
        "\\\n",
        "\n",
        "\r\n",
        "\t",
    ),
    *(
        "(",
        ")",
        "{",
        "}",
        "[",
        "]",
        ";",
        ",",
        ":",
        "=",
        "<",
        ">",
        "#",
        'R"(',
        "é",
        "\x00",
        "\ufeff",
        "08",
        "1u",
    ),
    *(
        "values 1, 2\n",
        "tile i 4, 8\n",
        "select F\n",
        "case a\n",
        "end\n",
        "range ",
        "when ",
        "#define L 1\n",
    ),
    *(
        "template <int L = 2>\n",
        "__global__ ",
        "[[maybe_unused]] ",
        "asm(",
        "__attribute__((cold)) ",
        "..",
        "==",
    ),
)


@st.composite
def damaged(draw: st.DrawFn, files: list[str]) -> str:
    """A file with lines dropped, doubled and swapped, and with pieces put in, taken out or changed."""
    text = draw(st.sampled_from(files))
    for _ in range(draw(st.integers(1, 4))):
        lines = text.split("\n")
        line = draw(st.integers(0, len(lines) - 1))
        place = draw(st.integers(0, len(text)))
        change = draw(st.sampled_from(("drop", "double", "swap", "put in", "take out", "cut", "letter")))
        if change == "drop":
            del lines[line]
        elif change == "double":
            lines.insert(line, lines[line])
        elif change == "swap":
            other = draw(st.integers(0, len(lines) - 1))
            lines[line], lines[other] = lines[other], lines[line]
        if change in ("drop", "double", "swap"):
            text = "\n".join(lines)
        elif change == "put in":
            text = text[:place] + draw(st.sampled_from(PIECES)) + text[place:]
        elif change == "take out":
            text = text[:place] + text[place + draw(st.integers(1, 12)) :]
        elif change == "letter":
            text = text[:place] + draw(st.characters(codec="utf-8")) + text[place + 1 :]
        else:
            text = text[: max(place, len(text) // 2)]
        text = text or "\n"
    return text


def loaded(text: str, folder: Path) -> KernelFile | None:
    """The kernel of a file; None where it is refused. Nothing else may happen."""
    path = folder / "k.cu"
    path.write_bytes(text.encode())
    try:
        return load_kernel_file(path)
    except InputError as e:
        assert "k.cu" in str(e)  # noqa: PT017 - of those that are refused
        return None


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("fuzzed")


@settings(max_examples=400)
@given(text=damaged(FILES))
def test_damaged_files_are_refused_or_read(text: str, folder: Path) -> None:
    """What is wrong is an error that names the file; what is read has the lines of the file."""
    if loaded(text, folder) is not None:
        last = text.rpartition("\n")[2]
        found = expansion(folder / "k.cu", text).text
        if found.endswith(f"\n{last}"):
            assert last in numbered(found)[text.count("\n") + 1]
        else:
            assert "pragma" in text.rpartition("\n#")[2]


@settings(max_examples=60)
@given(text=damaged(WITHOUT_ALTERNATIVES))
def test_what_is_read_compiles_to_the_source_without_pragmas(text: str, folder: Path) -> None:
    """The default of a damaged file that is read is the file with empty lines for its pragmas."""
    kernel = loaded(text, folder)
    if kernel is None:
        return
    try:
        compiler = Compiler("sm_90", folder / "cubins")
        workload = kernel.workloads()[0]
        (stage,) = stages_of(kernel, [kernel.default(workload)])[:1]
    except CompilerUnavailableError as e:
        pytest.skip(str(e))
    except InputError:
        return
    mine, plain = compiler.compile([stage, blanked(stage, text)])
    if isinstance(plain, CompiledStage):
        assert isinstance(mine, CompiledStage), str(mine)
        assert mine.cubin == plain.cubin
    else:
        assert not isinstance(mine, CompiledStage)
