"""``tuner.inductor``: kernels that ``torch.compile`` generates get their configurations from this tuner.

Inductor writes a Python file for each kernel, with a decorator that says which configurations there are.
``install`` has the files of kernels with an answer state that alone, before anything is compiled; launches
cost no more. Other kernels are recorded, or tuned, with the arguments of their first launch. ``install``
imports PyTorch.
"""

import ast
import copy
import importlib
import importlib.util
import inspect
import itertools
import logging
import re
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from tuner.model.errors import InputError, TunerError
from tuner.model.plan import TunableValue
from tuner.python.triton_in_place import (
    MODES,
    Launch,
    check_options,
    mode_of,
    problem_name,
    recorded_or_tuned,
    stored_values,
    tell,
    write_at_once,
)

OLDEST, NEWEST = (2, 11), (2, 15)
"""Versions of PyTorch whose seams are known; with others nothing is done."""

_LOG = logging.getLogger("tuner.triton")
_TUNED = ("pointwise", "reduction", "persistent_reduction", "user_autotune")
_OF_USERS = _TUNED[-1]
_GRIDS = ("Grid1D", "Grid2D", "Grid3D", "Grid2DWithYZOverflow")
# With one of these, blocks of other sizes than Inductor's own are wrong, or change results.
_BOUND = (
    *("RSPLIT_SIZE", "tma_min_block_sizes", "min_xblock", "min_rblock"),
    *("deterministic", "are_deterministic_algorithms_enabled", "batch_invariant"),
)
_MOST_WARPS = 32


@dataclass(frozen=True)
class Generated:
    """A kernel as Inductor wrote it.

    Attributes:
        name: that of the function, without its number in the model.
        source: text of its file.
        heuristic: the decorator that has its configurations.
        function: the function.
        others: what else of the file it may need.
    """

    name: str
    source: str
    heuristic: ast.Call
    function: ast.FunctionDef
    others: tuple[ast.stmt, ...]

    @property
    def kind(self) -> str:
        """The name of its heuristic."""
        return ast.unparse(self.heuristic.func).rpartition(".")[2]

    @property
    def passed(self) -> list[str]:
        """Names of the parameters that a launch passes."""
        every = self.function.args.args
        return [one.arg for one in every if "constexpr" not in ast.unparse(one.annotation or ast.Constant(0))]

    @property
    def tuned(self) -> bool:
        """True if another configuration than Inductor's may be tried."""
        return self.kind in _TUNED and (
            self.free or len(getattr(self._keywords.get("configs"), "elts", ())) > 1
        )

    @property
    def free(self) -> bool:
        """True if blocks may have other sizes than those that Inductor lists."""
        meta = _entries(self._keywords.get("inductor_meta"))
        bound = any(_said(meta.get(one)) for one in _BOUND)
        native = _said(_entries(self._keywords.get("triton_meta")).get("native_matmul"))
        return self.kind != _OF_USERS and _said(meta.get("grid_type")) in _GRIDS and not bound and not native

    @cached_property
    def text(self) -> str:
        """A file with the function alone, which imports no more than it uses."""
        own = copy.copy(self.function)
        own.name = self.name
        own.decorator_list = [one for one in own.decorator_list if not isinstance(one, ast.Call)]
        others = [one for one in self.others if not isinstance(one, ast.Import | ast.ImportFrom)]
        nodes = [node for one in (own, *others) for node in ast.walk(one)]
        used = {node.id for node in nodes if isinstance(node, ast.Name)}
        kept: list[ast.stmt] = []
        for one in self.others:
            if isinstance(one, ast.Import | ast.ImportFrom):
                names = [each for each in one.names if (each.asname or each.name).partition(".")[0] in used]
                if not names:
                    continue
                one = copy.copy(one)  # noqa: PLW2901 - without what is not used
                one.names = names
            kept.append(one)
        return ast.unparse(ast.Module([*kept, own], []))

    @cached_property
    def problem(self) -> str:
        """The name of its answer: other code, types, or sizes that Inductor tells apart, are another one."""
        meta = _entries(self._keywords.get("triton_meta"))
        texts = [self.kind, self.text]
        texts += [ast.unparse(meta[one]) for one in ("signature", "constants", "configs") if one in meta]
        texts += [
            ast.unparse(self._keywords[one]) for one in ("size_hints", "configs") if one in self._keywords
        ]
        return problem_name(self.name, texts)

    @cached_property
    def device(self) -> str | None:
        """The GPU that it was generated for; None where the file does not say it."""
        found = re.search(r"DeviceProperties\([^)]*?\bindex=(\d+)", self.source)
        return f"cuda:{found[1]}" if found else None

    @cached_property
    def _keywords(self) -> dict[str, ast.expr]:
        return {one.arg: one.value for one in self.heuristic.keywords if one.arg}

    def stating(self, values: Mapping[str, TunableValue]) -> str:
        """The text of its file with one configuration."""
        given = {name: value for name, value in values.items() if (name, value) != ("num_ctas", 1)}
        if self.kind == _OF_USERS:
            keywords = self._keywords | {"configs": ast.parse(repr([given]), mode="eval").body}
            called = self.kind
        else:
            own = ("filename", "triton_meta", "inductor_meta")
            keywords = {one: self._keywords[one] for one in own if one in self._keywords}
            keywords = {"config": ast.parse(repr(given), mode="eval").body} | keywords
            called = "fixed_config"
        told = ", ".join(f"{name}={ast.unparse(value)}" for name, value in keywords.items())
        module = ast.unparse(self.heuristic.func).rpartition(".")[0]
        before = ast.get_source_segment(self.source, self.heuristic) or ""
        return self.source.replace(before, f"{module}.{called}({told})", 1)


