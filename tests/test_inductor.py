"""``tuner.inductor``: generated kernels are looked up, recorded and tuned; Inductor itself is played here."""

import importlib
import logging
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_triton_in_place import DEVICE, Tensor

from tuner.inductor import around, generated, install
from tuner.kernel_files.catalog import load_kernel_file
from tuner.model.errors import InputError

pytestmark = pytest.mark.triton

SOURCE = """
import triton
import triton.language as tl

from torch._inductor.runtime import triton_helpers, triton_heuristics
from torch._inductor.runtime.triton_helpers import libdevice, math as tl_math
from torch._inductor.runtime.hints import AutotuneHint, ReductionHint, TileHint, DeviceProperties
triton_helpers.set_driver_to_gpu()

@triton_heuristics.pointwise(
    size_hints={'x': 1024},
    filename=__file__,
    triton_meta={'signature': {'in_ptr0': '*fp32', 'out_ptr0': '*fp32', 'xnumel': 'i32'},
        'device': DeviceProperties(type='cuda', index=0, cc=90), 'constants': {}, 'native_matmul': False},
    inductor_meta={'grid_type': 'Grid1D', 'kernel_name': 'triton_poi_fused_mul_3', 'deterministic': False},
    min_elem_per_thread=0
)
@triton.jit
def triton_poi_fused_mul_3(in_ptr0, out_ptr0, xnumel, XBLOCK : tl.constexpr):
    xnumel = 1000
    xoffset = tl.program_id(0) * XBLOCK
    xindex = xoffset + tl.arange(0, XBLOCK)[:]
    xmask = xindex < xnumel
    tmp0 = tl.load(in_ptr0 + (xindex), xmask)  # of a layer
    tl.store(out_ptr0 + (xindex), tmp0 * 2.0, xmask)
"""
NAME = "triton_poi_fused_mul_3"
USERS = SOURCE.replace(
    "pointwise(", "user_autotune(\n    configs=[{'XBLOCK': 64}, {'XBLOCK': 128}],"
).replace("Grid1D", "PrecomputedGrid")
FIRST = {"XBLOCK": 256, "num_warps": 4, "num_stages": 1}


def read(source: str = SOURCE, name: str = NAME) -> Any:
    found = generated(name, source)
    assert found is not None
    return found


