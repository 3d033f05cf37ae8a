"""``tuner completion``: completion scripts for shells, and the completions of arguments."""

from collections.abc import Iterable

import click
from click.shell_completion import CompletionItem, get_completion_class

from tuner.model import registry
from tuner.model.errors import TunerError
from tuner.model.options import TIMINGS

_PATIENCE_S = 0.5  # a shell that hangs is worse than one that offers nothing
_JOBS = 50  # as many numbers as somebody may still read
_VARIABLE = "_TUNER_COMPLETE"
SHELLS = ("bash", "zsh", "fish")


def workloads(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Kernels of the catalogue, with the problem they solve."""
    del ctx, parameter
    from tuner.kernel_files.catalog import Catalog

    kernels = Catalog.load().kernels
    return [
        CompletionItem(name, help=kernel.recipe.problem.name)
        for name, kernel in kernels.items()
        if name.startswith(incomplete)
    ]


def devices(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The first GPU, and simulated ones; a search for others may take seconds."""
    del ctx, parameter
    from tuner.devices.gpu_models import gpu_names

    return _starting(["cuda:0", *(f"sim:{name}" for name in gpu_names())], incomplete)


def policies(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Search strategies."""
    del ctx, parameter
    return _starting(registry.names("policy"), incomplete)


def objectives(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Objectives of a search."""
    del ctx, parameter
    from tuner.model.objective import NAMES

    return _starting(NAMES, incomplete)


def timings(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Timings of trials."""
    del ctx, parameter
    return _starting(TIMINGS, incomplete)


def jobs(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Numbers of the daemon's newest jobs, with a description; nothing if no daemon answers."""
    del parameter
    from tuner.cli.remote import one_line
    from tuner.client.client import Client

    try:
        found = Client(ctx.params.get("socket"), timeout_s=_PATIENCE_S).jobs(limit=_JOBS)
    except TunerError:
        return []
    return [
        CompletionItem(str(job.id), help=one_line(job)) for job in found if str(job.id).startswith(incomplete)
    ]


def _starting(words: Iterable[str], incomplete: str) -> list[CompletionItem]:
    return [CompletionItem(word) for word in words if word.startswith(incomplete)]


@click.command(short_help="Print the completion script of a shell.")
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def completion(ctx: click.Context, /, shell: str) -> None:
    """Print the script that lets a shell complete commands, options, kernels, devices, policies and jobs.

    \b
    tuner completion bash > ~/.local/share/bash-completion/completions/tuner
    tuner completion zsh > ~/.zfunc/_tuner    (with ~/.zfunc in $fpath)
    tuner completion fish > ~/.config/fish/completions/tuner.fish
    """  # noqa: D301 - \b is click's mark of lines that stay as they are
    click.echo(script(shell, ctx.find_root().command))


def script(shell: str, root: click.Command) -> str:
    """The completion script of bash, zsh or fish for a command called ``tuner``."""
    kind = get_completion_class(shell)
    if kind is None:
        raise click.UsageError(f"this version of click does not complete for {shell}")
    # without .source(), which starts bash to ask for its version: packages are built without one
    completing = kind(root, {}, "tuner", _VARIABLE)
    return completing.source_template % completing.source_vars()
