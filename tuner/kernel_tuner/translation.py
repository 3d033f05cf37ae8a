"""A call of Kernel Tuner's functions as a kernel of this tuner: one stage, arrays from files, macros."""

import hashlib
import inspect
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from tuner.kernel_files.catalog import kernel_of
from tuner.kernel_files.formulas import Environment
from tuner.kernel_files.input_reader import file_sha256
from tuner.kernel_files.kernel_file import KernelFile
from tuner.kernel_files.recipe import Rule
from tuner.kernel_files.stage_recipe import BufferRecipe, StageRecipe
from tuner.kernel_tuner.call_arguments import (
    Given,
    GivenArray,
    GivenChoice,
    KernelSources,
    Parameters,
    UserValue,
    called,
    compiler_options_of,
    evaluated,
    macros_of,
    number,
    parsed,
    read_arguments,
    read_constants,
    read_sources,
    replaced,
    split_factors,
    split_includes,
    tunables_of,
)
from tuner.model.errors import ExpressionError, InputError, UnsupportedError
from tuner.model.expressions.callables import Expression, PythonExpression, function_digest
from tuner.model.expressions.operations import NoValue
from tuner.model.plan import Buffer, DataFile, InputSpec, Source, Stage, TunableValue
from tuner.system.untrusted.compiler_options import RefusedOptionError, check_options

# --- Blocks and grids as Kernel Tuner has them: the problem size by the product of its divisors, rounded up.

ProblemSize = Any
"""An int, a text, a function of the parameters, or up to three ints or texts."""

DEFAULT_NAMES = ("block_size_x", "block_size_y", "block_size_z")
MAX_BLOCK = (1024, 1024, 64)
MAX_BLOCK_THREADS = 1024  # of a block, on every GPU since compute capability 2.0
_DEFAULT_BLOCK = (256, 1, 1)
_AXES = "xyz"


@dataclass(frozen=True)
class LaunchRule:
    """Rule for the block and the grid of a launch.

    Attributes:
        problem_size: see ``ProblemSize``.
        divisors: ``grid_div_x``, ``grid_div_y`` and ``grid_div_z``; None for the block size of the axis.
        block_names: names of the parameters that are the block's extents.
    """

    problem_size: ProblemSize
    divisors: tuple[Any, Any, Any]
    block_names: tuple[str, str, str]

    def block(self, params: Parameters) -> tuple[int, int, int]:
        """Threads along x, y and z; 256, 1 and 1 where no parameter has the name."""
        x, y, z = (
            int(params.get(name, extent))
            for name, extent in zip(self.block_names, _DEFAULT_BLOCK, strict=True)
        )
        return x, y, z

    def grid(self, params: Parameters) -> tuple[int, int, int]:
        """Blocks along x, y and z.

        Raises:
            InputError: a size or a divisor has no value, or the grid holds no block.
        """
        sizes = sizes_of(self.problem_size, params)
        x, y, z = (self._blocks(axis, sizes[axis], params) for axis in range(3))
        return x, y, z

    def rules(self, tunables: Mapping[str, Sequence[TunableValue]]) -> list[str]:
        """Expressions that every configuration must satisfy so that its blocks can be launched."""
        terms = [
            name if name in tunables else str(extent)
            for name, extent in zip(self.block_names, _DEFAULT_BLOCK, strict=True)
        ]
        named = [term for term in terms if not term.isdigit()]
        bounds = [
            f"{name} <= {most}"
            for name, most in zip(self.block_names, MAX_BLOCK, strict=True)
            if name in named
        ]
        product = " * ".join(term for term in terms if term != "1")
        return [f"{product} <= {MAX_BLOCK_THREADS}", *bounds[2:]] if named else []

    def _blocks(self, axis: int, size: int, params: Parameters) -> int:
        argument = f"grid_div_{_AXES[axis]}"
        given = self.divisors[axis]
        divisor = params.get(self.block_names[axis], 1) if given is None else divided(given, params, argument)
        factor = number(divisor, argument)
        if factor == 0:
            raise InputError(f"{argument}: the divisor is 0 for {dict(params)}")
        blocks = math.ceil(float(size) / float(factor))
        if blocks < 1:
            raise InputError(
                f"problem_size: {size} by {argument} = {factor} gives {blocks} blocks for {dict(params)}"
            )
        return blocks