class Played:
    """Inductor: what it was given to compile, and what it launched."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        played = self
        self.compiled: list[str] = []
        self.launched: list[dict[str, int]] = []

        class CachingAutotuner:
            def __init__(self, name: str, source: str) -> None:
                self.fn = SimpleNamespace(__name__=name, fn=name)
                path = folder / f"c{len(played.compiled)}.py"
                path.write_text(source)
                self.filename = str(path)
                self.launchers: list[Any] = []
                self.triton_meta: dict[str, Any] = {"constants": {}}
                self.mutated_arg_names: list[str] = []
                self.reset_to_zero_arg_names: list[str] = []
                self.size_hints = {"x": 1024}
                self.lock = threading.Lock()

            def run(self, *args: Any, stream: int) -> int:
                self.launchers = self.launchers or [SimpleNamespace(config=as_config(FIRST))]
                played.launched.append(as_dict(self.launchers[0].config))
                return len(args) + stream

            def _precompile_config(self, cfg: Any) -> Any:
                return SimpleNamespace(make_launcher=lambda: SimpleNamespace(config=cfg))

            def _interpret_args_grid(self, args: Any, cfg: Any) -> Any:
                return args, (-(-1000 // cfg.kwargs["XBLOCK"]), 1, 1)

        class AsyncCompile:
            def triton(self, kernel_name: str, source_code: str, device_str: str = "cuda") -> Any:
                played.compiled.append(source_code)
                assert device_str == "cuda"
                return CachingAutotuner(kernel_name, source_code)

        def as_config(config: dict[str, int]) -> Any:
            options = {one: config[one] for one in ("num_warps", "num_stages")}
            return importlib.import_module("triton").Config({"XBLOCK": config["XBLOCK"]}, **options)

        def as_dict(config: Any) -> dict[str, int]:
            return {**config.kwargs, "num_warps": config.num_warps, "num_stages": config.num_stages}

        def fixed_config(config: Any, filename: str, triton_meta: Any, inductor_meta: Any) -> None: ...
        def user_autotune(configs: Any, triton_meta: Any) -> None: ...

        self.workers, self.autotuner = AsyncCompile, CachingAutotuner
        cuda = SimpleNamespace(is_available=lambda: False)
        self.heuristics = self._module(
            monkeypatch,
            "torch._inductor.runtime.triton_heuristics",
            CachingAutotuner=CachingAutotuner,
            config_from_dict=as_config,
            config_to_dict=as_dict,
            fixed_config=fixed_config,
            user_autotune=user_autotune,
        )
        self._module(monkeypatch, "torch", __version__="2.11.0+cu130", cuda=cuda)
        self._module(monkeypatch, "torch._inductor.async_compile", AsyncCompile=AsyncCompile)
        self._module(monkeypatch, "torch._inductor.runtime.hints", TRITON_MAX_BLOCK={"X": 4096, "R0_": 65536})

    @staticmethod
    def _module(monkeypatch: pytest.MonkeyPatch, name: str, **members: Any) -> Any:
        module = ModuleType(name)
        vars(module).update(members)
        monkeypatch.setitem(sys.modules, name, module)
        return module

    def call(
        self,
        source: str = SOURCE,
        name: str = NAME,
        times: int = 1,
        change: Callable[[Any], None] = lambda _kernel: None,
    ) -> None:
        """Compile a kernel, and launch it."""
        kernel = self.workers().triton(name, source, device_str="cuda")
        change(kernel)
        for _ in range(times):
            arrays = [Tensor(np.ones(1000, np.float32)) for _ in range(2)]
            assert kernel.run(*arrays, 1000, stream=0) == 3


@pytest.fixture
def played(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Played:
    (tmp_path / "cache").mkdir()
    return Played(tmp_path / "cache", monkeypatch)


def test_what_was_tuned_is_stated_before_anything_is_compiled(played: Played, tmp_path: Path) -> None:
    """A search behind the first launch; later processes compile its answer alone, whatever the number."""
    given = {"device": DEVICE, "database": tmp_path / "db.sqlite"}
    own = played.workers.triton, played.autotuner.run
    tuned = install("tune", **given, policy="exhaustive")
    played.call(times=2)
    best = played.launched[1]
    assert played.compiled == [SOURCE]
    assert list(tuned.kernels.values()) == ["tuned"]

    found = install("lookup", **given)
    assert played.autotuner.run is own[1]
    renumbered = SOURCE.replace("mul_3", "mul_17").replace("# of a layer", "# of another layer")
    played.call(renumbered, "triton_poi_fused_mul_17")
    assert "triton_heuristics.fixed_config(config={" in played.compiled[-1]
    assert (
        f"'XBLOCK': {best.all_kwargs()['XBLOCK']}" in played.compiled[-1]
        if hasattr(best, "all_kwargs")
        else 1
    )
    assert read(played.compiled[-1], "triton_poi_fused_mul_17").text == read().text
    other = SOURCE.replace("1000", "2000").replace("1024", "2048")
    played.call(other)
    assert played.compiled[-1] == other
    assert sorted(found.kernels.values()) == ["answered", "without an answer"]
    assert found.lookup_s > 0
    assert "1 answered, 1 without an answer" in str(found)
    found.undo()
    assert (played.workers.triton, played.autotuner.run) == own


def test_a_record_is_a_kernel_file_with_a_file_of_its_own(played: Played, tmp_path: Path) -> None:
    """It stands by itself, and has Inductor's choice first; a kernel is recorded once."""
    folder = tmp_path / "records"
    done = install(f"record:{folder}", device=DEVICE, database=tmp_path / "db.sqlite", budget=7)
    try:
        for _ in range(2):
            played.call(times=2)
    finally:
        done.undo()

    (path,) = folder.glob("triton-*.toml")
    file = load_kernel_file(path)
    (workload,) = file.workloads()
    default = dict(file.default(workload).items())
    assert default == FIRST | {"num_ctas": 1}
    space = [dict(one.items()) for one in file.space(workload)]
    assert sorted({one["XBLOCK"] for one in space}) == [64, 128, 256, 512, 1024]
    assert file.plan(workload, file.default(workload)).stages[0].grid == (4, 1, 1)
    assert "torch" not in path.with_suffix(".py").read_text().replace("torch.compile", "")
    assert "budget = 7" in (folder / "sweep.toml").read_text()
    assert list(done.kernels.values()) == ["recorded"]