def generated(name: str, source: str) -> Generated | None:
    """Read a file of Inductor's; None where it has no such kernel.

    Args:
        name: of the function.
        source: text of the file.

    Raises:
        SyntaxError: it is no Python.
    """
    others: list[ast.stmt] = []
    found: tuple[ast.FunctionDef, ast.Call] | None = None
    for one in ast.parse(source).body:
        if isinstance(one, ast.FunctionDef):
            decorators = [ast.unparse(each) for each in one.decorator_list]
            calls = [each for each in one.decorator_list if isinstance(each, ast.Call)]
            if one.name == name and calls:
                found = one, calls[0]
            elif any(each.startswith("triton.jit") for each in decorators):
                others.append(one)
        elif isinstance(one, ast.Import | ast.ImportFrom | ast.Assign | ast.AnnAssign):
            others.append(one)
    if found is None:
        return None
    function, heuristic = found
    return Generated(re.sub(r"_\d+$", "", name).strip("_"), source, heuristic, function, tuple(others))


def _entries(node: ast.expr | None) -> dict[str, ast.expr]:
    """The entries of a dictionary as it is written."""
    if not isinstance(node, ast.Dict):
        return {}
    return {str(_said(key)): value for key, value in zip(node.keys, node.values, strict=True)}


def _said(node: ast.expr | None) -> Any:  # noqa: ANN401 - whatever is written
    """The value of a constant; True for all that is none."""
    return None if node is None else node.value if isinstance(node, ast.Constant) else True


def around(config: Mapping[str, int], most: Mapping[str, int]) -> list[dict[str, int]]:
    """Configurations near one, which is the first: other sizes of blocks, other numbers of warps.

    Args:
        config: values by name.
        most: the largest value by name, of blocks.
    """
    blocks = [one for one in config if one.endswith("BLOCK")]
    steps = (0, -1, 1) if len(blocks) > 1 else (0, -1, 1, -2, 2)
    values: list[list[int]] = []
    for name, value in config.items():
        limit = most.get(name, value) if name in blocks else _MOST_WARPS
        near = steps if name in blocks else (0, -1, 1) if name == "num_warps" else (0,)
        scaled = [value << step if step >= 0 else value >> -step for step in near]
        values.append([one for one in scaled if one == value or 1 <= one <= limit])
    return [dict(zip(config, one, strict=True)) for one in itertools.product(*values)]