def divided(divisor: UserValue, params: Parameters, argument: str) -> float | int:
    """The product of a divisor: an int, a text (cut to a whole number), a function, or a list of these.

    Raises:
        InputError: it is something else, or has no value.
    """
    if isinstance(divisor, int | np.integer):
        return int(divisor)
    if callable(divisor):
        return number(called(divisor, argument, dict(params)), argument)
    if isinstance(divisor, str):
        return int(number(evaluated(divisor, params, argument), argument))
    if isinstance(divisor, Iterable):
        return math.prod(divided(one, params, argument) for one in divisor)
    raise InputError(
        f"{argument}: {divisor!r} is neither a whole number, a text, a function nor a list of these"
    )


def sizes_of(problem_size: ProblemSize, params: Parameters) -> tuple[int, int, int]:
    """The problem size along x, y and z; 1 along the axes that are left out.

    Raises:
        InputError: it is not what Kernel Tuner takes.
    """
    given = called(problem_size, "problem_size", dict(params)) if callable(problem_size) else problem_size
    if isinstance(given, str | int | np.integer):
        given = (given,)
    if not isinstance(given, Iterable) or len(axes := list(given)) not in (1, 2, 3):
        raise InputError(
            f"problem_size: {given!r} is neither a whole number, a text nor up to three of these"
        )
    x, y, z = (*(_size(axis, params) for axis in axes), 1, 1)[:3]
    return x, y, z


def _size(axis: UserValue, params: Parameters) -> int:
    if isinstance(axis, str):
        return int(number(evaluated(axis, params, "problem_size"), "problem_size"))
    if isinstance(axis, int | np.integer):
        return int(axis)
    raise InputError(f"problem_size: {axis!r} is neither a whole number nor a text")


def block_names(given: UserValue, tunables: Iterable[str]) -> tuple[str, str, str]:
    """The names of the block's extents: as given, or the default ones in whatever case they are written.

    Raises:
        InputError: they are no list of at most three names.
    """
    if given is None:
        spelled = {name.lower(): name for name in tunables}
        x, y, z = (spelled.get(name, name) for name in DEFAULT_NAMES)
        return x, y, z
    if not isinstance(given, list | tuple) or not all(isinstance(name, str) for name in given):
        raise InputError(f"block_size_names: must be a list of texts, not {given!r}")
    if len(given) > len(DEFAULT_NAMES):
        raise InputError(f"block_size_names: must hold at most three names, not {len(given)}")
    x, y, z = [*map(str, given), *DEFAULT_NAMES[len(given) :]]
    return x, y, z


def dynamic_shared_bytes(smem_args: UserValue) -> Callable[[Parameters], int]:
    """Bytes of dynamic shared memory by configuration, of ``smem_args``.

    Raises:
        InputError: it is no dict with ``size``.
    """
    if smem_args is None:
        return lambda _: 0
    if not isinstance(smem_args, Mapping) or set(smem_args) != {"size"}:
        raise InputError(f'smem_args: must be {{"size": BYTES}}, not {smem_args!r}')
    size = smem_args["size"]

    def size_of(params: Parameters) -> int:
        argument = "smem_args['size']"
        if callable(size):
            value = called(size, argument, dict(params))
        else:
            value = evaluated(size, params, argument) if isinstance(size, str) else size
        result = int(number(value, argument))
        if result < 0:
            raise InputError(f"{argument}: gives {result} bytes")
        return result

    return size_of


# --- Restrictions as rules.

_PAIR = (2, 3)  # a function, the names it takes, and perhaps its source


def rules_of(restrictions: UserValue, tunables: Sequence[str]) -> list[Expression]:
    """The rules of ``restrictions``.

    Args:
        restrictions: a text, a function of the parameters, a pair of a function and the names it takes, or a
            list of these; None for none.
        tunables: names of the parameters, in their order.

    Raises:
        InputError: a text is no expression over the parameters, or something else is given.
        UnsupportedError: a constraint object that is no function.
    """
    if restrictions is None:
        return []
    listed = restrictions if isinstance(restrictions, list) else [restrictions]
    return [_rule(f"restrictions[{i}]", one, tunables) for i, one in enumerate(listed)]


