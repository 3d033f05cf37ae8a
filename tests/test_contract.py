"""What compiled code asks of its launch: told by ``check``, ruled out of searches, refused by devices."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from tuner.cli.main import main
from tuner.compiler.ptx import excerpt, facts_in
from tuner.devices.simulated.device import SimulatedDevice
from tuner.kernel_files.catalog import load_kernel_file
from tuner.kernel_files.kernel_file import KernelFile
from tuner.model.errors import LaunchMisfitError
from tuner.model.trial import Status
from tuner.search.compilation import prepare_compiled

GRID_BARRIER = """__device__ void barrier() { unsigned x; asm volatile("mov.u32 %0, %%envreg2;" : "=r"(x));
  if (!x) asm volatile("trap;"); }
"""
PLAIN = 'extern "C" __global__ void k(float* x, int n) {'
ADD = "int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) x[i] += 1.f; }"
ARGUMENTS = {"x": "inout float32[N]", "n": "int32 = N"}


def kernel_of(
    folder: Path,
    source: str,
    arguments: dict[str, str] | None = None,
    launch: str = "",
    values: str = "[64, 128]",
) -> KernelFile:
    """A kernel k whose tunable B is its block."""
    (folder / "k.cu").write_text(source)
    named = "\n".join(f'{name} = "{text}"' for name, text in (arguments or ARGUMENTS).items())
    text = f"""