class Installed:
    """An installation: its text says what was done, ``undo`` takes it back.

    Attributes:
        kernels: what became of each generated kernel that was met: ``answered``, ``without an answer``,
            ``recorded``, ``tuned``, or ``left to Inductor``, whose configuration must stay.
        lookup_s: what looking all of them up has taken.
        refused: why nothing is done; empty else.
    """

    def __init__(self, mode: str, refused: str = "") -> None:
        self._mode, self.refused = mode, refused
        self.kernels: dict[str, str] = {}
        self.lookup_s = 0.0
        self._taken: list[tuple[Any, str, Any]] = []

    def __str__(self) -> str:
        if self.refused:
            return f"kernels of torch.compile are left to Inductor: {self.refused}"
        every = list(self.kernels.values())
        told = ", ".join(f"{every.count(one)} {one}" for one in sorted(set(every))) or "none"
        return (
            f"kernels of torch.compile are looked up, in mode {self._mode} (kernels so far: {told});"
            " undo() gives Inductor's own configurations back to what is compiled later"
        )

    def put(self, owner: Any, name: str, function: Callable[..., Any]) -> None:  # noqa: ANN401 - of PyTorch
        """Replace a method until ``undo``."""
        self._taken.append((owner, name, getattr(owner, name)))
        setattr(owner, name, function)

    def undo(self) -> None:
        """Give Inductor's own methods back."""
        while self._taken:
            owner, name, function = self._taken.pop()
            setattr(owner, name, function)


_installed: list[Installed] = []  # the last one


def install(mode: str | None = None, **options: Any) -> Installed:  # noqa: ANN401 - those of ``tuner.tune``
    """Have the kernels of ``torch.compile`` take their configurations from here, from now on.

    Args:
        mode: ``lookup``, ``tune`` or ``record``, see ``tuner.triton.autotune``.
        options: of ``tuner.tune``: ``device``, ``database``, ``objective``, ``budget``, ...

    Returns:
        What was done, to be shown or undone. Where the version of PyTorch is not known, nothing is.

    Raises:
        InputError: an argument cannot be used, or there is no PyTorch.
    """
    check_options(options)
    chosen, folder = mode_of(mode)
    try:
        version = str(importlib.import_module("torch").__version__)
        workers = importlib.import_module("torch._inductor.async_compile").AsyncCompile
        heuristics = importlib.import_module("torch._inductor.runtime.triton_heuristics")
    except ImportError as error:
        raise InputError(f"tuner.inductor needs PyTorch with torch.compile: {error}") from error
    while _installed:
        _installed.pop().undo()
    done = Installed(chosen, _misfit(version, workers, heuristics))
    _installed.append(done)
    if done.refused:
        tell(str(done))
        return done
    seam = _Seam(done, chosen, folder, options, heuristics)
    done.put(workers, "triton", seam.compiling(workers.triton))
    if chosen != MODES[0]:
        autotuner = heuristics.CachingAutotuner
        done.put(autotuner, "run", seam.launching(autotuner.run))
    _LOG.info("%s", done)
    return done