def _rule(argument: str, given: UserValue, tunables: Sequence[str]) -> Expression:
    if isinstance(given, str):
        return _expression(argument, given, tunables)
    if type(given).__module__.split(".")[0] == "constraint":  # of python-constraint
        function = getattr(given, "_func", None)
        if function is None:
            raise UnsupportedError(f"{argument}: {type(given).__name__} is not supported; write it as a text")
        return PythonExpression(_in_order(function, tunables), tunables, argument)
    if isinstance(given, tuple) and len(given) in _PAIR and callable(given[0]):
        return PythonExpression(_by_name(argument, given[0], given[1], tunables), tunables, argument)
    if not callable(given):
        raise InputError(f"{argument}: {given!r} is neither a text nor a function")
    if _takes_values(given):
        return PythonExpression(_in_order(given, tunables), tunables, argument)
    return PythonExpression(given, tunables, argument)


def _expression(argument: str, text: str, tunables: Sequence[str]) -> Expression:
    try:
        rule = parsed(text)
    except ExpressionError as error:
        raise InputError(f"{argument}: {error}; a function of the parameters may stand there too") from error
    unknown = sorted(rule.names.difference(tunables))
    if unknown:
        raise InputError(f"{argument}: {text!r}: unknown name {unknown[0]!r}; known: {', '.join(tunables)}")
    return rule


