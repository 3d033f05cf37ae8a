"""``tuner judge``: a candidate against a reference."""

from dataclasses import asdict
from pathlib import Path

import click

from tuner.cli.options import NamedPath
from tuner.cli.output import echo, json_option, write_json

_WRONG = 1


@click.command(short_help="Judge a candidate against a reference: right, honest, time, joules.")
@click.argument("file", type=NamedPath(path_type=Path))
@click.option(
    "--candidate",
    metavar="NAME",
    default="candidate",
    show_default=True,
    help="A function of FILE, or file.py:function of another.",
)
@click.option("--reference", metavar="NAME", default="reference", show_default=True, help="Likewise.")
@click.option("--inputs", metavar="NAME", default="inputs", show_default=True, help="Likewise.")
@click.option(
    "--seconds", type=float, default=10.0, show_default=True, help="Measure both in turns so long at most."
)
@click.option(
    "--timeout", type=float, default=60.0, show_default=True, help="Longest wait for a call, seconds."
)
@json_option
@click.pass_context
def judge(
    ctx: click.Context,
    *,
    file: Path,
    candidate: str,
    reference: str,
    inputs: str,
    seconds: float,
    timeout: float,
    json_path: str | None,
) -> None:
    """Judge whether a candidate in FILE is right and honest, how fast it is, and how many joules it takes.

    FILE is a Python file with functions candidate, reference and inputs(rng), or inputs(rng, size) and
    a list sizes; writes and tolerance may stand there, too. The exit code is 0 where the candidate is right,
    1 where it is wrong or cheats, and 2 for wrong input.
    """
    from tuner.python.judging import judge as judgement_of

    names = (candidate, reference, inputs)
    one, other, made = (name if ":" in name else f"{file}:{name}" for name in names)
    judgement = judgement_of(one, other, inputs=made, seconds=seconds, timeout_s=timeout)
    if json_path is not None:
        write_json(json_path, {**asdict(judgement), "sizes": [str(size) for size in judgement.sizes]})
    if json_path != "-":
        echo(judgement)
    ctx.exit(0 if judgement.verdict == "right" else _WRONG)
