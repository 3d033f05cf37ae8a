"""``#pragma tuner tile``: nests with tiles that are accepted leave the same bits."""

import random
from pathlib import Path

import pytest
from host_compile import COMPILER
from tiled_nests import Nest, assert_same, kernel_with, nest_of, sizes_of

from tuner.model.errors import KernelFileError

T = "#pragma tuner tile"
NESTS, CASES = 1_500, 60
ROWS = "for (int i = 0; i < n; ++i)\n for (int j = 0; j < m; ++j)"
LEGAL = {
    "one loop": f"{T} i values 4\nfor (int i = 0; i < n; ++i) a[i] += a[i - 1];",
    "outermost, carried scalar": (
        f"float t = 0;\n{T} i values 4\nfor (int i = 0; i < n; ++i) {{ t += b[i]; a[i] = t; }}"
    ),
    "outermost, counter changed": (
        f"{T} i values 4\nfor (int i = 0; i < n; ++i) {{ a[i] = b[i]; if (b[i] > 0.5f) i += 2; }}"
    ),
    "outermost, counter changed through a reference": (
        f"{T} i values 4\nfor (int i = 0; i < n; ++i) {{ int& r = i; a[r] = 1; if (b[r] > 0.5f) r += 3; }}"
    ),
    "outermost, bound changed": (
        f"int e = n;\n{T} i values 4\nfor (int i = 0; i < e; ++i) {{ a[i] = e; if (i == 2) e = m; }}"
    ),
    "outermost, continue and an inner break": (
        f"{T} i values 4\nfor (int i = 0; i < n; ++i) {{ if (b[i] > 0.7f) continue;"
        " for (int j = 0; j < m; ++j) { if (b[j] < 0.2f) break; a[i] += b[j]; } }"
    ),
    "outermost, return": (
        f"{T} i values 4\nfor (int i = 0; i < n; ++i) {{ if (b[i] > 0.9f) return; a[i] = 3; }}"
    ),
    "outermost, negative first against unsigned bound": (
        f"{T} i values 4\nfor (int i = -3; i < u; ++i) a[i] = 2;"
    ),
    "outermost, steps of blocks": (
        f"{T} i values 4\nfor (int i = threadIdx.x; i < n; i += blockDim.x * gridDim.x) a[i] = a[i + 1];"
    ),
    "outermost in a lambda": (
        f"auto f = [&] {{\n{T} i values 3\nfor (int i = 0; i < n; ++i) a[i] = i;\n}}; f();"
    ),
    "outermost under a condition without brackets": (
        f"if (n > 4)\n{T} i values 3\nfor (int i = 0; i < n; ++i) a[i] = i;\nelse a[0] = 7;"
    ),
    "inner loop, two dimensions": (f"{T} j values 4\n{ROWS} a[i * m + j] = b[j * n + i];"),
    "inner loop, factors turned": f"{T} j values 4\n{ROWS} a[j + m * i] = b[i];",
    "both loops": f"{T} i values 4\n{T} j values 4\n{ROWS} a[i * m + j] *= b[j * n + i];",
    "both loops, other order": f"{T} j values 4\n{T} i values 4\n{ROWS} a[i * m + j] *= b[j * n + i];",
    "sum over the inner loop": f"{T} j values 4\n{ROWS} a[i] += b[i * m + j];",
    "sum over the outer loop": f"{T} j values 4\n{ROWS} a[j] += b[i * m + j];",
    "sum over the outer loop, both tiled": f"{T} i values 4\n{T} j values 4\n{ROWS} a[j] += b[i * m + j];",
    "offset from the counter": f"{T} j values 4\n{ROWS} a[j + q - 1] += b[i];",
    "matrix product, three tiles": (
        f"{T} i values 4\n{T} j values 4\n{T} k values 4\n{ROWS}\n"
        "  for (int k = 0; k < 6; ++k) a[i * m + j] += b[i * 6 + k] * b[k * m + j];"
    ),
    "body with conditions and numbers of its own": (
        f"{T} j values 4\n{ROWS} {{ const float t = b[j]; float v = 1; if (t > 0.5f) v = fmaf(t, 2.0f, v);"
        " else v -= t; a[i * m + j] = v; }"
    ),
    "body with a loop of its own": (
        f"{T} j values 4\n{ROWS} {{ float t = 0; for (int k = 0; k < 5; k++) t += b[k * m + j];"
        " a[i * m + j] = t; }"
    ),
    "array of the function": (
        f"float t[16][32];\n{ROWS} t[i][j] = b[i + j];\n{T} j values 4\n{ROWS} t[i][j] += t[i][j] * b[i];\n"
        f"{ROWS} a[i * m + j] = t[i][j];"
    ),
    "long and size_t counters": (
        f"{T} j values 4\nfor (long long i = 0; i < w; ++i)\n for (size_t j = 0; j < s; ++j)"
        " a[i * s + j] = b[j];"
    ),
    "unsigned counter": (
        f"{T} j values 4\nfor (unsigned i = 0; i < n; ++i)\n for (unsigned j = 0; j < u; ++j) a[j] += b[i];"
    ),
    "unsigned counter from a difference": (
        f"{T} j values 4\nfor (int i = 0; i < 2; ++i)\n for (unsigned j = u - 1u; j < n; ++j) a[j] += b[i];"
    ),
    "steps in the inner loop": (
        f"{T} j values 4\nfor (int i = 0; i < n; i += 2)\n for (int j = 1; j <= m; j += 3) a[j] += b[i];"
    ),
    "comments and unroll pragmas between": (
        f"{T} j values 4\nfor (int i = 0; i < n; ++i) {{ // rows\n  /* columns */\n#pragma unroll\n"
        "  for (int j = 0; j < m /* all */; ++j) { a[j] += b[i]; } }"
    ),
    "a macro that is a number": f"#define ROWS (6)\n{T} j values 4\n{ROWS} a[i * 6 + j % 6] = 1;".replace(
        "a[i * 6 + j % 6] = 1", "a[j + ROWS] += b[i * ROWS]"
    ),
    "minimum as a bound": (
        f"{T} j values 4\nfor (int i = 0; i < n; ++i)\n for (int j = 0; j < min(m, 9); ++j) a[j] += b[i];"
    ),
    "one array alone, no restrict": f"{T} j values 4\n{ROWS} c[j] = c[j] * 0.5f + i;",
}


