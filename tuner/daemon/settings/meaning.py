"""What the settings mean, in sentences, without doing anything."""

from collections.abc import Iterator

from tuner.daemon.jobs.sets import orders_of
from tuner.daemon.lanes.windows import opening
from tuner.daemon.process.ground import Choices, read, state_directory
from tuner.daemon.settings.file import SYSTEM_FILE
from tuner.daemon.settings.tables import Settings, WindowTable
from tuner.daemon.situation import local_now
from tuner.errors import InputError

_ANY_DEVICE = "the first GPU"


def sentences(choices: Choices) -> Iterator[str]:
    """What a daemon with these choices would do, line by line.

    Raises:
        InputError: a file, or a set in it, is wrong.
    """
    ground = read(choices)
    settings = ground.settings
    devices = choices.devices or settings.service.devices
    yield f"settings: {_file(choices)}"
    yield f"state: {state_directory(choices, settings)}"
    yield f"devices: {', '.join(devices) or 'every GPU found; without one, sim:jetson-tx1, modelled'}"
    yield f"kernels: {len(ground.catalog.names)}, of {1 + len(ground.directories)} directories"
    for broken in ground.catalog.broken:
        yield f"left out: {broken}"
    wrong = []
    for group in settings.set:
        try:
            orders = orders_of(group, settings, ground.catalog, devices or (_ANY_DEVICE,))
        except InputError as error:
            wrong.append(f"set {group.name}: {error}")
            continue
        for order in orders:
            what = (
                f"{' '.join(order.workloads)} for {order.objective} by {order.policy}, clocks {order.clocks}"
            )
            yield f"set {group.name}: {what}, on {order.device}"
    if wrong:
        raise InputError("\n".join(wrong))
    yield from _limits(settings)


def _file(choices: Choices) -> str:
    if choices.config is not None:
        return str(choices.config)
    return str(SYSTEM_FILE) if SYSTEM_FILE.exists() else f"none ({SYSTEM_FILE} is not there): all defaults"


def _limits(settings: Settings) -> Iterator[str]:
    budget, idle = settings.budget, settings.idle
    costs = [
        f"{limit:g} {unit}"
        for limit, unit in ((budget.seconds_per_day, "s"), (budget.joules_per_day, "J"))
        if limit is not None
    ]
    yield f"budget: {' and '.join(costs) + ' of measuring a day and GPU' if costs else 'no limit'}"
    for window in settings.window:
        yield f"window: {_window(window)}"
    if not settings.window:
        yield "windows: none, tuning is allowed always"
    if idle.test:
        yield f"idle test: every {idle.look_every_s:g} s; a job begins after {idle.calm_s:g} s of a free GPU"
    else:
        yield "idle test: off, others on the GPU are not looked for"


def _window(window: WindowTable) -> str:
    now = opening((window,), local_now())
    when = "never opens" if now.changes_at is None else f"{now.changes_at:%Y-%m-%d %H:%M}"
    state = f"open until {when}" if now.open else f"opens {when}"
    return f"{window.start!r} for {window.hours:g} h: {state}"
