"""``tune_kernel`` and ``run_kernel`` with the parameters of Kernel Tuner 1.x."""

import logging
from datetime import datetime, timezone
from typing import Any

from tuner.kernel_tuner.call_arguments import UserValue, configuration_of, device_spec, ignored_platform
from tuner.kernel_tuner.observers import metrics_of
from tuner.kernel_tuner.strategies import search_of
from tuner.kernel_tuner.translation import read_call
from tuner.kernel_tuner.trial_results import aim_of, check_metrics, judge_of
from tuner.kernel_tuner.tuning_call import TuningCall, run_once, tuned
from tuner.model.errors import InputError, UnsupportedError

_COMPILERS = (None, "nvcc", "nvrtc")


def tune_kernel(  # noqa: PLR0917 - the parameters of Kernel Tuner, in its order
    kernel_name: str,
    kernel_source: UserValue,
    problem_size: UserValue,
    arguments: UserValue,
    tune_params: UserValue,
    grid_div_x: UserValue = None,
    grid_div_y: UserValue = None,
    grid_div_z: UserValue = None,
    restrictions: UserValue = None,
    answer: UserValue = None,
    atol: float = 1e-6,
    verify: UserValue = None,
    verbose: bool = False,
    lang: str | None = None,
    device: int | str = 0,
    platform: int = 0,
    smem_args: UserValue = None,
    cmem_args: UserValue = None,
    texmem_args: UserValue = None,
    compiler: str | None = None,
    compiler_options: UserValue = None,
    defines: UserValue = None,
    log: UserValue = None,
    iterations: int = 7,
    block_size_names: UserValue = None,
    quiet: bool = False,
    strategy: UserValue = None,
    strategy_options: UserValue = None,
    cache: UserValue = None,
    metrics: UserValue = None,
    simulation_mode: UserValue = None,
    parallel: UserValue = None,
    observers: UserValue = None,
    objective: UserValue = None,
    objective_higher_is_better: UserValue = None,
    objectives: UserValue = None,
    seed: int | None = None,
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Tune a CUDA kernel; ``docs/kernel-tuner.md`` says what every argument means here.

    Returns:
        A dict per configuration, with its parameters, ``time`` in ms and metrics, or ``__error__``; and what
        was tuned on, with the best of them under ``best_config``.

    Raises:
        UnsupportedError: an argument has no meaning here; it is an ``InputError`` and a
            ``NotImplementedError``, and names the argument.
        InputError: an argument cannot be used; a ``ValueError`` that names it.
        VerificationError: every configuration gave a wrong answer.
        DeviceUnavailableError: the device cannot be opened.
    """
    del parallel  # compiling is parallel anyway, and configurations are measured one by one
    _check_iterations(iterations)
    _refuse_what_is_missing(texmem_args, compiler, simulation_mode)
    ignored_platform(platform)
    _log_to_file(kernel_name, log)
    check_metrics(metrics)
    added = metrics_of(observers)
    metrics = {**added, **(metrics or {})} if added else metrics
    kernel = read_call(
        kernel_name,
        kernel_source,
        problem_size,
        arguments,
        tune_params,
        grid_div=(grid_div_x, grid_div_y, grid_div_z),
        restrictions=restrictions,
        lang=lang,
        smem_args=smem_args,
        cmem_args=cmem_args,
        compiler_options=compiler_options,
        defines=defines,
        block_size_names=block_size_names,
    )
    call = TuningCall(
        kernel=kernel,
        search=search_of(strategy, strategy_options, seed),
        aim=aim_of(objective, objective_higher_is_better, objectives, metrics),
        judge=judge_of(kernel.arguments, answer, atol, verify, observers or ()),
        metrics=metrics,
        device_spec=device_spec(device),
        cache=cache,
        quiet=bool(quiet),
        verbose=bool(verbose),
    )
    return tuned(call)


def run_kernel(  # noqa: PLR0917 - the parameters of Kernel Tuner, in its order
    kernel_name: str,
    kernel_source: UserValue,
    problem_size: UserValue,
    arguments: UserValue,
    params: UserValue,
    grid_div_x: UserValue = None,
    grid_div_y: UserValue = None,
    grid_div_z: UserValue = None,
    lang: str | None = None,
    device: int | str = 0,
    platform: int = 0,
    smem_args: UserValue = None,
    cmem_args: UserValue = None,
    texmem_args: UserValue = None,
    compiler: str | None = None,
    compiler_options: UserValue = None,
    defines: UserValue = None,
    block_size_names: UserValue = None,
    quiet: bool = False,
    log: UserValue = None,
) -> list[Any]:
    """Run a CUDA kernel once, on a GPU, with one configuration.

    Returns:
        The arguments after the run, in their order: NumPy arrays, and scalars as they were given. A modelled
        device computes nothing: what the kernel may write is then an object without numbers, which raises
        where they are asked for, and which is not checked as an ``answer``.

    Raises:
        UnsupportedError: an argument has no meaning here; it names the argument.
        InputError: an argument cannot be used; it names it.
        DeviceUnavailableError: the GPU cannot be opened.
        CompileError: the source does not compile.
        DeviceError: the kernel cannot be launched, or failed.
    """
    del quiet  # nothing is printed
    _refuse_what_is_missing(texmem_args, compiler)
    ignored_platform(platform)
    _log_to_file(kernel_name, log)
    kernel = read_call(
        kernel_name,
        kernel_source,
        problem_size,
        arguments,
        configuration_of(params),
        grid_div=(grid_div_x, grid_div_y, grid_div_z),
        lang=lang,
        smem_args=smem_args,
        cmem_args=cmem_args,
        compiler_options=compiler_options,
        defines=defines,
        block_size_names=block_size_names,
    )
    return run_once(kernel, device_spec(device))


def store_results(*_args: UserValue, **_kwargs: UserValue) -> None:
    """Not supported.

    Raises:
        UnsupportedError: always; it says what to use.
    """
    raise UnsupportedError(
        "store_results is not supported: `tuner export RUN --format json` writes such a file"
    )


def create_device_targets(*_args: UserValue, **_kwargs: UserValue) -> None:
    """Not supported.

    Raises:
        UnsupportedError: always; it says what to use.
    """
    raise UnsupportedError(
        "create_device_targets is not supported: `tuner export RUN --format header` writes such a header"
    )


def _refuse_what_is_missing(
    texmem_args: UserValue,
    compiler: UserValue,
    simulation_mode: UserValue = None,
) -> None:
    if texmem_args:
        raise UnsupportedError(
            "texmem_args is not supported: CUDA 12 has no texture references; pass the array as an argument"
        )
    if compiler not in _COMPILERS:
        raise UnsupportedError(f"compiler: {compiler!r} is not supported; kernels are compiled by NVRTC here")
    if simulation_mode:
        raise UnsupportedError(
            "simulation_mode is not supported: `tuner import CACHE` makes a recording, and"
            " `tuner run --device replay:FILE` searches it"
        )


def _check_iterations(iterations: UserValue) -> None:
    """Take any number of runs that Kernel Tuner would: here windows of time decide."""
    if not isinstance(iterations, int) or iterations < 1:
        raise InputError(f"iterations: must be a whole number above 0, not {iterations!r}")


def _log_to_file(kernel_name: str, log: UserValue) -> None:
    """Write the log of all libraries to a file, as Kernel Tuner does."""
    if log:
        now = datetime.now(timezone.utc).strftime("%Y%m%d-%H:%M:%S")
        logging.basicConfig(filename=f"{kernel_name}{now}.log", level=log)
