# ruff: noqa: E501, ISC004 - files stand on as few lines as they can be read on
"""Pragmas that cannot be meant: an error with file, line, column and pragma; and ``docs/pragmas.md``."""

import re
from pathlib import Path

import pytest
from cli_process import tuner
from pragma_files import FIRST, without_pragmas

from tuner.kernel_files.catalog import load_kernel_file
from tuner.kernel_files.pragmas.directives import read_pragmas
from tuner.kernel_files.pragmas.expansion import expansion, toml_text
from tuner.kernel_files.pragmas.syntax import LAUNCH_KEYS, STATEMENT_KEYWORDS
from tuner.kernel_files.pragmas.tunables import ALTERNATIVE_KEYWORDS as OF_ALTERNATIVES
from tuner.kernel_files.pragmas.tunables import TUNABLE_KEYWORDS as OF_TUNABLES
from tuner.model.errors import KernelFileError
from tuner.system.untrusted.reading import load_toml

P = "#pragma tuner"
L = f"{P} launch grid(1) block(64)\n"
HEAD = "__global__ void k(const float* x, float* y, int N) {"
K = f"{HEAD} y[0] = x[0]; }}\n"
A = "#define A 1\n"
ALTERNATIVES = f"{P} select F\n{P} case a\n%s\n{P} case b\n%s\n{P} end\n"
REFUSED = {  # text, line behind the first ones, and what the message says
    "unknown word": (f"{P} earnge 1, 2\n{A}{L}{K}", 1, "unknown pragma; did you mean 'erange'?"),
    "nothing below": (f"{L}{K}{P} values 1, 2", 3, "no #define, constant or template parameter with a default stands"),
    "a variable below": (f"{P} values 1, 2\nint A = 1;\n{L}{K}", 1, "'int A = 1' is no constant; write constexpr"),
    "two constants below": (f"{P} values 1, 2\nconstexpr int A = 1, B = 2;\n{L}{K}", 1, "is not one name with a value"),
    "a macro with parameters": (f"{P} values 1, 2\n#define A(x) 1\n{L}{K}", 1, "no #define, constant"),
    "another name below": (f"{P} values B: 1, 2\n{A}{L}{K}", 1, "below stands A, not B"),
    "a value that is not listed": (f"{P} values 2, 4\n{A}{L}{K}", 1, "A is 1 in the source, which is none of the values 2, 4"),
    "an expression": (f"{P} values 1, 2\n#define A (1 << 1)\n{L}{K}", 1, "a tunable begins as a number"),
    "octal": (f"{P} values 8, 10\n#define A 010\n{L}{K}", 1, "is octal in C++"),
    "of type float": (f"{P} values 1, 2\n#define A 1.0f\n{L}{K}", 1, "a number of another type"),
    "unsigned": (f"{P} values 1, 2\n#define A 1u\n{L}{K}", 1, "a number of another type"),
    "used above": (f"const int z = A;\n{P} values 1, 2\n{A}{L}{K}", 2, "A is used above its #define"),
    "asked for above": (f"#if A > 1\n#endif\n{P} values 1, 2\n{A}{L}{K}", 3, "A is used above its #define"),
    "told apart above": (f"#ifdef A\n#endif\n{P} values 1, 2\n{A}{L}{K}", 3, "A is used above its #define"),
    "guard with more": (f"{P} values 1, 2\n#ifndef A\n{A}#define B 2\n#endif\n{L}{K}", 1, "more than the #define stands under #ifndef A"),
    "hexadecimal and unsigned": (f"{P} values 1, 2\n#define A 0x1u\n{L}{K}", 1, "A is 0x1u, a number of another type"),
    "unsigned for its size": (f"{P} values 1, 0x80000000\n#define A 0x80000000\n{L}{K}", 1, "write it without 0x, as 2147483648"),
    "unsigned behind a comment": (f"{P} values 1, 2\n#define A /* one */ 1u\n{L}{K}", 1, "A is 1u, a number of another type"),
    "of a deduced type": (f"{P} values 1, 2\nconstexpr auto A = 1u;\n{L}{K}", 1, "A is 1u, a number of another type"),
    "fractions for whole numbers": (f"{P} values 1.0, 2.0\n{A}{L}{K}", 1, "A is 1 in the source and 1.0 in the list"),
    "in brackets": (f"{P} values 1, 2\nconstexpr int A(1);\n{L}{K}", 1, "has no value to begin with"),
    "more than 63 bits": (f"{P} values 1, 99999999999999999999\n{A}{L}{K}", 1, "99999999999999999999 has more than 63 bits"),
    "endless digits": (f"{P} range 1, {'9' * 5000}\n{A}{L}{K}", 1, "a number has 5000 digits"),
    "infinite": (f"{P} values 1, 1e999\n{A}{L}{K}", 1, "1e999 is beyond all numbers of type double"),
    "size of endless digits": (f"{P} problem(M = 1..{'9' * 5000})\n{L}{K}", 1, "a size has 5000 digits"),
    "cases in two blocks": (f"#ifndef X\n{P} select F\n{P} case a\n#endif\n#ifndef X\n{P} case b\n{P} end\n#endif\n{L}{K}", 6, "stands under other conditions of the preprocessor than select F"),
    "defined again": (f"{P} values 1, 2\n{A}#undef A\n{A}{L}{K}", 1, "A is defined or undefined 3 times"),
    "empty range": (f"{P} range 5, 1\n{A}{L}{K}", 1, "the range is empty: it begins with 5 and ends with 1"),
    "no step": (f"{P} range 1, 5, 0\n{A}{L}{K}", 1, "the step is 0; it must be at least 1"),
    "no values": (f"{P} values\n{A}{L}{K}", 1, "there are no values"),
    "huge range": (f"{P} range 0, 1000000000000\n{A}{L}{K}", 1, "1000000000001 values; at most 1000"),
    "powers from 0": (f"{P} erange 0, 8\n{A}{L}{K}", 1, "FIRST must be at least 1, and BASE at least 2"),
    "a value twice": (f"{P} values 1, 1\n{A}{L}{K}", 1, "a value is there twice"),
    "numbers and truth": (f"{P} values 1, true\n{A}{L}{K}", 1, "numbers and true or false are mixed"),
    "nothing between commas": (f"{P} values 1,, 2\n{A}{L}{K}", 1, "there is nothing between two commas"),
    "no condition": (f"{P} values 1, 2 when\n{A}{L}{K}", 1, "nothing follows 'when'"),
    "two pragmas of a macro": (f"{P} values 1, 2\n{P} values 1, 4\n{A}{L}{K}", 2, "A is a tunable already, in line 5"),
    "two pragmas of a constant": (f"{P} values 1, 2\n{P} values 1, 4\nconstexpr int A = 1;\n{L}{K}", 2, "A is a tunable already"),
    "_Pragma": (f'_Pragma("tuner values 1, 2")\n{A}{L}{K}', 1, "is not read; write #pragma tuner on a line of its own"),
    "_Pragma in a macro": (f'#define U \\\n _Pragma ( "tuner unroll 1, 2")\n{A}{L}{K}', 1, "is not read; write #pragma tuner"),
    "behind a comment": (f"/* */ {P} values 1, 2\n{A}{L}{K}", 1, "a pragma stands alone on its line"),
    "under #if": (f"#if 0\n{P} values 1, 2\n{A}#endif\n{L}{K}", 2, "stands under #if 0, which is decided when compiling"),
    "under #else": (f"#ifndef Z\n#else\n{P} values 1, 2\n{A}#endif\n{L}{K}", 3, "stands under #else"),
    "several parameters": (f"{P} values 1, 2\ntemplate <int A = 1, int B = 1>\n{L}{K}", 1, "a default: A, B; write NAME: before the values"),
    "parameter without default": (f"{P} values A: 1, 2\ntemplate <int A>\n{L}{K}", 1, "A has no default"),
    "no such parameter": (f"{P} values C: 1, 2\ntemplate <int A = 1>\n{L}{K}", 1, "C is no parameter of the template; it has A"),
    "launch above nothing": (f"{K}{L}", 2, "no __global__ function stands below it"),
    "launch above a device function": (f"{L}__device__ int f();\n{K}", 1, "no __global__ function stands directly below it: line 6 has '__device__ int f()'"),
    "launch above a struct": (f"{L}{P} values 1, 2\n{A}struct S {{ int n; }};\n{K}", 1, "line 8 has 'struct S'; write the pragma behind that, right above the kernel"),
    "struct without a pragma": (f"struct S {{ int n, m; }};\n{L}__global__ void k(const float* x, float* y, S s) {{}}\n", 2, 'parameter s of k is not declared; it is a struct; write #pragma tuner value s = { n = "int32 = N", m = "int32 = EXPRESSION" }'),
    "struct of methods": (f"struct S {{ int f() {{ return 1; }} }};\n{L}__global__ void k(const float* x, float* y, S s) {{}}\n", 2, "its fields in order, or {} where it has none"),
    "struct as a number": (f"{P} value s = N\nstruct S {{ int n; }};\n{L}__global__ void k(const float* x, float* y, S s) {{}}\n", 3, "s of k has no type: it is a struct; write #pragma tuner value s = {"),
    "tensor map": (f"{L}__global__ void k(const float* x, float* y, const __grid_constant__ CUtensorMap m) {{}}\n", 1, "it is a tensor map"),
    "type that is not told": (f"{L}__global__ void k(const float* x, float* y, Other o) {{}}\n", 1, "write #pragma tuner value o: int32 = N of a number"),
    "no table of fields": (f"{P} value s = {{ n = int32 }}\n{L}{K}", 1, "is no table of fields, as {"),
    "toml of no parameter": (f"{P} toml arguments.s = {{ n = 'int32 = N' }}\n{L}{K}", 1, "s is no parameter of the kernels below"),
    "toml and value": (f"{P} toml arguments.N = 'int32 = N'\n{P} value N = N\n{L}{K}", 1, "arguments.N is stated twice"),
    "unknown clause": (f"{P} launch gird(1)\n{K}", 1, "unknown clause gird; did you mean 'grid'?"),
    "clause twice": (f"{P} launch grid(1) grid(2)\n{K}", 1, "grid is stated twice"),
    "open bracket": (f"{P} launch grid(1 block(2)\n{K}", 1, "( is not closed"),
    "no grid": (f"{P} launch block(64)\n{K}", 1, "has no clause grid(...)"),
    "undeclared parameter": (f"{L}__global__ void k(const float* x, float* y, int N, float* z) {{}}\n", 1, "parameter z of k is not declared; write #pragma tuner output z: float32[N]"),
    "declared nothing": (f"{P} input w: float32[N]\n{L}{K}", 1, "w is no parameter of the kernels below"),
    "problem without brackets": (f"{P} problem M = 3\n{L}{K}", 1, "write problem(N = [1024, 4096], W = 1..8192)"),
    "size twice": (f"{P} problem(N = [2])\n{L}{K}", 1, "N is stated twice"),
    "output checked twice": (f"{P} check y = 3 * x\n{L}{K}", 1, "y is stated twice"),
    "no TOML": (f"{P} toml kernel.family =\n{L}{K}", 1, "not valid TOML"),
    "TOML that is stated": (f"{P} toml kernel.family = 'a'\n{P} toml kernel.source = 'a.cu'\n{L}{K}", 2, "kernel.source is stated twice"),
    "select not closed": (f"{P} select F\n{P} case a\n{L}{K}", 1, "is not closed; write #pragma tuner end"),
    "one case": (f"{P} select F\n{P} case a\nint a;\n{P} end\n{L}{K}", 1, "has fewer than two cases"),
    "case alone": (f"{P} case a\n{L}{K}", 1, "no #pragma tuner select is open here"),
    "end alone": (f"{P} end\n{L}{K}", 1, "no #pragma tuner select is open here"),
    "code before the first case": (f"{P} select F\nint z;\n{P} case a\nint a;\n{P} case b\n{P} end\n{L}{K}", 1, "code stands before the first case"),
    "name of two words": (f"{P} select F\n{P} case a b\n{P} case c\n{P} end\n{L}{K}", 2, "write case NAME"),
    "two signatures": (ALTERNATIVES % ("__device__ int f(int x) { return x; }", "__device__ int f(float x) { return 1; }") + L + K, 4, "alternatives have one signature"),
    "half statements": (f"{L}{HEAD}\n y[0] =\n{ALTERNATIVES % (' 1;', ' 2;')}}}\n", 5, "a begins or ends within a statement"),
    "half blocks": (f"{L}{HEAD}\n{ALTERNATIVES % ('if (N) {', 'if (N > 1) {')}}}}}\n", 4, "a begins or ends within a statement"),
    "unroll above no loop": (f"{P} unroll 1, 8\nint x;\n{L}{K}", 1, "a for loop must stand below it"),
    "unroll above #pragma unroll": (f"{L}{HEAD}\n{P} unroll 1, 4\n#pragma unroll 2\nfor (int i = 0; i < N; ++i) y[i] = 1; }}\n", 3, "there is #pragma unroll"),
    "factors that are too large": (f"{L}{HEAD}\n{P} unroll 1, 4096\nfor (int i = 0; i < N; ++i) y[i] = 1; }}\n", 3, "whole numbers from 1 to 1024"),
    "a name that is taken": (f"{L}{HEAD}\n{P} unroll N: 1, 4\nfor (int i = 0; i < N; ++i) y[i] = 1; }}\n", 3, "the source has the name N already"),
    "unknown clause of Kernel Launcher": ("#pragma kernel tune(B=32, 64) frob(1)\n" + K, 1, "unknown clause frob"),
    "no grid of Kernel Launcher": ("#pragma kernel tune(B=32, 64) block_size(B)\n" + K, 1, "has neither problem_size(...) nor grid_size(...)"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_meant_is_refused_where_it_stands(case: str, tmp_path: Path) -> None:
    """The message begins with the file, the line and the column of the pragma."""
    text, line, why = REFUSED[case]
    (tmp_path / "k.cu").write_text(FIRST + text)
    with pytest.raises(KernelFileError, match=re.escape(why)) as refused:
        load_kernel_file(tmp_path / "k.cu")
    column = 7 if case == "behind a comment" else 1
    number = FIRST.count("\n") + line
    assert str(refused.value).startswith(f"{tmp_path / 'k.cu'}, line {number}, column {column}: ")


@pytest.mark.parametrize(
    ("pragma", "why"),
    [
        ("constraint L * * 2", "[constraints] rules, item 1: expression 'L * * 2': not an expression"),
        ("constraint Q < 2", "unknown name 'Q' (known here: N, batch, A)"),
        ("scratch y2: flot32[N]", "did you mean 'float32'?"),
        ("problem(M = 8..1)", "[problem.sizes] M: from 8 to 1 holds no number"),
        ("problem(M = 0..5)", "[problem.sizes] M.from: input should be greater"),
        ("check z = 1", "no output buffer is called so; choose from y"),
        ("derived Q = A +", "[derived] Q: expression 'A +': not an expression"),
    ],
)
def test_what_a_pragma_states_wrongly_names_its_line(pragma: str, why: str, tmp_path: Path) -> None:
    """Errors of the kernel file that pragmas mean have the line of the pragma."""
    kernel = K.replace("int N)", "int N, float* y2)") if "y2" in pragma else K
    (tmp_path / "k.cu").write_text(f"{FIRST}{P} values 1, 2\n{A}{P} {pragma}\n{L}{kernel}")
    with pytest.raises(KernelFileError) as refused:
        load_kernel_file(tmp_path / "k.cu")
    assert str(refused.value).startswith(f"{tmp_path / 'k.cu'}, line 7: ")
    assert why in str(refused.value)


@pytest.mark.parametrize(
    "text",
    [
        f"// {P} nonsense\n/*\n{P} nonsense\n*/\n",
        f'const char* t = R"(\n{P} nonsense\n)";\n',
        f"// a comment that goes on \\\n{P} nonsense\n",
        f'const char* t = "\\\n{P} nonsense";\n',
        f"#define Q '\"' /* a comment\n{P} nonsense\n*/\n",
    ],
)
def test_pragmas_in_comments_and_strings_are_none(text: str, tmp_path: Path) -> None:
    """What only looks like a pragma stays as it is."""
    (tmp_path / "k.cu").write_text(f"{FIRST}{text}{P} values 1, 2\n{A}{L}{K}")
    assert list(load_kernel_file(tmp_path / "k.cu").tunables) == ["A"]


@pytest.mark.parametrize(
    "text",
    [
        f'{L}{HEAD} asm volatile("{{\\n .reg .f32 t;\\n}}" ::: "memory"); y[0] = x[0]; }}\n',
        f'{L}extern "C" [[gnu::cold]] __attribute__((used)) __global__ void __launch_bounds__(64, 1)'
        " k(const float* __restrict__ x, float* y, const int N) { y[0] = x[0]; }\n",
        f"{L}__global__ void __maxnreg__(64) k(const float* x, float* y, int N) {{ y[0] = x[0]; }}\n",
        f"{L}%:define OTHER 1\n#unknown directive\n{K}",
    ],
)
def test_what_the_grammar_does_not_know_is_edited_around(text: str, tmp_path: Path) -> None:
    """Inline assembly, attributes and unknown words stay as they are."""
    (tmp_path / "k.cu").write_text(f"{FIRST}{P} values 1, 2\n{A}{text}")
    kernel = load_kernel_file(tmp_path / "k.cu")
    (stage,) = kernel.plan(kernel.workloads()[0], kernel.default(kernel.workloads()[0])).stages
    assert without_pragmas(text).strip("\n") in stage.source.text


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("last", ["", "\n"])
def test_all_ends_of_lines_are_read(encoding: str, end: str, last: str, tmp_path: Path) -> None:
    """Byte order marks, carriage returns, tabs, other letters and a missing last new line do not matter."""
    text = f"{FIRST}// größer ×\n\t#\tpragma\ttuner\tvalues \\\n\t1,\t2 // those\n{A}{L}{K.rstrip()}{last}"
    (tmp_path / "k.cu").write_bytes(text.replace("\n", end).encode(encoding))
    kernel = load_kernel_file(tmp_path / "k.cu")
    assert dict(kernel.tunables) == {"A": (1, 2)}
    assert set(kernel.sizes) == {"N"}
    (tmp_path / "k.cu").write_bytes(text.replace("\n", end).encode("latin-1"))
    with pytest.raises(KernelFileError, match="is not UTF-8 text"):
        load_kernel_file(tmp_path / "k.cu")


def test_unending_quotes_and_comments_take_linear_time() -> None:
    """400 KB of quotes, comments and texts that nothing closes, which once took minutes, are read."""
    for piece in ('\\"', "/*", "'", 'R"(', "L(", "{"):
        text = f"#define X {piece * 100_000}\n{piece * 1_000}\n"
        assert read_pragmas(Path("k.cu"), text).directives == ()


PAGE = (Path(__file__).parent.parent / "docs" / "pragmas.md").read_text()
CUDA = re.findall(r"^```cuda\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
TOML = re.findall(r"^```toml\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def test_the_walk_through_shows_what_expand_shows() -> None:
    """The kernel file and the source of the page are those of its first file."""
    found = expansion(Path("axpb.cu"), CUDA[0])
    assert toml_text(found.document).strip() == TOML[0].strip()
    assert load_toml(TOML[0]) == found.document
    assert found.text.strip("\n") == CUDA[1].strip("\n")


def test_the_walk_through_runs(tmp_path: Path) -> None:
    """The file is well formed and can be tuned on the modelled H200 at the size of the page."""
    path = tmp_path / "axpb.cu"
    path.write_text(CUDA[0])
    assert f"next: tuner run {path}:N=4096\n" in tuner("kernels", "check", path).stdout
    words = ("--device", "sim:h200", "--budget", "4", "--database", tmp_path / "db.sqlite")
    assert tuner("run", f"{path}:N=1000000", *words).exit_code == 0
    expanded = tuner("kernels", "expand", path, "--output", tmp_path / "expanded")
    assert expanded.exit_code == 0
    checked = tuner("kernels", "check", tmp_path / "expanded" / "kernel.toml")
    assert checked.exit_code == 0
    assert "kernel axpb is well formed" in checked.stdout


def test_every_pragma_and_clause_is_on_the_page() -> None:
    """The table has all words that are read."""
    table = PAGE.partition("## All pragmas")[2].partition("## What is proved")[0]
    for word in (*STATEMENT_KEYWORDS, *OF_TUNABLES, *OF_ALTERNATIVES, "unroll", "tile", *LAUNCH_KEYS):
        assert re.search(rf"\b{word}\b", table), word


def test_the_messages_of_the_page_are_in_the_code() -> None:
    """The fixed parts of each message stand in a file of the room."""
    room = Path(expansion.__code__.co_filename).parent
    code = "".join(re.sub(r'"\s+f?"', "", path.read_text()) for path in room.glob("*.py"))
    table = PAGE.partition("## Messages")[2]
    parts = (
        *("in the source, which is none of the values", "is a tunable already, in line", "stands under"),
        *("with a default stands below it", "the range is empty: it begins with", "is carried from one"),
        *("is perfectly nested below it; the nest is over", "begins or ends within a statement"),
        *("it is not proved that tiles keep the order of writes to", "may overlap another array of the nest"),
        "is not read; write #pragma",
    )
    for part in parts:
        assert part in table
        assert part in code, part
