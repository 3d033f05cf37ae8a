"""What a shell offers for words of commands, as far as it is known at once."""

from collections.abc import Iterable

import click
from click.shell_completion import CompletionItem

from tuner import registry
from tuner.errors import TunerError

_PATIENCE_S = 0.5  # a shell that hangs is worse than one that offers nothing
_JOBS = 50  # as many numbers as somebody may still read


def workloads(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Kernels of the catalogue, with the problem they solve."""
    del ctx, parameter
    from tuner.config.catalog import Catalog

    kernels = Catalog.load().kernels
    return [
        CompletionItem(name, help=kernel.recipe.problem.name)
        for name, kernel in kernels.items()
        if name.startswith(incomplete)
    ]


def devices(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The first GPU, and simulated ones; others are not looked for, as that may take seconds."""
    del ctx, parameter
    from tuner.devices.gpus import gpu_names

    return _starting(["cuda:0", *(f"sim:{name}" for name in gpu_names())], incomplete)


def policies(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Search strategies."""
    del ctx, parameter
    return _starting(registry.names("policy"), incomplete)


def objectives(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """What can be minimised."""
    del ctx, parameter
    from tuner.model.objective import NAMES

    return _starting(NAMES, incomplete)


def jobs(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Numbers of the daemon's newest jobs, with what they do; nothing where no daemon answers."""
    del parameter
    from tuner.cli.remote import one_line
    from tuner.client import Client

    try:
        found = Client(ctx.params.get("socket"), timeout_s=_PATIENCE_S).jobs(limit=_JOBS)
    except TunerError:
        return []
    return [
        CompletionItem(str(job.id), help=one_line(job)) for job in found if str(job.id).startswith(incomplete)
    ]


def _starting(words: Iterable[str], incomplete: str) -> list[CompletionItem]:
    return [CompletionItem(word) for word in words if word.startswith(incomplete)]
