"""The meaning of ``daemon.toml`` in sentences, for ``tuner daemon --check``."""

import grp
from collections.abc import Iterator

from tuner.daemon.devices.admission import local_now, window_status
from tuner.daemon.jobs.shares import known
from tuner.daemon.jobs.specs import specs_of
from tuner.daemon.settings import LimitsTable, OnlineTable, Settings, TcpTable, TuningTable, WindowTable
from tuner.daemon.settings_file import SYSTEM_FILE
from tuner.daemon.state import StartOptions, load_config
from tuner.model.errors import InputError
from tuner.model.jobs import JobSpec
from tuner.model.objective import OF_SINGLES
from tuner.model.options import SINGLE
from tuner.system.service_manager import default_sockets

_EVERY_DEVICE = "every GPU found"


def sentences(options: StartOptions) -> Iterator[str]:
    """Describe the behaviour of a daemon with these options, line by line.

    Raises:
        InputError: a file, or a set in it, is wrong.
    """
    config = load_config(options)
    settings = config.settings
    devices = options.devices or settings.service.devices
    yield f"settings: {_file(options)}"
    state = options.state_directory(settings)
    named = options.state or settings.service.state
    yield f"state: {state}{'' if named else '; under systemd, that of its unit'}"
    yield f"devices: {', '.join(devices) or 'every GPU found; without one, sim:jetson-tx1, modelled'}"
    yield from _access(options, settings)
    yield f"kernels: {len(config.catalog.names)}, of {1 + len(config.directories)} directories"
    for broken in config.catalog.broken:
        yield f"left out: {broken}"
    yield from _tuning(settings.tuning)
    wrong = []
    for group in settings.set:
        try:
            specs = specs_of(group, settings, config.catalog, devices or group.devices or (_EVERY_DEVICE,))
        except InputError as error:
            wrong.append(f"set {group.name}: {error}")
            continue
        yield from (f"set {group.name}: {_search(spec)}, on {spec.device or 'any device'}" for spec in specs)
    if wrong:
        raise InputError("\n".join(wrong))
    yield from _limits(settings)
    yield from _shares(settings.limits)
    yield from _online(settings.online)


def _file(options: StartOptions) -> str:
    if options.config is not None:
        return str(options.config)
    return str(SYSTEM_FILE) if SYSTEM_FILE.exists() else f"none ({SYSTEM_FILE} is not there): all defaults"


def _access(options: StartOptions, settings: Settings) -> Iterator[str]:
    service = settings.service
    named = options.socket or service.socket
    where = str(named) if named else " or ".join(map(str, default_sockets()))
    yield f"socket: {where}; under systemd, that of its socket unit"
    try:
        grp.getgrnam(service.group)
    except KeyError:
        yield f"group: {service.group} is not on this machine: only the daemon's own user may connect"
    else:
        yield f"group: {service.group} may connect, where the daemon may give it the socket"
    yield f"TCP: {_tcp(settings.tcp)}"


def _tcp(tcp: TcpTable) -> str:
    if tcp.port is None:
        return "off"
    where = f"port {tcp.port}" if tcp.port else "any free port"
    return f"{where} of the loopback, with the tokens of `tuner token list`"


def _tuning(tuning: TuningTable) -> Iterator[str]:
    found = f"{tuning.objective} by {tuning.policy}, clocks {tuning.clocks}"
    precision = 100 * tuning.options["energy_precision"]
    yield f"defaults: {found}, energy to ± {precision:g} % (95 %)"
    others = "" if tuning.clocks == "off" else f" and {tuning.clocks}"
    if tuning.exclusive_board:
        yield "GPUs take turns: joules are measured on one GPU of the host at a time"
    yield f"clients may choose clocks: {'any' if tuning.client_clocks else f'off{others}, no others'}"


def _search(spec: JobSpec) -> str:
    limit = spec.options.get("max_slowdown")
    within = "" if limit is None else f", at most {100 * limit:g} % slower than the fastest"
    singles = OF_SINGLES if spec.options.get("timing") == SINGLE else ""
    goal = f"{spec.objective}{singles}{within}"
    return f"{' '.join(spec.workloads)} for {goal} by {spec.policy}, clocks {spec.clocks}"


def _online(online: OnlineTable) -> Iterator[str]:
    hours = online.sample_every_hours
    yield f"answers in use are measured again: {f'every {hours:g} h' if hours else 'never'}"
    yield f"requests that were never tuned: {'are searched' if online.refine else 'are not searched'}"
    yield f"stale answers: {'are searched again' if online.retune_stale else 'are not searched again'}"


def _limits(settings: Settings) -> Iterator[str]:
    budget, idle = settings.budget, settings.idle
    costs = [
        f"{limit:g} {unit}"
        for limit, unit in ((budget.seconds_per_day, "s"), (budget.joules_per_day, "J"))
        if limit is not None
    ]
    yield f"budget: {' and '.join(costs) + ' of measuring a day and GPU' if costs else 'no limit'}"
    of_host = [
        f"{limit:g} {unit}"
        for limit, unit in ((budget.host_seconds_per_day, "s"), (budget.host_joules_per_day, "J"))
        if limit is not None
    ]
    if of_host:
        yield f"budget of the host: {' and '.join(of_host)} of measuring a day on all GPUs together"
    for window in settings.window:
        yield f"window: {_window(window)}"
    if not settings.window:
        yield "windows: none, tuning is allowed always"
    if idle.test:
        yield f"idle test: every {idle.look_every_s:g} s; a job begins after {idle.calm_s:g} s of a free GPU"
    else:
        yield "idle test: off, other users of the GPU are ignored"


def _shares(limits: LimitsTable) -> Iterator[str]:
    yield f"jobs that wait: {limits.queue} at most, {limits.queue_per_user} of one user"
    yield f"priorities of clients count between users up to: {limits.highest_priority:g}"
    managers = [who if known(who) else f"{who} (no such user on this machine)" for who in limits.manage]
    yield f"jobs of all are changed by: {', '.join(('root', 'who runs the daemon', *managers))}"


def _window(window: WindowTable) -> str:
    now = window_status((window,), local_now())
    when = "never opens" if now.changes_at is None else f"{now.changes_at:%Y-%m-%d %H:%M}"
    state = f"open until {when}" if now.open else f"opens {when}"
    where = f" on {', '.join(window.devices)}" if window.devices else ""
    return f"{window.start!r} for {window.hours:g} h{where}: {state}"
