"""What one thread of compiled code executes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.compiler.ptx_walk import Place, counted, executed

PLACE = Place((3, 0, 0), (2, 0, 0), (32, 1, 1), (8, 1, 1))


def entry(body: str, parameters: str = ".param .u64 k_param_0,\n.param .u32 k_param_1") -> str:
    return f".visible .entry k(\n{parameters}\n)\n{{\n.reg .b32 %r<9>;\n{body}\nret;\n}}\n"


def loop(first: str, step: int, condition: str, inner: str = "fma.rn.f32 %f1, %f2, %f3, %f1;") -> str:
    """A loop of register 1 while a comparison with parameter 1 holds, gone through once at least."""
    return f"""
ld.param.u32 %r2, [k_param_1];
mov.u32 %r1, {first};
$L__BB0_1:
{inner}
add.s32 %r1, %r1, {step};
setp.{condition} %p1, %r1, %r2;
@%p1 bra $L__BB0_1;
"""


@given(
    first=st.integers(-1000, 1000),
    step=st.integers(-50, 50).filter(bool),
    bound=st.integers(-3000, 3000),
    name=st.sampled_from(["lt", "le", "gt", "ge", "ne"]),
)
def test_a_loop_is_gone_through_as_often_as_it_runs(first: int, step: int, bound: int, name: str) -> None:
    """Whatever its bounds and step, and however it is left; one that never ends costs the steps allowed."""
    holds = {"lt": int.__lt__, "le": int.__le__, "gt": int.__gt__, "ge": int.__ge__, "ne": int.__ne__}[name]
    laps, at = 1, first + step
    while holds(at, bound) and laps < 10_000:
        laps, at = laps + 1, at + step
    found = executed(entry(loop(str(first), step, f"{name}.s32")), (1 << 40, bound), PLACE, 2_000)
    assert laps == 10_000 or found == {"fp32": laps, "issued": laps}


def test_loops_in_loops_are_multiplied() -> None:
    """Laps of the inner one count for each lap of the outer one, though few are gone through."""
    inner = """mov.u32 %r4, 0;
$L__BB0_2:
mul.f64 %fd1, %fd1, %fd2;
add.s32 %r4, %r4, 1;
setp.lt.u32 %p2, %r4, 300;
@%p2 bra $L__BB0_2;"""
    found = executed(entry(loop("0", 1, "lt.s32", inner)), (1 << 40, 1_000_000), PLACE, 2_000)
    assert found == {"fp64": 3e8, "issued": 3e8}


@pytest.mark.parametrize("most", [1 << 30, 3, 40, 1000])
def test_laps_that_cost_more_and_more_are_skipped(most: int) -> None:
    """Triangles are exact in few steps; laps of a band stop to grow, and are not taken for more than that."""
    laps = 100_000
    inner = f"""min.s32 %r5, %r1, {most};