def _takes_values(function: Callable[..., Any]) -> bool:
    """True for a function of all values in order."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # of no Python code
        return False
    return any(parameter.kind is inspect.Parameter.VAR_POSITIONAL for parameter in parameters)


def _in_order(function: Callable[..., Any], tunables: Sequence[str]) -> Callable[[Parameters], bool]:
    return lambda params: bool(function(*(params[name] for name in tunables)))


def _by_name(
    argument: str, function: Callable[..., Any], names: UserValue, tunables: Sequence[str]
) -> Callable[[Parameters], bool]:
    unknown = [name for name in names if name not in tunables]
    if unknown:
        raise InputError(f"{argument}: unknown name {unknown[0]!r}; known: {', '.join(tunables)}")
    return lambda params: bool(function(**{name: params[name] for name in names}))


ArgumentTable = dict[str, str | int | float | list[int]]  # an entry of [[argument]]
_SOURCE = "kernel.cu"
_NO_VALUES = "constant(0)"  # of arrays that nothing reads
_SIZE_NAMES = ("problem", "problem_size", "size_of_problem")


@dataclass(frozen=True)
class KernelCall:
    """Description of the kernel in a call, read and checked.

    Attributes:
        name: as given, with template arguments that may name parameters.
        sources: its source code.
        geometry: its blocks and grids.
        arguments: in the order of its parameters.
        constants: arrays in constant memory, by symbol.
        shared_bytes: dynamic shared memory by configuration.
        defines: macros; None for Kernel Tuner's own.
        options: of the compiler.
        tunables: values by name.
        rules: restrictions.
        smem_args: as given.
    """

    name: str
    sources: KernelSources
    geometry: LaunchRule
    arguments: tuple[Given, ...]
    constants: tuple[GivenArray, ...]
    shared_bytes: Callable[[Parameters], int]
    defines: Mapping[str, Any] | None
    options: tuple[str, ...]
    tunables: Mapping[str, tuple[TunableValue, ...]]
    rules: Sequence[Expression] = ()
    smem_args: Any = None

    @property
    def arrays(self) -> tuple[GivenArray, ...]:
        """The array arguments."""
        return tuple(argument for argument in self.arguments if isinstance(argument, GivenArray))

    def launch(self, stage: Stage, params: Parameters) -> Stage:
        """The launch of a configuration.

        Raises:
            InputError: something that depends on the parameters has no value.
        """
        block, grid = self.geometry.block(params), self.geometry.grid(params)
        named = dict(zip(self.geometry.block_names, block, strict=True))
        factors, macros = split_factors(macros_of(self.defines, params, grid, named))
        options = (*(f"-D{name}={value}" for name, value in macros.items()), *self.options)
        check_options(options, self.sources.include_paths)
        return replace(
            stage,
            source=self.sources.source(params, factors),
            entry=replaced(self.name, params),
            options=options,
            grid=grid,
            block=block,
            shared_bytes=self.shared_bytes(params),
        )


def read_call(
    kernel_name: UserValue,
    kernel_source: UserValue,
    problem_size: UserValue,
    arguments: UserValue,
    tune_params: Mapping[str, Sequence[Any]],
    *,
    grid_div: tuple[Any, Any, Any] = (None, None, None),
    restrictions: UserValue = None,
    lang: UserValue = None,
    smem_args: Mapping[str, Any] | None = None,
    cmem_args: Mapping[str, Any] | None = None,
    compiler_options: UserValue = None,
    defines: Mapping[str, Any] | None = None,
    block_size_names: Sequence[str] | None = None,
) -> KernelCall:
    """Read the arguments that both functions share.

    Raises:
        InputError: one cannot be used; the message names it.
        UnsupportedError: one has no meaning here.
    """
    if not isinstance(kernel_name, str) or not kernel_name.strip():
        raise InputError(f"kernel_name: must be a text, not {kernel_name!r}")
    if defines is not None and not isinstance(defines, Mapping):
        raise InputError(f"defines: must be a dict of name -> value, not {defines!r}")
    tunables = tunables_of(tune_params)
    folders, options = split_includes(compiler_options_of(compiler_options))
    try:
        check_options(options, folders)
    except RefusedOptionError as error:
        raise InputError(f"compiler_options: {error}") from error
    sources = replace(read_sources(kernel_source, lang), include_paths=folders)
    return KernelCall(
        name=kernel_name,
        sources=sources,
        geometry=LaunchRule(problem_size, grid_div, block_names(block_size_names, tunables)),
        arguments=read_arguments(arguments, kernel_name, sources.text),
        constants=read_constants(cmem_args),
        shared_bytes=dynamic_shared_bytes(smem_args),
        defines=defines,
        options=options,
        tunables=tunables,
        rules=rules_of(restrictions, list(tunables)),
        smem_args=smem_args,
    )


# --- the kernel file -----------------------------------------------------------------------------


@dataclass(frozen=True)
class CalledStage(StageRecipe):
    """A stage whose launch is computed from the parameters in Python."""

    launch: Callable[[Stage, Parameters], Stage] = field(kw_only=True)
    parameters: tuple[str, ...] = field(kw_only=True)

    def evaluated(self, env: Environment, buffers: Mapping[str, Buffer]) -> Stage:
        """The launch of one configuration.

        Raises:
            InputError: something that depends on the parameters has no value.
        """
        return self.launch(super().evaluated(env, buffers), _params(self.parameters, env))


@dataclass(frozen=True)
class CalledBuffer(BufferRecipe):
    """A buffer that holds one of several arrays, by the parameters."""

    choice: GivenChoice = field(kw_only=True)
    paths: Mapping[str, Path] = field(kw_only=True)
    parameters: tuple[str, ...] = field(kw_only=True)

    def evaluated(self, env: Environment) -> Buffer:
        """The buffer of one configuration.

        Raises:
            InputError: there is no array for its values.
        """
        form = self.choice.of(_params(self.parameters, env))
        buffer = replace(super().evaluated(env), dtype=form.stored.dtype.name, shape=tuple(form.stored.shape))
        if form.name not in self.paths:
            return buffer
        path = str(self.paths[form.name])
        return replace(buffer, input=InputSpec("file", file=DataFile(path, sha256=file_sha256(path))))


def _params(names: Iterable[str], env: Environment) -> dict[str, TunableValue]:
    """The parameters that have a value."""
    return {name: value for name in names if not isinstance(value := env[name], NoValue)}


def kernel_file_of(call: KernelCall, paths: Mapping[str, Path], written: Sequence[str]) -> KernelFile:
    """A call as a kernel file.

    Args:
        call: the call.
        paths: files of its arrays by name, which must outlive the run; none where nothing reads them.
        written: names of the arrays that the kernel may write; the others are loaded once.

    Raises:
        InputError: the call is not what a kernel file can say.
    """
    source = Source(call.sources.label, call.sources.text or "")
    kernel = kernel_of(document_of(call, paths, written), {_SOURCE: source}, label=call.name)
    stages = tuple(
        CalledStage(
            **{attribute.name: getattr(stage, attribute.name) for attribute in fields(stage)},
            launch=call.launch,
            parameters=tuple(call.tunables),
        )
        for stage in kernel.recipe.stages
    )
    digest = hashlib.sha256(f"{kernel.text_sha256}\0{fingerprint(call)}".encode()).hexdigest()
    rules = (*kernel.recipe.rules, *(Rule(rule, rule.text) for rule in call.rules))
    choices = {one.name: one for one in call.arguments if isinstance(one, GivenChoice)}
    buffers = tuple(
        CalledBuffer(
            **{attribute.name: getattr(buffer, attribute.name) for attribute in fields(buffer)},
            choice=choices[buffer.name],
            paths=paths,
            parameters=tuple(call.tunables),
        )
        if buffer.name in choices
        else buffer
        for buffer in kernel.recipe.buffers
    )
    recipe = replace(kernel.recipe, stages=stages, rules=rules, buffers=buffers)
    return replace(kernel, recipe=recipe, text_sha256=digest)


def document_of(call: KernelCall, paths: Mapping[str, Path], written: Sequence[str]) -> dict[str, Any]:
    """The tables of the kernel file that stands for a call; its stage is replaced by ``CalledStage``.

    Args:
        call: the call.
        paths: files of its arrays by name, or none.
        written: names of the arrays that the kernel may write.
    """
    size_name = next(name for name in _SIZE_NAMES if name not in call.tunables)
    sizes = {} if callable(call.geometry.problem_size) else {size_name: [_shown_size(call)]}
    return {
        "kernel": {"name": slug(call.name), "source": _SOURCE, "entry": "kernel"},
        "problem": {"name": "unchecked", "sizes": sizes},
        "argument": [
            *(_argument(argument, paths, written) for argument in call.arguments),
            *(_buffer(constant, paths, "constant") for constant in call.constants),
        ],
        "tunables": {name: list(values) for name, values in call.tunables.items()},
        "constraints": {"rules": call.geometry.rules(call.tunables), "spills": True},
        "occupancy": {"min": 0.0},
        "launch": {"grid": 1, "block": 1},
    }


def slug(name: str) -> str:
    """A kernel's name as this tuner has names: small letters, digits and -."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-") or "kernel"


