"""A call of Kernel Tuner's functions as a kernel of this tuner: one stage, arrays from files, macros."""

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from tuner.config.loading import kernel_of
from tuner.config.recipe import Rule
from tuner.config.stage_recipe import StageRecipe
from tuner.expressions.arithmetic import NoValue
from tuner.expressions.callables import PythonExpression
from tuner.expressions.expression import Expression
from tuner.expressions.function_digest import function_digest
from tuner.kernel_files.formulas import Environment
from tuner.kernel_files.kernel_file import KernelFile
from tuner.kernel_tuner.arguments import Given, GivenArray, read_arguments, read_constants
from tuner.kernel_tuner.geometry import LaunchRule, block_names, dynamic_shared_bytes
from tuner.kernel_tuner.parameters import Parameters, UserValue, replaced, tunables_of
from tuner.kernel_tuner.restrictions import rules_of
from tuner.kernel_tuner.sources import (
    KernelSources,
    compiler_options_of,
    macros_of,
    read_sources,
    split_factors,
    split_includes,
)
from tuner.model.errors import InputError
from tuner.model.plan import Buffer, Source, Stage, TunableValue
from tuner.untrusted.compiler_options import RefusedOptionError, check_options

_SOURCE = "kernel.cu"
_SIZE_NAMES = ("problem", "problem_size", "size_of_problem")


@dataclass(frozen=True)
class KernelCall:
    """What a call says of the kernel, read and checked.

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
        return tuple(one for one in self.arguments if isinstance(one, GivenArray))

    def launch(self, stage: Stage, params: Parameters) -> Stage:
        """The launch of a configuration.

        Args:
            stage: with the arguments.
            params: the configuration.

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
        params = {name: value for name in self.parameters if not isinstance(value := env[name], NoValue)}
        return self.launch(super().evaluated(env, buffers), params)


def kernel_file_of(call: KernelCall, paths: Mapping[str, Path], written: Sequence[str]) -> KernelFile:
    """A call as a kernel file.

    Args:
        call: the call.
        paths: files of its arrays by name, which must outlive the run.
        written: names of the arrays that the kernel may write; the others are loaded once.

    Raises:
        InputError: the call is not what a kernel file can say.
    """
    source = Source(call.sources.label, call.sources.text or "")
    kernel = kernel_of(document_of(call, paths, written), {_SOURCE: source}, label=call.name)
    stages = tuple(
        CalledStage(
            **{one.name: getattr(stage, one.name) for one in fields(stage)},
            launch=call.launch,
            parameters=tuple(call.tunables),
        )
        for stage in kernel.recipe.stages
    )
    digest = hashlib.sha256(f"{kernel.text_sha256}\0{fingerprint(call)}".encode()).hexdigest()
    rules = (*kernel.recipe.rules, *(Rule(rule, rule.text) for rule in call.rules))
    recipe = replace(kernel.recipe, stages=stages, rules=rules)
    return replace(kernel, recipe=recipe, text_sha256=digest)


def document_of(call: KernelCall, paths: Mapping[str, Path], written: Sequence[str]) -> dict[str, Any]:
    """The tables of the kernel file that stands for a call; its stage is replaced by ``CalledStage``.

    Args:
        call: the call.
        paths: files of its arrays by name.
        written: names of the arrays that the kernel may write.
    """
    sizes = {} if callable(call.geometry.problem_size) else {_size_name(call): [_shown_size(call)]}
    return {
        "kernel": {"name": slug(call.name), "source": _SOURCE, "entry": "kernel"},
        "problem": {"name": "unchecked", "sizes": sizes},
        "argument": [
            *(_argument(one, paths, written) for one in call.arguments),
            *(_constant(one, paths) for one in call.constants),
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
    """What decides the results beside the document: answers are bound to it."""
    parts: list[object] = [call.name, call.options, *call.geometry.divisors, call.geometry.problem_size]
    parts += [call.defines, call.sources.first, *(rule.text for rule in call.rules)]
    parts += [rule.digest for rule in call.rules if isinstance(rule, PythonExpression)]
    return repr([function_digest(part) for part in parts])


def conditions_of(call: KernelCall) -> dict[str, str]:
    """What decides the times of a configuration, by the arguments of the call that say it, as digests.

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
    if isinstance(one, GivenArray):
        return one.name, one.array.dtype.str, one.array.shape
    return one.name, one.value.dtype.str, one.value.item()


def _argument(one: Given, paths: Mapping[str, Path], written: Sequence[str]) -> dict[str, Any]:
    if not isinstance(one, GivenArray):
        value = one.value.item()
        return {"scalar": one.name, "dtype": one.value.dtype.name, "value": value}
    stored = one.stored
    return {
        "buffer": one.name,
        "dtype": stored.dtype.name,
        "shape": list(stored.shape),
        "role": "inout" if one.name in written else "in",
        "input": f'file("{paths[one.name]}")',
    }


def _constant(one: GivenArray, paths: Mapping[str, Path]) -> dict[str, Any]:
    stored = one.stored
    return {
        "buffer": one.name,
        "dtype": stored.dtype.name,
        "shape": list(stored.shape),
        "role": "constant",
        "input": f'file("{paths[one.name]}")',
    }


def _size_name(call: KernelCall) -> str:
    return next(name for name in _SIZE_NAMES if name not in call.tunables)


def _shown_size(call: KernelCall) -> str:
    """The problem size as the name of the workload has it, such as 4096x4096."""
    given = call.geometry.problem_size
    axes = given if isinstance(given, list | tuple) else [given]
    return re.sub(r"[\s,=]+", "", "x".join(str(axis) for axis in axes))
