"""Jitted functions whose parameters are annotated and specialised in all ways."""

import triton
import triton.language as tl


@triton.jit
def bare(a, b, c, d, BLOCK: tl.constexpr):
    tl.store(a, b)


@triton.jit
def annotated(a: tl.int32, b: tl.int64, c: "u64", d: tl.float32):
    pass


@triton.jit
def wide(a: "fp64", b: "i1", c: "bf16", d: tl.uint32):
    pass


@triton.jit
def pointers(a: "*fp32", b: tl.const, c: tl.pointer_type(tl.float16), d: "const *fp32"):
    pass


@triton.jit(do_not_specialize=["a", 1])
def unspecialised(a, b, c, d: tl.int32):
    pass


@triton.jit(do_not_specialize_on_alignment=["a", "b", 3])
def unaligned(a, b: tl.int32, c, d):
    pass


@triton.jit(do_not_specialize=("b",), do_not_specialize_on_alignment=("c",))
def mixed(a, b, c, d: tl.int64 = 5):
    pass
