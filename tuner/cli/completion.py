"""``tuner completion``: what a shell reads to complete commands, options and names."""

import click
from click.shell_completion import get_completion_class

_VARIABLE = "_TUNER_COMPLETE"
SHELLS = ("bash", "zsh", "fish")


@click.command(short_help="Print what a shell reads to complete commands.")
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
    """What bash, zsh or fish read to complete the words of a command called ``tuner``."""
    kind = get_completion_class(shell)
    if kind is None:
        raise click.UsageError(f"this version of click does not complete for {shell}")
    # without .source(), which starts bash to ask for its version: packages are built without one
    completing = kind(root, {}, "tuner", _VARIABLE)
    return completing.source_template % completing.source_vars()