mov.u32 %r4, 0;
$L__BB0_2:
fma.rn.f32 %f1, %f2, %f3, %f1;
add.s32 %r4, %r4, 1;
setp.le.s32 %p2, %r4, %r5;
@%p2 bra $L__BB0_2;"""
    found = executed(entry(loop("0", 1, "lt.s32", inner)), (1 << 40, laps), PLACE, 10_000)["fp32"]
    right = sum(1 + min(lap, most) for lap in range(laps))
    assert right <= found <= (right if most > laps else 1.05 * right)


BODIES = {
    "place": ("mov.u32 %r1, %tid.x; setp.eq.s32 %p1, %r1, 3; @!%p1 bra $L; add.f32 %f1, %f1, 0; $L:", 1),
    "guard": ("mov.u32 %r1, %ctaid.x; setp.gt.s32 %p1, %r1, 2; @%p1 add.f32 %f1, %f1, 0;", 0),
    "unknown": (
        "ld.u32 %r1, [%rd1]; setp.eq.s32 %p1, %r1, 3; @%p1 bra $L; add.f32 %f1, %f1, 0; $L:",
        1,
    ),
    "endless": (
        "$A: ld.u32 %r1, [%rd1]; setp.eq.s32 %p1, %r1, 0; @%p1 bra $B; bra $A; $B: add.f32 %f1, %f1, 0;",
        1,
    ),
    "assembly": ("// begin\n{add.f32 %f1,%f1,0;\n}\n// end\n// begin\n{add.f32 %f1,%f1,0;\n}\n", 2),
    "braces": ("{ // a call\n.reg .b32 t;\nadd.f32 %f1, %f1, 0;\n}", 1),
    "lines": (  # of the source, as Triton tells them
        "mov.u32 %r1, 4;\n.loc 1 2 3 // a\nsetp.lt.s32 %p1, %r1, 5;\n$A:\n.loc 1 2 4\n@%p1 ex2.f32 %f1, %f1;",
        1,
    ),
    "pairs": ("{fma.rn.f16x2 %r1,%r2,%r3,%r4;\n}", 0),
    "unsigned": ("mov.u32 %r1, -1; setp.gt.u32 %p1, %r1, 5; @%p1 add.f32 %f1, %f1, 0;", 1),
    "wide": (
        "mov.u32 %r1, 65536; mul.wide.s32 %rd1, %r1, %r1; setp.gt.s64 %p1, %rd1, 5; @%p1 ex2.f32 %f1, %f1;",
        1,
    ),
    "narrow": (
        "mov.u32 %r1, 65536; mul.lo.s32 %r2, %r1, %r1; setp.eq.s32 %p1, %r2, 0; @%p1 ex2.f32 %f1, %f1;",
        1,
    ),
    "rounding": (
        "mov.u32 %r1, -7; div.s32 %r2, %r1, 2; setp.eq.s32 %p1, %r2, -3; @%p1 ex2.f32 %f1, %f1;",
        1,
    ),
}


@pytest.mark.parametrize("name", BODIES)
def test_what_is_known_decides(name: str) -> None:
    """Integers are those of the thread; what memory holds lets a branch fall through once."""
    body, operations = BODIES[name]
    assert executed(entry(body), (1 << 40, 7), PLACE)["fp32"] == operations


def test_what_is_called_counts() -> None:
    """Functions that are not inlined are gone through where they are called."""
    called = (
        ".func (.param .b32 r) helper(\n.param .b64 helper_param_0\n)\n{\nmul.f32 %f1, %f1, %f1;\nret;\n}\n"
    )
    call = "{ // callseq 0, 0\n.param .b32 retval0;\ncall.uni (retval0),\nhelper,\n(\nparam0\n);\n}"
    assert executed(entry(call + call) + called, (1 << 40, 7), PLACE)["fp32"] == 2


@pytest.mark.parametrize("recurses", [False, True])
def test_functions_know_what_they_are_given(recurses: bool) -> None:
    """Loops to an argument are gone through in functions too; those that call themselves, once."""
    call = """{
.param .b64 param0;
st.param.b64 [param0+0], %rd1;
.param .b32 param1;
st.param.b32 [param1], %r1;
.param .b32 retval0;
call.uni (retval0), helper, (param0, param1);
}
"""
    body = loop("0", 1, "lt.s32").replace("k_param_1", "helper_param_1").strip()
    called = (
        ".func (.param .b32 result) helper(\n.param .b64 helper_param_0,\n.param .b32 helper_param_1\n)\n"
        f"{{\n.reg .b32 %r<9>;\n{body}\n{call * recurses}ret;\n}}\n"
    )
    text = entry("ld.param.u32 %r1, [k_param_1];\n" + call) + called
    assert executed(text, (1 << 40, 1000), PLACE)["fp32"] == 1000


@pytest.mark.parametrize(
    ("opcode", "counts"),
    [
        ("wmma.mma.sync.aligned.row.col.m16n16k16.f32.f32", {"tensor16": 128}),
        ("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32", {"tensor16": 64}),
        ("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32", {"tensor32": 32}),
        ("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32", {"tensor8": 128}),
        ("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64", {"tensor64": 8}),
        ("wgmma.mma_async.sync.aligned.m64n256k16.f32.f16.f16", {"tensor16": 2048}),
        ("fma.rn.f16x2", {"fp16": 2}),
        ("fma.rn.ftz.f32", {"fp32": 1}),
        ("mad.lo.s32", {"issued": 1}),
        ("mul.wide.s32", {}),
        ("add.s32", {}),
        ("mov.f32", {}),
    ],
)
def test_units_by_opcode(opcode: str, counts: dict[str, float]) -> None:
    """Products of matrices are those of a warp, or of a warpgroup, by its threads."""
    found = counted(entry(f"{opcode} {{%f1, %f2}}, {{%r1}}, {{%r2}}, {{%f1}};"))
    assert {unit: count for unit, count in found.items() if unit != "issued" or "issued" in counts} == counts
