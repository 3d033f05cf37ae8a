"""One script of Kernel Tuner in a process of its own, its calls of ``tune_kernel`` watched.

``kernel_tuner`` runs it as it is (CuPy backend), ``tuner`` with ``tuner.kernel_tuner`` in the place of
``kernel_tuner``. ``neutral`` times the best configurations that both found, call by call, with CUDA events.

    python kernel_tuner_examples_child.py MODE SCRIPT OUT.json [--most 32] [--found A.json B.json]
"""

import argparse
import itertools
import json
import math
import runpy
import sys
import tempfile
import time
import traceback
import types
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from kernel_tuner_child import repair

Call = dict[str, Any]

_ALL = 200_000  # combinations that are counted one by one
_LAUNCHES = 200


def main() -> None:
    """Run the script and write what its calls gave, also where it fails."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("mode", choices=("kernel_tuner", "tuner", "neutral"))
    parser.add_argument("script", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--most", type=int, default=32, help="configurations of a call at most")
    parser.add_argument("--found", type=Path, nargs=2, help="what the two tuners found, for neutral")
    options = parser.parse_args()
    sys.modules["torch"] = None  # type: ignore[assignment] # as where it is not installed
    calls: list[Call] = []
    error = ""
    try:
        install(options, calls)
        sys.argv = [str(options.script)]
        sys.path.insert(0, str(options.script.parent))
        runpy.run_path(str(options.script), run_name="__main__")
    except (Exception, SystemExit) as raised:  # noqa: BLE001 - a script may end by anything
        traceback.print_exc()
        error = f"{type(raised).__name__}: {raised}"
    options.out.write_text(json.dumps({"calls": calls, "error": error}, default=str))


def install(options: argparse.Namespace, calls: list[Call]) -> None:
    """Put the tuner of the mode where scripts import Kernel Tuner from, its ``tune_kernel`` watched."""
    if options.mode == "kernel_tuner":
        import kernel_tuner  # noqa: PLC0415 - only for this mode

        repair("cupy")
        plain_run = kernel_tuner.run_kernel
        kernel_tuner.run_kernel = lambda *args, **kwargs: plain_run(*args, **{**kwargs, "lang": "CUPY"})
        kernel_tuner.tune_kernel = watched(kernel_tuner.tune_kernel, calls, options.most, lang="CUPY")
        return
    from tuner import kernel_tuner as door  # noqa: PLC0415 - only for these modes

    if options.mode == "tuner":
        tune_kernel = watched(door.tune_kernel, calls, options.most)
    else:
        found = [json.loads(path.read_text())["calls"] for path in options.found]
        tune_kernel = neutral(found, calls)
    module = types.ModuleType("kernel_tuner")
    vars(module).update({name: getattr(door, name) for name in door.__all__} | {"tune_kernel": tune_kernel})
    sys.modules["kernel_tuner"] = module
    for name in ("util", "file_utils", "strategies"):
        sys.modules[f"kernel_tuner.{name}"] = getattr(door, name)


def watched(
    tune_kernel: Callable[..., Any], calls: list[Call], most: int, **fixed: Any
) -> Callable[..., Any]:
    """``tune_kernel`` on thinned value lists, with the best and the wall time noted."""

    def call(*args: Any, **kwargs: Any) -> Any:
        given = named(args, kwargs)
        given["tune_params"] = thinned(given["tune_params"], given.get("restrictions"), most)
        begun = time.perf_counter()
        results, env = tune_kernel(**{**given, **fixed})
        valid = [one for one in results if isinstance(one.get("time"), float) and "__error__" not in one]
        best = min(valid, key=lambda one: one["time"], default=None)
        calls.append(
            {
                "kernel": given["kernel_name"],
                "results": len(results),
                "valid": len(valid),
                "wall_s": time.perf_counter() - begun,
                "best": None if best is None else {name: best[name] for name in given["tune_params"]},
                "best_ms": None if best is None else best["time"],
                "rows": [
                    {k: v for k, v in one.items() if isinstance(v, int | float | str)} for one in results
                ],
            }
        )
        return results, env

    return call


def named(args: Sequence[Any], kwargs: Mapping[str, Any]) -> Call:
    """All arguments by name."""
    import inspect  # noqa: PLC0415 - beside what needs it

    from tuner.kernel_tuner import tune_kernel  # noqa: PLC0415 - the same parameters in both

    return dict(inspect.signature(tune_kernel).bind(*args, **kwargs).arguments)


def thinned(tune_params: Mapping[str, Any], restrictions: Any, most: int) -> dict[str, list[Any]]:
    """Value lists without every other value, the longest first, until few enough combinations are left."""
    from tuner.kernel_tuner.translation import rules_of  # noqa: PLC0415 - beside what needs it

    lists = {name: list(values) for name, values in tune_params.items()}
    rules = rules_of(restrictions, list(lists))

    def count(lists: Mapping[str, list[Any]]) -> int:
        if math.prod(map(len, lists.values())) > _ALL:
            return _ALL
        rows = (dict(zip(lists, row, strict=True)) for row in itertools.product(*lists.values()))
        return sum(all(rule.evaluate(row) for rule in rules) for row in rows)

    while count(lists) > most:
        longest = max(lists, key=lambda name: len(lists[name]))
        fewer = {**lists, longest: lists[longest][::2]}
        if fewer == lists or not count(fewer):
            break
        lists = fewer
    return lists


# --- the neutral timer ---------------------------------------------------------------------------


def neutral(found: Sequence[Sequence[Call]], calls: list[Call]) -> Callable[..., Any]:
    """A ``tune_kernel`` that times what both tuners chose, and returns what Kernel Tuner did."""

    def call(*args: Any, **kwargs: Any) -> Any:
        number = len(calls)
        theirs, ours = found[0][number], found[1][number]
        note: Call = {"kernel": theirs["kernel"]}
        calls.append(note)
        if theirs["best"] is not None and ours["best"] is not None and theirs["best"] != ours["best"]:
            note.update(timed(named(args, kwargs), theirs["best"], ours["best"]))
        return theirs["rows"], {"best_config": theirs["best"]}

    return call


def timed(given: Call, theirs: Mapping[str, Any], ours: Mapping[str, Any]) -> Call:
    """Milliseconds of two configurations, in turn: behind a launch of the same, and with a cold L2."""
    import cupy  # noqa: PLC0415 - only for this mode
    from cold_timing import Timer, median, spread  # noqa: PLC0415 - only for this mode
    from kernel_tuner_neutral import warm_times  # noqa: PLC0415 - only for this mode

    runs = {0: run_of(cupy, given, theirs), 1: run_of(cupy, given, ours)}
    cold = Timer(cupy).interleaved({str(key): run for key, run in runs.items()}, _LAUNCHES, seed=1)
    warm = warm_times(cupy, runs)
    return {
        "warm_ms": [median(warm[key]) for key in runs],
        "cold_ms": [median(cold[str(key)]) for key in runs],
        "cold_spread_ms": [spread(cold[str(key)]) for key in runs],
    }


def run_of(cp: Any, given: Call, values: Mapping[str, Any]) -> Callable[[], None]:
    """One launch of a configuration on arrays of its own."""
    from tuner.kernel_tuner.translation import read_call  # noqa: PLC0415 - only for this mode
    from tuner.model.plan import Source, Stage  # noqa: PLC0415 - only for this mode

    shared = ("smem_args", "cmem_args", "compiler_options", "defines", "block_size_names", "lang")
    call = read_call(
        *(given[name] for name in ("kernel_name", "kernel_source", "problem_size", "arguments")),
        {name: [value] for name, value in values.items()},
        grid_div=(given.get("grid_div_x"), given.get("grid_div_y"), given.get("grid_div_z")),
        **{name: given.get(name) for name in shared},
    )
    plain = Stage("", Source("", ""), "", (), (1, 1, 1), (1, 1, 1), 0, ())
    stage = call.launch(plain, dict(values))
    with tempfile.TemporaryDirectory() as folder:
        for name, text in stage.source.headers:
            (Path(folder) / name).parent.mkdir(parents=True, exist_ok=True)
            (Path(folder) / name).write_text(text)
        options = (*stage.options, "--std=c++17", f"-I{folder}")
        module = cp.RawModule(code=stage.source.text, options=options, name_expressions=[stage.entry])
        function = module.get_function(stage.entry)
    function.max_dynamic_shared_size_bytes = max(stage.shared_bytes, 0)
    for one in call.constants:
        array = one.stored
        cp.ndarray(array.shape, array.dtype, module.get_global(one.name))[...] = cp.asarray(array)
    arguments = [cp.asarray(one.stored) if hasattr(one, "array") else one.value for one in call.arguments]
    return lambda: function(stage.grid, stage.block, arguments, shared_mem=stage.shared_bytes)


if __name__ == "__main__":
    np.random.seed(0)  # noqa: NPY002 - scripts draw from NumPy's global generator: the same in every mode
    main()
