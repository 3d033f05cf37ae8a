"""``tuner.triton`` in the place of ``triton.autotune``; launches end where Triton would make them."""

import importlib
import itertools
import logging
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tuner.cli.main import main
from tuner.kernel_files.catalog import load_kernel_file
from tuner.model.errors import InputError
from tuner.python.kernel import Kernel

pytestmark = pytest.mark.triton

DATA = Path(__file__).parent / "data" / "triton"
DEVICE = "sim:h200"


class Tensor:
    """A tensor, as far as it is asked."""

    def __init__(self, values: Any, address: int = 4096) -> None:
        self._values, self._address = values, address
        self.dtype, self.shape = f"torch.{values.dtype.name}", values.shape

    def data_ptr(self) -> int:
        return self._address

    def __array__(self, *_: object, **__: object) -> Any:
        return self._values

    def reshape(self, shape: tuple[int, ...]) -> "Tensor":
        return Tensor(self._values.reshape(shape), self._address)


def floats(size: int = 1000, address: int = 4096) -> Tensor:
    return Tensor(np.ones(size, np.float32), address)


def ours() -> Any:
    return importlib.import_module("tuner.triton")


def theirs() -> Any:
    return importlib.import_module("triton")


@pytest.fixture
def database(tmp_path: Path) -> Path:
    return tmp_path / "db.sqlite"