kernel.source = "k.cu"
problem.sizes.N = [65536]
tunables.B = {values}
default.B = 64
work = {{ bytes = "8 * N", operations = "N" }}
[arguments]
{named}
[launch]
grid = "ceil_div(N, B)"
block = "B"
min_architecture = 90
{launch}
"""
    path = folder / "kernel.toml"
    path.write_text(text)
    return load_kernel_file(path)


MISFITS = {
    "bounds": (
        f"#define MOST (4 * 8)\n{PLAIN.replace('void k', 'void __launch_bounds__(MOST, 2) k')}{ADD}",
        {},
        "",
        "allows 32",
    ),
    "block": (
        f"{PLAIN.replace('void k', 'void __block_size__((64, 2, 1)) k')}{ADD}",
        {},
        "",
        "says 64 x 2 x 1",
    ),
    "dynamic": (
        f"extern __shared__ float s[];\n{PLAIN} s[threadIdx.x] = n; __syncthreads(); x[0] = s[1]; }}",
        {},
        "",
        "shared_bytes is 0",
    ),
    "grid": (f"{GRID_BARRIER}{PLAIN} barrier(); {ADD}", {}, "", "cooperative = true"),
    "cluster": (
        f"{PLAIN.replace('void k', 'void __cluster_dims__(4) k')}{ADD}",
        {},
        "",
        "cluster = 4 would be right",
    ),
    "planes": (f"{PLAIN.replace('void k', 'void __cluster_dims__(2, 2) k')}{ADD}", {}, "", "along x only"),
    "no cluster": (PLAIN + ADD, {}, "cluster = 4", "no __cluster_dims__"),
    "constant": (
        "#define R 4\n__constant__ float taps[2 * R];\n" + PLAIN + " x[threadIdx.x] = taps[n & 3]; }",
        {"taps": "constant float32[9]"},
        "",
        "taps has 32 bytes, and the argument taps that fills it has 36",
    ),
    "wider": (PLAIN.replace("int n", "long long n") + ADD, {}, "", "int64"),
    "aliased": (
        f"typedef long long _index; typedef _index index;\n{PLAIN.replace('int n', 'index n')}{ADD}",
        {},
        "",
        "int64",
    ),
    "hidden": ('#include "types.h"\n' + PLAIN.replace("int n", "hidden n") + ADD, {}, "", "takes 8 bytes"),
    "float": (PLAIN.replace("int n", "float n") + ADD, {}, "", "float32"),
    "half": (
        "struct half_bits { unsigned short x; };\n"
        + PLAIN.replace("int n", "half_bits n")
        + " x[0] = n.x; }",
        {"n": "float32 = 1.0"},
        "",
        "takes 2 bytes",
    ),
    "rows": (PLAIN.replace("float* x", "float** x") + " x[0][0] = n; }", {}, "", "addresses"),
    "more": (PLAIN.replace("int n", "int n, int m") + ADD, {}, "", "2 arguments"),
    "value": (PLAIN.replace("float* x", "double x") + " }", {}, "", "it is an array"),
}


@pytest.mark.parametrize("name", MISFITS)
def test_a_launch_that_does_not_fit_is_told_everywhere(tmp_path: Path, name: str) -> None:
    """``check`` says it, a search rules it out, and a simulated device refuses the launch."""
    source, arguments, launch, words = MISFITS[name]
    (tmp_path / "types.h").write_text(
        "template <int B> struct of { typedef long long type; };\ntypedef of<8>::type hidden;\n"
    )
    kernel = kernel_of(tmp_path, source, ARGUMENTS | arguments, launch)
    checked = CliRunner().invoke(main, ["kernels", "check", str(tmp_path / "kernel.toml"), "--arch", "sm_90"])
    assert (checked.exit_code, words in checked.output) == (2, True), checked.output

    device = SimulatedDevice("h200")
    workload = kernel.workload({})
    plan = kernel.plan(workload, kernel.default(workload))
    (found,) = device.resources([plan])
    assert isinstance(found, LaunchMisfitError)
    assert words in str(found)
    assert device.check(plan, 0).status is Status.LAUNCH_ERROR
    device.close()


TYPES = """#ifdef DOUBLES
typedef double real;
#define whole long long
#else
typedef float real;
#define whole int
#endif
"""
FITS = {
    "bounds": (f"{PLAIN.replace('void k', 'void __launch_bounds__(128) k')}{ADD}", {}, ""),
    "dynamic": (
        f"extern __shared__ float s[];\n{PLAIN} s[threadIdx.x] = n; __syncthreads(); x[0] = s[1]; }}",
        {},
        'shared_bytes = "4 * B"',
    ),
    "unused": (f"extern __shared__ float s[];\n{PLAIN}{ADD}", {}, ""),
    "grid": (f"{GRID_BARRIER}{PLAIN} barrier(); {ADD}", {}, "cooperative = true"),
    "cluster": (f"{PLAIN.replace('void k', 'void __cluster_dims__(4) k')}{ADD}", {}, "cluster = 4"),
    "constant": (
        "__constant__ float taps[9];\n" + PLAIN + " x[threadIdx.x] = taps[n & 3]; }",
        {"taps": "constant float32[9]"},
        "",
    ),
    "alias": (
        f"typedef long long _index; typedef _index index;\n{PLAIN.replace('int n', 'index n')}{ADD}",
        {"n": "int64 = N"},
        "",
    ),
    "rows": (PLAIN.replace("float* x", "float** x") + " x[0][0] = n; }", {"x": "inout uint64[N]"}, ""),
    "pairs": (PLAIN.replace("float* x", "float2* x") + " x[0].x = n; }", {"x": "inout complex64[N]"}, ""),
    "bits": (
        PLAIN.replace("float* x", "unsigned short* x") + " x[threadIdx.x] = n; }",
        {"x": "inout bfloat16[N]"},
        "",
    ),
    "type by condition": (TYPES + PLAIN.replace("float* x, int n", "real* x, whole n") + ADD, {}, ""),
    "signature by condition": (
        f"#ifdef DOUBLES\n{PLAIN.replace('float', 'double')}\n#else\n{PLAIN}\n#endif\n{ADD}",
        {},
        "",
    ),
    "registers": (f"{PLAIN.replace('void k', 'void __maxnreg__(32) k')}{ADD}", {}, ""),
}


@pytest.mark.parametrize("name", FITS)
def test_a_launch_that_fits_is_left_alone(tmp_path: Path, name: str) -> None:
    """Neither ``check`` nor a device finds fault with it."""
    source, arguments, launch = FITS[name]
    kernel = kernel_of(tmp_path, source, ARGUMENTS | arguments, launch)
    checked = CliRunner().invoke(
        main, ["kernels", "check", str(tmp_path / "kernel.toml"), "--arch", "sm_90", "--strict"]
    )
    assert checked.exit_code == 0, checked.output
    workload = kernel.workload({})
    device = SimulatedDevice("h200")
    assert device.check(kernel.plan(workload, kernel.default(workload)), 0).status is Status.OK
    device.close()


def test_what_no_gpu_launches_is_pruned(tmp_path: Path) -> None:
    """Blocks past ``__launch_bounds__`` are no candidates, and ``check`` warns of them."""
    source = f"{PLAIN.replace('void k', 'void __launch_bounds__(64) k')}{ADD}"
    kernel = kernel_of(tmp_path, source, values="[64, 128, 256]")
    device = SimulatedDevice("h200")
    (prepared,) = prepare_compiled([(kernel, kernel.workload({}))], device)
    device.close()
    assert [one.configuration["B"] for one in prepared.candidates] == [64]
    assert prepared.pruned == {LaunchMisfitError.reason: 2}
    checked = CliRunner().invoke(main, ["kernels", "check", str(tmp_path / "kernel.toml"), "--arch", "sm_90"])
    assert checked.exit_code == 0
    assert "256 threads per block, and __launch_bounds__ of the source allows 64" in checked.stderr


PTX = """.version 8.8
.target sm_90
.const .align 4 .b8 taps[40];
.extern .shared .align 16 .b8 pool[];
.extern .func  (.param .b32 func_retval0) vprintf(
	.param .b64 vprintf_param_0
)
;
.func  (.param .b32 func_retval0) _Z6helperPfi(
	.param .b64 _Z6helperPfi_param_0
)
{
	{fma.rn.f16x2 %r1,%r2,%r3,%r4;
}
	mov.u64 	%rd4, pool;
	ret;
}
.visible .entry other(
	.param .u32 other_param_0
)
.maxntid 32, 1, 1
{
	ret;
}
.weak .entry _Z1kPf(
	.param .u64 .ptr .global .align 4 _Z1kPf_param_0,
	.param .align 4 .b8 _Z1kPf_param_1[12]
)
.maxntid 8, 4
.minnctapersm 2
{
	call.uni (retval0),
	_Z6helperPfi,
	(
	param0
	);
	ret;
}
"""


def test_an_excerpt_has_what_an_entry_needs() -> None:
    """Functions it calls, their shared memory and the variables asked for; of a whole unit or of itself."""
    text = excerpt(PTX, "_Z1kPf", ("taps",))
    assert excerpt(text, "_Z1kPf", ("taps",)) == text
    assert "other" not in text
    facts = facts_in(text, ("taps",))
    assert facts is not None
    assert facts.parameters == (("u", 8), ("b", 12))
    assert (facts.most_threads, facts.dynamic_shared, facts.symbol_bytes) == (32, True, (40,))
    assert facts_in(excerpt(PTX, "absent")) is None
    other = facts_in(excerpt(PTX, "other"))
    assert other is not None
    assert not other.dynamic_shared