def test_functions_of_users_keep_their_configurations() -> None:
    """Their list is what may be tried, and what an answer is stated in."""
    kernel = read(USERS)
    assert (kernel.tuned, kernel.free) == (True, False)
    stated = kernel.stating({"XBLOCK": 128, "num_warps": 4, "num_ctas": 1})
    assert "user_autotune(configs=[{'XBLOCK': 128, 'num_warps': 4}]" in stated
    assert kernel.problem != read(USERS.replace("'XBLOCK': 64", "'XBLOCK': 32")).problem


@pytest.mark.parametrize(
    "change",
    [
        ("pointwise(", "template("),
        ("pointwise(", "cooperative_reduction("),
        ("'Grid1D'", "'MixOrderReductionGrid'"),
        ("'deterministic': False", "'deterministic': True"),
        ("'native_matmul': False", "'native_matmul': True"),
        ("'Grid1D'", "'Grid1D', 'RSPLIT_SIZE': 64"),
        ("'Grid1D'", "'Grid1D', 'tma_min_block_sizes': {'XBLOCK': 8}"),
    ],
)
def test_blocks_that_must_stay_are_left(change: tuple[str, str]) -> None:
    """Neither answers nor other sizes of blocks go where Inductor's own are bound."""
    assert not read(SOURCE.replace(*change)).tuned


@given(
    st.dictionaries(
        st.sampled_from(["XBLOCK", "YBLOCK", "R0_BLOCK", "num_warps", "num_stages"]),
        st.integers(0, 5).map(lambda power: 2**power),
        min_size=1,
    ),
    st.integers(0, 6).map(lambda power: 2**power),
)
def test_what_may_be_tried_is_near(config: dict[str, int], most: int) -> None:
    """The first is the one that was chosen; no block is larger than it may be, and none is tried twice."""
    found = around(config, {"XBLOCK": most, "YBLOCK": most, "R0_BLOCK": most})
    assert found[0] == config
    assert len({tuple(one.items()) for one in found}) == len(found)
    for one in found:
        for name, value in one.items():
            limit = 32 if name == "num_warps" else most if name.endswith("BLOCK") else config[name]
            assert value == config[name] or 1 <= value <= limit


def changed_signature(played: Played) -> None:
    played.heuristics.fixed_config = played.heuristics.config_from_dict


def without_grid(played: Played) -> None:
    del played.autotuner._interpret_args_grid