@pytest.fixture
def launches(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What reaches Triton's launcher: values by name, behind all that decides them."""
    jit = importlib.import_module("triton.runtime.jit")
    seen: list[dict[str, Any]] = []
    monkeypatch.setattr(
        jit.JITFunction,
        "run",
        lambda self, *args, **kwargs: seen.append(dict(zip(self.arg_names, args, strict=False)) | kwargs),
    )
    return seen


def configs_of(blocks: Sequence[int] = (256, 512), **more: Any) -> list[Any]:
    return [theirs().Config({"BLOCK": block}, num_warps=2 + 2 * (block > 256), **more) for block in blocks]


def jitted(name: str) -> Any:
    if str(DATA) not in sys.path:
        sys.path.insert(0, str(DATA))
    return getattr(importlib.import_module("kernels"), name)


def grid(meta: Any) -> tuple[int]:
    return (-(-meta["n"] // meta["BLOCK"]),)


def launch(function: Any, n: int = 1000, address: int = 4096) -> None:
    function[grid](floats(n, address), floats(n), floats(n), n, 0.5, False)


def made(database: Path, mode: str, **more: Any) -> Any:
    given = {"configs": configs_of(), "key": ["n"], "device": DEVICE, "database": database} | more
    return ours().autotune(mode=mode, **given)(jitted("scaled_sum"))


def test_a_search_in_place_is_looked_up_afterwards(database: Path, launches: list[dict[str, Any]]) -> None:
    """What is tuned with a call's arguments is the answer of later processes, of this key and these types."""
    tuned = made(database, "tune", policy="exhaustive")
    launch(tuned)
    best = launches[-1]["BLOCK"]
    other = [one for one in configs_of() if one.kwargs["BLOCK"] != best]
    first_is_another = other + [one for one in configs_of() if one.kwargs["BLOCK"] == best]
    found = made(database, "lookup", configs=first_is_another)

    launch(found)
    assert launches[-1]["BLOCK"] == best == found.best_config.kwargs["BLOCK"]
    for changed in ({"n": 1008}, {"address": 4100}):
        launch(found, **changed)
        assert launches[-1]["BLOCK"] != best, changed
    assert isinstance(found, theirs().runtime.autotuner.Autotuner)
    assert [found.keys, found.perf_model, found.early_config_prune, found.configs_top_k] == [
        ["n"],
        None,
        None,
        1.0,
    ]


def test_gpus_have_answers_of_their_own(database: Path, launches: list[dict[str, Any]]) -> None:
    """An answer of one GPU is none of another, however the arrays are passed."""
    tuned = made(database, "lookup")
    for number, named in itertools.product((0, 1, 1), (False, True)):
        arrays = {name: floats() for name in ("out", "x", "y")}
        for array in arrays.values():
            vars(array)["device"] = number
        places, names = ((), arrays) if named else (tuple(arrays.values()), {})
        tuned[grid](*places, **names, n=1000, scale=0.5, negate=False)

    assert len(launches) == 6
    assert len(vars(tuned)["_tuned"].kept) == 4


def test_what_is_recorded_is_tuned_offline(
    database: Path,
    launches: list[dict[str, Any]],
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """Kernel files and a sweep file are written, once per key; a sweep of them is what a lookup finds."""
    folder = tmp_path / "records"
    folder.mkdir()
    (folder / "pyproject.toml").write_text("[project]\n")  # none of ours
    recording = made(database, f"record:{folder}", configs=configs_of((256, 512, 1024)))
    for n in (1000, 1000, 5000):
        launch(recording, n)
    assert {one["BLOCK"] for one in launches} == {256}
    assert len(list(folder.glob("scaled-sum-*.toml"))) == 2

    arguments = ["sweep", str(folder / "sweep.toml"), "--on", "local", "--database", str(database)]
    with pytest.raises(SystemExit) as ended:
        main(arguments, standalone_mode=False)

    assert ended.value.code == 0
    assert "2 finished" in capfd.readouterr().out
    late = configs_of((64, 256, 512, 1024))
    found = made(database, "lookup", configs=late)
    launch(found)
    assert launches[-1]["BLOCK"] in (256, 512, 1024)


def test_a_sweep_of_somebody_is_kept(
    database: Path, launches: list[dict[str, Any]], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Records go to no folder that has a sweep of other things."""
    (tmp_path / "sweep.toml").write_text("[sweep]\n")
    with caplog.at_level(logging.WARNING):
        launch(made(database, f"record:{tmp_path}"))
    assert "sweep.toml is none of recorded launches" in caplog.text
    assert [path.name for path in tmp_path.glob("*.toml")] == ["sweep.toml"]
    assert (tmp_path / "sweep.toml").read_text() == "[sweep]\n"
    assert len(launches) == 1


def test_a_record_has_the_configurations_and_their_grids(
    tmp_path: Path, launches: list[dict[str, Any]]
) -> None:
    """Of configurations, some with a limit of registers, all are there, none else, with their grids."""
    every = itertools.product((32, 64, 128), (32, 64, 128), (32, 64), (4, 8), (2, 3))
    configs = [
        theirs().Config(
            {"TILE_M": m, "TILE_N": n, "TILE_K": k},
            num_warps=w,
            num_stages=s,
            maxnreg=128 if w == 8 else None,
        )
        for m, n, k, w, s in itertools.islice(every, 0, None, 3)
    ]
    function = ours().autotune(configs, ["M"], device=DEVICE, mode=f"record:{tmp_path}")(jitted("matmul"))
    half = Tensor(np.ones((100, 100), np.float16))
    function[lambda meta: (-(-100 // meta["TILE_M"]), meta["M"] // meta["TILE_N"] + meta["num_warps"])](
        half, half, half, 100, 100, 100
    )

    (path,) = tmp_path.glob("matmul-*.toml")
    file = load_kernel_file(path)
    (workload,) = file.workloads()
    space = list(file.space(workload))
    own: list[dict[str, Any]] = [dict(one.items()) for one in space]
    names = ("TILE_M", "TILE_N", "TILE_K", "num_warps", "num_stages", "num_ctas")
    assert sorted(tuple(one[name] for name in names) for one in own) == sorted(
        tuple(one.all_kwargs()[name] for name in names) for one in configs
    )
    for values, one in zip(own, space, strict=True):
        rows, columns, _ = file.plan(workload, one).stages[0].grid
        assert rows == -(-100 // values["TILE_M"])
        assert columns == 100 // values["TILE_N"] + values["num_warps"]
        assert values["maxnreg"] == (128 if values["num_warps"] == 8 else 0)
    assert launches[-1]["TILE_M"] == configs[0].kwargs["TILE_M"]


def test_a_number_that_no_type_holds_is_refused() -> None:
    """The message names the argument."""
    x = np.ones(16, np.float32)
    given = {"out": x, "x": x, "y": x, "n": 2**70, "scale": 0.5, "negate": False}
    with pytest.raises(InputError, match="n: 1180591620717411303424 does not fit 64 bits"):
        Kernel(jitted("scaled_sum"), arguments=given, grid=1, tunables={"BLOCK": [256]})


def test_an_index_is_recorded_with_its_values(tmp_path: Path, launches: list[Any]) -> None:
    """Whole numbers of an array stay as they were, as a kernel may load from where they point."""
    configs = configs_of()
    given = {"device": DEVICE, "mode": f"record:{tmp_path}", "restore_value": ["counts"]}
    function = ours().autotune(configs, ["n"], **given)(jitted("histogram"))
    values = Tensor(np.arange(1000, dtype=np.int32) % 7)
    function[grid](Tensor(np.zeros(7, np.int32)), values, 1000)

    (path,) = tmp_path.glob("*-values.npy")
    assert np.array_equal(np.load(path), values)
    (file,) = tmp_path.glob("histogram-*.toml")
    assert file.read_text().count("restored = true") == 1
    assert launches[-1]["BLOCK"] == 256


def test_a_number_on_the_gpu_is_an_array_of_one(tmp_path: Path, launches: list[Any]) -> None:
    """Triton takes a tensor without axes by its address, and so does a record."""
    function = ours().autotune(configs_of(), ["n"], device=DEVICE, mode=f"record:{tmp_path}")(
        jitted("scaled_sum")
    )
    function[grid](Tensor(np.zeros((), np.float32)), floats(1), floats(1), 1, 0.5, False)

    (file,) = tmp_path.glob("scaled-sum-*.toml")
    assert file.read_text().count("shape = [1]") == 3
    assert launches


def test_a_changed_function_has_no_answer(
    launches: list[dict[str, Any]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The code of a callee in another module is part of what an answer is for."""
    monkeypatch.syspath_prepend(tmp_path)
    kernel = (
        "import triton\nimport triton.language as tl\nfrom callee_in_place import f\n\n@triton.jit\n"
        "def k(out, n, BLOCK: tl.constexpr):\n    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)\n"
        "    tl.store(out + at, f(at), mask=at < n)\n"
    )
    (tmp_path / "kernel_in_place.py").write_text(kernel)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    names: list[str] = []
    for factor in (2, 3, 2):
        (tmp_path / "callee_in_place.py").write_text(
            f"import triton\n\n@triton.jit\ndef f(x):\n    return x * {factor}\n"
        )
        for module in ("kernel_in_place", "callee_in_place"):
            sys.modules.pop(module, None)
        importlib.invalidate_caches()
        function = importlib.import_module("kernel_in_place").k
        folder = tmp_path / f"records-{len(names)}"
        ours().autotune(configs_of(), ["n"], device=DEVICE, mode=f"record:{folder}")(function)[grid](
            floats(), 1000
        )
        names += [one.name for one in folder.glob("k-*.toml")]

    assert names[0] == names[2] != names[1]
    assert len(launches) == 3


def test_hooks_pruning_and_heuristics_are_honoured(database: Path, launches: list[dict[str, Any]]) -> None:
    """A configuration's hook runs before each launch; pruning decides what is first; heuristics run below."""
    hooked: list[Any] = []
    configs = configs_of((256, 512, 1024), pre_hook=hooked.append)
    below = theirs().heuristics({"EVEN": lambda given: given["cols"] % given["BLOCK"] == 0})(
        jitted("softmax").fn
    )
    function = ours().autotune(
        configs,
        ["cols"],
        {
            "early_config_prune": lambda every, given, **_: [
                one for one in every if one.kwargs["BLOCK"] >= given["cols"]
            ]
        },
        device=DEVICE,
        database=database,
    )(below)

    for _ in range(2):
        function[(64,)](floats(), floats(), 512)

    assert [(one["BLOCK"], one["EVEN"]) for one in launches] == [(512, True)] * 2
    assert [one["BLOCK"] for one in hooked] == [512] * 2


def test_what_cannot_be_done_is_told_once(
    database: Path, launches: list[dict[str, Any]], caplog: pytest.LogCaptureFixture
) -> None:
    """The first configuration is used, and a line of the log says why."""
    tuned = made(database, "tune")
    launch(tuned)
    cases: list[tuple[Callable[[], Any], str]] = [
        (lambda: made(database.with_name("none"), "lookup"), "there is no database"),
        (
            lambda: made(database, "lookup", configs=configs_of((64, 128))),
            "is not among",
        ),
        (lambda: made(database, "lookup", device="cuda:63"), "cuda:63"),
        (
            lambda: made(database, "tune", configs=configs_of((32, 64), pre_hook=print)),
            "pre_hook",
        ),
    ]
    for make, words in cases:
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            for _ in range(2):
                launch(make())
        assert [words in one.getMessage() for one in caplog.records] == [True], (words, caplog.text)
        assert "the first configuration is used" in caplog.text
        assert launches[-1]["BLOCK"] == launches[-2]["BLOCK"]


def test_install_serves_unmodified_code_until_it_is_undone(
    database: Path, launches: list[dict[str, Any]]
) -> None:
    """Functions decorated before and after take their answers from here; undoing gives Triton's own back."""
    launch(made(database, "tune", policy="exhaustive"))
    best = launches[-1]["BLOCK"]
    order = sorted(configs_of(), key=lambda one: one.kwargs["BLOCK"] == best)
    before = theirs().autotune(order, ["n"])(jitted("scaled_sum"))
    own = theirs().runtime.autotuner.Autotuner.run
    done = ours().install(device=DEVICE, database=database)
    try:
        after = theirs().autotune(order, ["n"])(jitted("scaled_sum"))
        for function in (before, after):
            launch(function)
            assert launches[-1]["BLOCK"] == best
        assert "lookup" in str(done)
        assert "undo()" in str(done)
    finally:
        done.undo()
    assert theirs().runtime.autotuner.Autotuner.run is own
    assert "_tuned" not in vars(before)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"configs": []}, "configs: none are given"),
        ({"key": ["m"]}, "no parameter 'm'"),
        ({"budgt": 3}, "did you mean 'budget'"),
        ({"mode": "tuned"}, "did you mean 'tune'"),
        ({"mode": "tune:x"}, "choose from"),
    ],
)
def test_bad_arguments_are_refused(change: dict[str, Any], words: str) -> None:
    """The message names the argument, before anything is launched."""
    with pytest.raises(InputError) as refused:
        ours().autotune(**{"configs": configs_of(), "key": ["n"]} | change)(jitted("scaled_sum"))

    assert words in str(refused.value)


def test_a_plain_function_and_two_meanings_are_refused(launches: list[Any]) -> None:
    """A function that is not jitted cannot be decorated, and no parameter has two values."""
    with pytest.raises(InputError, match="is not jitted"):
        ours().autotune(configs_of(), [])(grid)
    function = ours().autotune(configs_of(), ["n"], device=DEVICE)(jitted("histogram"))
    with pytest.raises(InputError, match="BLOCK: given by the call and by configs"):
        function[(4,)](floats(), floats(), 1000, BLOCK=64)
    assert launches == []
