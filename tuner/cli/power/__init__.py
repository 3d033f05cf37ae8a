"""``tuner power``: the power sensors of this machine, and their readings."""

import click

from tuner.cli.lifecycle import LazyGroup

COMMANDS = {
    "sensors": "tuner.cli.power.sensors:sensors",
    "watch": "tuner.cli.power.watch:watch",
    "trace": "tuner.cli.power.trace:trace",
    "calibrate": "tuner.cli.power.calibrate:calibrate",
}


@click.group(cls=LazyGroup, table=COMMANDS)
def power() -> None:
    """Power sensors: find, watch, record and calibrate them."""