@pytest.mark.parametrize(
    ("version", "change", "words"),
    [
        ("2.10.1", None, "PyTorch 2.10.1 is not among the versions that are known, 2.11 to 2.15"),
        ("2.16.0", None, "PyTorch 2.16.0 is not among"),
        ("2.13.0", changed_signature, "fixed_config of PyTorch 2.13.0 has not the parameters"),
        ("2.14.1", without_grid, "_interpret_args_grid of PyTorch 2.14.1 has not"),
    ],
)
def test_an_unknown_inductor_is_left_alone(
    version: str,
    change: Callable[[Played], None] | None,
    words: str,
    played: Played,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Nothing is replaced, and a line of the log says why, once."""
    vars(sys.modules["torch"])["__version__"] = version
    if change is not None:
        change(played)
    own = played.workers.triton, played.autotuner.run
    with caplog.at_level(logging.WARNING):
        done = [install("tune"), install("tune")]
    assert (played.workers.triton, played.autotuner.run) == own
    assert all(words in one.refused for one in done)
    assert [words in one.getMessage() for one in caplog.records] == [True]


def test_what_cannot_be_done_is_told_and_inductor_goes_on(
    played: Played, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """No database, a source that is none of Inductor's, another launch, what was pickled elsewhere."""
    database = tmp_path / "none.sqlite"
    cases: list[tuple[str, Callable[[], None], str]] = [
        ("lookup", played.call, "there is no database"),
        (
            "tune",
            lambda: played.call(SOURCE.replace("in_ptr0, out_ptr0,", "in_ptr0, in_ptr1, out_ptr0,")),
            "4 parameters",
        ),
        ("tune", lambda: played.call(change=lambda own: vars(own).pop("size_hints")), "AttributeError"),
        ("record", lambda: played.call(change=lambda own: Path(own.filename).unlink()), "is not here, as of"),
        ("lookup", lambda: played.call("def ("), "invalid syntax"),
        ("lookup", lambda: played.call("def other(): pass"), ""),
    ]
    for mode, call, words in cases:
        caplog.clear()
        done = install(mode, device=DEVICE, database=database)
        with caplog.at_level(logging.WARNING):
            call()
        done.undo()
        told = [one.getMessage() for one in caplog.records]
        assert [words in one for one in told] == ([True] if words else []), (words, told)
        assert played.launched[-1] == FIRST


@pytest.mark.parametrize(
    ("mode", "options", "words"),
    [("tuned", {}, "did you mean 'tune'"), (None, {"budgt": 3}, "did you mean 'budget'")],
)
def test_bad_arguments_are_refused(
    played: Played, mode: str | None, options: dict[str, Any], words: str
) -> None:
    """The message names the argument, and nothing is replaced."""
    own = played.workers.triton
    with pytest.raises(InputError) as refused:
        install(mode, **options)
    assert words in str(refused.value)
    assert played.workers.triton is own


class Driver:
    """A driver of Triton's for a GPU that is not there."""

    def get_current_target(self) -> Any:
        return importlib.import_module("triton.backends.compiler").GPUTarget("cuda", 90, 32)

    def get_active_torch_device(self) -> Any:
        return importlib.import_module("torch").device("cpu")


@pytest.mark.filterwarnings("ignore::Warning")  # of PyTorch's own modules
def test_what_this_pytorch_generates_is_read(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Its seams are known, and of what it writes every kernel can state an answer and be loaded with it."""
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    torch = pytest.importorskip("torch", reason="needs PyTorch")
    settings = importlib.import_module("torch._inductor.config")
    workers = importlib.import_module("torch._inductor.async_compile").AsyncCompile
    codecache = importlib.import_module("torch._inductor.codecache")
    written: dict[str, str] = {}

    def compiled(_own: Any, name: str, source: str, device_str: str) -> Any:
        written[name] = source.replace(f"set_driver_to_{device_str}", "get_backend_options")
        return SimpleNamespace(run=lambda *_, **__: None)

    importlib.import_module("triton").runtime.driver.set_active(Driver())
    monkeypatch.setattr(workers, "triton", compiled)
    monkeypatch.setattr(settings, "cpu_backend", "triton")
    monkeypatch.setattr(settings, "force_disable_caches", True)

    def model(x: Any, y: Any) -> Any:
        return torch.softmax(x, -1), x.sum(), y.cos() * 2

    torch.compile(model)(torch.ones(64, 64), torch.ones(1000))
    assert len(written) >= 3
    for name, source in written.items():
        kernel = read(source, name)
        assert kernel.tuned, source
        values = {"XBLOCK": 1, "num_warps": 4, "num_stages": 1}
        loaded = getattr(codecache.PyCodeCache.load(kernel.stating(values)), name)
        (config,) = loaded.configs
        assert config.num_warps == 4
        assert loaded.fn.arg_names[: len(kernel.passed)] == kernel.passed
    monkeypatch.undo()
    done = install()
    done.undo()
    assert not done.refused