def fingerprint(call: KernelCall) -> str:
    """Return a text of all that decides the results besides the document; answers are bound to it."""
    parts: list[object] = [call.name, call.options, *call.geometry.divisors, call.geometry.problem_size]
    parts += [call.defines, call.sources.first, *(rule.text for rule in call.rules)]
    parts += [_digested(one) for one in call.arguments if isinstance(one, GivenChoice)]
    parts += [rule.digest for rule in call.rules if isinstance(rule, PythonExpression)]
    return repr([function_digest(part) for part in parts])


def conditions_of(call: KernelCall) -> dict[str, str]:
    """Return digests of the arguments of a call that decide the times of a configuration, by name.

    Arrays count with types and shapes, scalars with their values. Restrictions do not: they choose.
    """
    sources, geometry = call.sources, call.geometry
    if callable(sources.first):
        source: object = (sources.first, dict(sources.listed), sources.include_sha256)
    else:
        source = sources.source({}, {}).sha256
    arguments = [_digested(one) for one in (*call.arguments, *call.constants)]
    parts: dict[str, object] = {
        "kernel_source": source,
        "arguments": arguments,
        "problem_size": geometry.problem_size if callable(geometry.problem_size) else None,  # else compared
        **{f"grid_div_{axis}": one for axis, one in zip("xyz", geometry.divisors, strict=True)},
        "block_size_names": geometry.block_names,
        "smem_args": call.smem_args,
        "defines": call.defines,
        "compiler_options": call.options,
    }
    return {name: function_digest(part)[:16] for name, part in parts.items()}


def _digested(one: Given) -> object:
    if isinstance(one, GivenChoice):
        return one.name, [_digested(form) for form in one.forms], one.key
    if isinstance(one, GivenArray):
        return one.name, one.array.dtype.str, one.array.shape
    return one.name, one.value.dtype.str, one.value.item()


def _argument(one: Given, paths: Mapping[str, Path], written: Sequence[str]) -> ArgumentTable:
    if not isinstance(one, GivenArray):
        return {"scalar": one.name, "dtype": one.value.dtype.name, "value": one.value.item()}
    return _buffer(one, paths, "inout" if one.name in written else "in")


def _buffer(one: GivenArray, paths: Mapping[str, Path], role: str) -> ArgumentTable:
    form = one.forms[0]
    path = paths.get(form.name)
    return {
        "buffer": one.name,
        "dtype": form.stored.dtype.name,
        "shape": list(form.stored.shape),
        "role": role,
        "input": _NO_VALUES if path is None else f'file("{path}")',
    }


def _shown_size(call: KernelCall) -> str:
    """The problem size as the name of the workload has it, such as 4096x4096."""
    given = call.geometry.problem_size
    axes = given if isinstance(given, list | tuple) else [given]
    return re.sub(r"[\s,=]+", "", "x".join(str(axis) for axis in axes))