def _misfit(version: str, workers: Any, heuristics: Any) -> str:  # noqa: ANN401 - of PyTorch
    """The reason to leave this PyTorch alone; empty if there is none."""
    numbers = tuple(map(int, re.findall(r"\d+", version)[:2]))
    if not OLDEST <= numbers <= NEWEST:
        tested = f"{'.'.join(map(str, OLDEST))} to {'.'.join(map(str, NEWEST))}"
        return f"PyTorch {version} is not among the versions that are known, {tested}"
    autotuner = getattr(heuristics, "CachingAutotuner", None)
    for owner, name, parameters in (
        (workers, "triton", ("self", "kernel_name", "source_code", "device_str")),
        (heuristics, "fixed_config", ("config", "filename", "triton_meta", "inductor_meta")),
        (heuristics, "user_autotune", ("configs",)),
        (heuristics, "config_to_dict", ("config",)),
        (heuristics, "config_from_dict", ("config",)),
        (autotuner, "run", ("self", "args", "stream")),
        (autotuner, "_precompile_config", ("self", "cfg")),
        (autotuner, "_interpret_args_grid", ("self", "args", "cfg")),
    ):
        own = getattr(owner, name, None)
        if own is None or tuple(inspect.signature(own).parameters)[: len(parameters)] != parameters:
            return f"{name} of PyTorch {version} has not the parameters that are known"
    return ""


