"""The steps that install and remove the service; each can be repeated after a failure."""

from collections.abc import Iterator
from pathlib import Path

from tuner.installing import record, steps
from tuner.installing.places import Item, Site
from tuner.installing.record import Record
from tuner.installing.steps import Command, Step

STATE = ("/var/lib/tuner", "/var/cache/tuner")  # of the service: results, and what can be made again


def install(site: Site, runner: Command = steps.execute) -> list[Step]:
    """The steps that install the service, or bring what is installed up to date.

    Raises:
        InstallError: the record of an earlier installation cannot be read.
    """
    listed = site.settings / record.NAME
    before = record.read(listed)
    had = before or Record()
    items = site.items()
    new = _recorded(items, had)
    stale = [Path(path) for path in had.files if path not in new.files]
    # until all is done both are recorded: whichever of them is there can be removed then
    begun = Record({**had.files, **new.files}, tuple(dict.fromkeys((*had.settings, *new.settings))))
    files = [step for item in items for step in _placed(item, had)]
    changed = [step.words for step in files if step.words.startswith(("write", "replace"))]
    # a socket keeps its group and its mode until it is made anew
    replaced = [name for name in site.started if f"replace {site.units / name}" in changed]
    sockets = [name for name in replaced if name.endswith(".socket")]
    again = [*sockets, "tuner.service"] if before is not None and changed else []
    result = [
        *([steps.write(listed, begun.document())] if begun != before else []),
        *files,
        *(steps.make(path) for path in site.directories() if not path.is_dir()),
        *(step for path in stale for step in _removed(path, had)),
    ]
    if begun != new:
        result.append(steps.write(listed, new.document()))
    return [*result, *_taken_into_use(site, runner, again)]


def uninstall(site: Site, runner: Command = steps.execute, *, with_results: bool = False) -> list[Step]:
    """The steps that stop the service and remove what was installed, and nothing else.

    Args:
        site: where it was installed.
        runner: runs commands.
        with_results: remove results and caches too.

    Raises:
        InstallError: the record of the installation cannot be read.
    """
    listed = site.settings / record.NAME
    had = record.read(listed)
    result: list[Step] = []
    if had is None:
        result.append(steps.say(f"nothing is installed: there is no {listed}"))
    else:
        result += _stopped(site, runner)
        result += [step for path in had.files for step in _removed(Path(path), had)]
        if site.here:
            result.append(steps.run(site.systemctl("daemon-reload"), runner))
        result += [steps.remove(listed), *(steps.remove_empty(path) for path in site.directories())]
        result.append(steps.remove_empty(site.settings))
    return [*result, *_results(site, remove=with_results)]


def _recorded(items: list[Item], had: Record) -> Record:
    """What there will be: a file of settings that stays as it is keeps what was recorded of it."""
    files = {}
    for item in items:
        kept = item.settings and not _may_write(item, had)
        files[str(item.path)] = had.files.get(str(item.path), "") if kept else record.digest(item.text)
    return Record(files, tuple(str(item.path) for item in items if item.settings))


def _may_write(item: Item, had: Record) -> bool:
    same = record.digest_of(item.path) == record.digest(item.text)
    return same or not item.path.exists() or had.is_ours(item.path)


def _placed(item: Item, had: Record) -> Iterator[Step]:
    if not item.path.exists():
        yield steps.write(item.path, item.text, program=item.program)
    elif record.digest_of(item.path) == record.digest(item.text):
        yield steps.say(f"leave {item.path}, which is up to date")
    elif item.settings and not _may_write(item, had):
        yield steps.say(f"keep {item.path}, which has changed since the installation")
    else:
        yield steps.write(item.path, item.text, "replace", program=item.program)


def _removed(path: Path, had: Record) -> Iterator[Step]:
    if not path.exists():
        return
    if str(path) in had.settings and not had.is_ours(path):
        yield steps.say(f"keep {path}, which has changed since the installation")
    else:
        yield steps.remove(path)


def _taken_into_use(site: Site, runner: Command, again: list[str]) -> Iterator[Step]:
    enable = ("enable", "--now", *site.started) if site.here else ("enable", *site.started)
    if site.here and not site.user:
        users = [str(item.path) for item in site.items() if item.path.parent.name == "sysusers.d"]
        yield steps.run(("systemd-sysusers", *users), runner)
        yield steps.run(("systemd-tmpfiles", "--create", str(site.at("/etc/tmpfiles.d/tuner.conf"))), runner)
    if site.here:
        yield steps.run(site.systemctl("daemon-reload"), runner)
    if site.here and again:  # in one call: the daemon ends before the helper that it has clocks of
        yield steps.run(site.systemctl("try-restart", *again), runner)
    yield steps.run(site.systemctl(*enable), runner)


def _stopped(site: Site, runner: Command) -> Iterator[Step]:
    there = [name for name in site.started if (site.units / name).exists()]
    if there:
        now = ("--now",) if site.here else ()
        yield steps.run(site.systemctl("disable", *now, *there), runner)
    if site.here and (site.units / "tuner-clockd.service").exists():  # its socket started it
        yield steps.run(site.systemctl("stop", "tuner-clockd.service"), runner)


def _results(site: Site, *, remove: bool) -> Iterator[Step]:
    if site.user:
        yield steps.say("keep the results: they are those of `tuner run`, too")
        return
    for path in map(site.at, STATE):
        if path.exists():
            yield steps.purge(path) if remove else steps.say(f"keep {path}; --purge removes it")
    yield steps.say("keep the user tuner, and the groups tuner and tuner-clocks with their members")