@pytest.mark.skipif(COMPILER is None, reason="needs g++")
def test_legal_tiles_keep_every_bit(tmp_path: Path) -> None:
    """Thirty nests leave the same bits with tiles below, of and above their sizes."""
    found = [nest_of(kernel_with(body)) for body in LEGAL.values()]
    cases = [(nest, tiles) for nest in found for tiles in sizes_of(nest, (1, 3))]
    assert_same([*cases, *((nest, dict.fromkeys(nest.tunables, 64)) for nest in found)], tmp_path)
    assert all("tuner_" in nest.found.text for nest in found)


def random_nest(numbers: random.Random) -> str:
    """Statements with tiles above a nest of up to three loops, many of which no tile may change."""
    counters = "ijk"[: numbers.choice((1, 2, 2, 3, 3))]
    types = {
        one: numbers.choice(("int", "int", "int", "unsigned", "long long", "size_t", "short"))
        for one in counters
    }
    limits = ("n", "m", "m", "q", "u", "5", "min(n, 4)", "w")
    bounds = {one: numbers.choice((*limits, *(["n - 1"] if types[one] == "int" else []))) for one in counters}
    wraps = (
        "unsigned" in types.values() or "u" in bounds.values()
    )  # negative numbers are far out of the arrays
    tiled = numbers.sample(counters, numbers.randint(1, len(counters)))
    lines = [f"{T} {one} values 2, 3" for one in tiled]
    for one in counters:
        first = numbers.choice(
            ("0", "0", "0", "0", "1", "q", *([] if wraps else ["-1", "threadIdx.x", "n - 2"]))
        )
        step = numbers.choice((f"++{one}", f"{one}++", f"{one} += 2", f"{one} += blockDim.x"))
        sign = numbers.choice(("<", "<", "<", "<="))
        lines.append(f"for ({types[one]} {one} = {first}; {one} {sign} {bounds[one]}; {step})")

    def index() -> str:
        one, other = numbers.choice(counters), numbers.choice(counters)
        return numbers.choice(
            (
                one,
                one,
                f"{one} + {numbers.choice(('1', 'q', 'n'))}",
                f"{one} {'+' if wraps else '-'} 1",
                f"{one} * {bounds[other]} + {other}",
                f"{one} * {bounds[other]} + {other}",
                f"{other} + {numbers.choice(('n', 'm', '7', 'q'))} * {one}",
                f"{one} + {other}",
                f"{one} * 2",
                f"{one} % 3",
                "q",
            )
        )

    same = index()

    def place() -> str:
        return same if numbers.random() < 0.8 else index()

    parts = []
    for _ in range(numbers.randint(1, 3)):
        array = numbers.choice("aaac")
        value = numbers.choice(
            (f"b[{index()}]", f"a[{place()}]", f"c[{place()}]", numbers.choice(counters), "t")
        )
        sign = numbers.choice(("=", "+=", "*=", "-="))
        parts.append(f"{array}[{place()}] {sign} {value} * 0.5f + {numbers.choice(counters)};")
    local = numbers.choice(("", "", f"float t = b[{index()}]; t += 0.5f;"))
    return "\n".join(["float t = 1;" if not local else "", *lines, f"{{ {local} {' '.join(parts)} }}"])


@pytest.mark.skipif(COMPILER is None, reason="needs g++")
def test_random_nests_that_are_accepted_keep_every_bit(tmp_path: Path) -> None:
    """Of 1,500 random nests, those whose tiles are accepted leave the same bits; no other error occurs."""
    numbers = random.Random(18)  # noqa: S311 - nothing is secret
    accepted: list[Nest] = []
    for _ in range(NESTS):
        text = kernel_with(random_nest(numbers))
        try:
            accepted.append(nest_of(text))
        except KernelFileError as e:
            assert "#pragma tuner tile: " in str(e)  # noqa: PT017 - every refusal is about the tile
    several = [nest for nest in accepted if nest.text.count(T) > 1 or "long long tuner" in nest.found.text]
    assert len(several) > CASES
    cases = [(nest, tiles) for nest in several for tiles in numbers.sample(sizes_of(nest, (1, 2, 3, 5)), 1)]
    assert_same(cases[:CASES], tmp_path)