class _Seam:
    """Two methods of Inductor: where it compiles a kernel, and where it launches one."""

    def __init__(
        self,
        done: Installed,
        mode: str,
        folder: Path,
        options: Mapping[str, Any],
        heuristics: Any,  # noqa: ANN401 - of PyTorch
    ) -> None:
        self._done, self._mode, self._folder, self._options = done, mode, folder, options
        self._heuristics = heuristics
        self._begun: weakref.WeakSet[Any] = weakref.WeakSet()

    def compiling(self, theirs: Callable[..., Any]) -> Callable[..., Any]:
        """In the place of ``AsyncCompile.triton``, which is called with each kernel of a model."""

        def triton(
            own: Any,  # noqa: ANN401 - of PyTorch
            kernel_name: str,
            source_code: str,
            device_str: str = "cuda",
            **more: Any,  # noqa: ANN401 - same
        ) -> Any:  # noqa: ANN401 - same
            if device_str == "cuda":
                begin = time.perf_counter()
                source_code = self._with_answer(kernel_name, source_code)
                self._done.lookup_s += time.perf_counter() - begin
            return theirs(own, kernel_name, source_code, device_str, **more)

        return triton

    def _with_answer(self, name: str, source: str) -> str:
        """The text of a kernel with its answer in force; as it is where there is none."""
        try:
            kernel = generated(name, source)
            if kernel is None:
                return source
            if not kernel.tuned:
                self._done.kernels.setdefault(kernel.problem, "left to Inductor")
                return source
            self._done.kernels.setdefault(kernel.problem, "without an answer")
            device = self._options.get("device") or kernel.device
            launch = Launch(kernel.name, {}, (1,), {**self._options, "device": device})
            values = stored_values(kernel.problem, launch, needed=self._mode == MODES[0])
            if values is None:
                return source
            self._done.kernels[kernel.problem] = "answered"
            return kernel.stating(values)
        except Exception as error:  # noqa: BLE001 - whatever it is, the model goes on
            tell(f"Inductor's own configurations are used: {_told(error)}")
            return source

    def launching(self, theirs: Callable[..., Any]) -> Callable[..., Any]:
        """In the place of ``CachingAutotuner.run``: behind a first launch it is recorded or tuned."""

        def run(own: Any, *args: Any, stream: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - of PyTorch
            result = theirs(own, *args, stream=stream, **kwargs)
            if own not in self._begun and not _capturing():
                self._begun.add(own)
                name = own.fn.__name__
                try:
                    self._begin(own, name, args)
                except Exception as error:  # noqa: BLE001 - whatever it is, the model goes on
                    tell(f"{name}: Inductor's own configurations are used: {_told(error)}")
            return result

        return run

    def _begin(self, own: Any, name: str, args: Sequence[Any]) -> None:  # noqa: ANN401 - of PyTorch
        path = Path(own.filename or "")
        if not path.is_file():
            raise InputError(f"its source {path} is not here, as of a cache of another machine or version")
        kernel = generated(name, path.read_text(encoding="utf-8"))
        if kernel is None or not kernel.tuned:
            return
        folder = self._folder if self._mode == "record" else path.parent
        function = self._function(own, kernel, folder)
        names = kernel.passed
        if len(args) < len(names):
            raise InputError(f"its first launch has {len(args)} arguments, and {len(names)} parameters")
        tunables = function.configs[0].all_kwargs()
        constants = own.triton_meta["constants"].items()
        arguments = {one: value for one, value in constants if one not in tunables}
        arguments |= dict(zip(names, args, strict=False))

        def grid(meta: Mapping[str, Any]) -> Any:  # noqa: ANN401 - as Inductor has it
            config = self._heuristics.config_from_dict({one: meta[one] for one in tunables if one in meta})
            return own._interpret_args_grid(args, config)[1]  # noqa: SLF001 - held against its signature

        launch = Launch(kernel.name, arguments, grid, self._options)
        values: Mapping[str, TunableValue] | None
        values = stored_values(kernel.problem, launch, needed=False)  # another model may have had it
        values = values or recorded_or_tuned(kernel.problem, function, launch, self._mode, self._folder)
        self._done.kernels[kernel.problem] = "recorded" if values is None else "tuned"
        if values is not None:
            self._use(own, values)

    def _function(self, own: Any, kernel: Generated, folder: Path) -> Any:  # noqa: ANN401 - of Triton
        """The kernel below ``@triton.autotune``, from a file that can be imported without a GPU."""
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{kernel.problem}.py"
        text = f'"""{kernel.name}, as torch.compile generated it."""\n\n{kernel.text}\n'
        write_at_once(path, text)
        spec = importlib.util.spec_from_file_location(kernel.problem.replace("-", "_"), path)
        assert spec is not None  # noqa: S101 - a file that ends in .py
        assert spec.loader is not None  # noqa: S101 - same
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        values = self._heuristics.config_to_dict(own.launchers[0].config)
        if kernel.free:
            largest = importlib.import_module("torch._inductor.runtime.hints").TRITON_MAX_BLOCK
            sizes = own.size_hints  # beyond these, and beyond the largest, there may be no masks
            configs = around(
                values, {f"{one}BLOCK": min(most, sizes.get(one.lower(), 1)) for one, most in largest.items()}
            )
        else:
            listed = [self._heuristics.config_to_dict(one) for one in self._listed(kernel)]
            configs = [values, *(one for one in listed if one != values)]
        changed = {"restore_value": own.mutated_arg_names, "reset_to_zero": own.reset_to_zero_arg_names}
        return importlib.import_module("triton").autotune(
            [self._heuristics.config_from_dict(one) for one in configs],
            [],
            **{name: [one for one in given if one in kernel.passed] for name, given in changed.items()},
        )(getattr(module, kernel.name))

    def _listed(self, kernel: Generated) -> list[Any]:
        given = next(one.value for one in kernel.heuristic.keywords if one.arg == "configs")
        return [self._heuristics.config_from_dict(one) for one in ast.literal_eval(given)]

    def _use(self, own: Any, values: Mapping[str, TunableValue]) -> None:  # noqa: ANN401 - of PyTorch
        """Have a kernel launched in another configuration."""
        config = self._heuristics.config_from_dict(dict(values))
        config.found_by_coordesc = True  # nothing is tried behind it
        if own.fn.fn is None:  # it was compiled in another process
            own.fn = own._reload_kernel().fn  # noqa: SLF001 - as Inductor itself does
        with own.lock:
            launcher = own._precompile_config(config).make_launcher()  # noqa: SLF001 - held against its signature
        own.launchers = [launcher]
        if hasattr(own, "_cached_launcher"):  # since 2.13
            own._cached_launcher = None  # noqa: SLF001 - as Inductor itself does


def _told(error: Exception) -> str:
    """An error in one line; of others' code with its kind."""
    return str(error) if isinstance(error, TunerError) else f"{type(error).__name__}: {error}"


def _capturing() -> bool:
    """True while a CUDA graph is captured, into which nothing else may come."""
    cuda = importlib.import_module("torch").cuda
    return bool(cuda.is_available() and cuda.is_current_stream_capturing())
