"""Parses the policies and groups of workloads of a comparison from the command line."""

import inspect
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from tuner import registry
from tuner.kernel_files.catalog import Catalog
from tuner.model.errors import InputError, UnknownNameError, suggestion
from tuner.model.workload_name import WorkloadName
from tuner.recordings.opening import listed
from tuner.space.search_view import Policy

TOGETHER = "+"  # between the workloads of a co-run

Group = tuple[str, ...]
"""Names of workloads that run together; one for a workload alone."""


@dataclass(frozen=True)
class PolicyChoice:
    """A policy as the user named it.

    Attributes:
        label: the user's words, e.g. ``analytical:rule=server``.
        name: in the registry.
        options: keyword arguments.
    """

    label: str
    name: str
    options: tuple[tuple[str, Any], ...] = ()

    def load(self) -> Policy:
        """Import the policy and give it its options."""
        policy: Policy = registry.load("policy", self.name)
        return partial(policy, **dict(self.options)) if self.options else policy


def every_policy() -> tuple[str, ...]:
    """Names of all policies but the exhaustive one, which is the ground truth."""
    return tuple(name for name in registry.names("policy") if name != "exhaustive")


def policies(words: str | None) -> tuple[PolicyChoice, ...]:
    """Policies from ``name[:option=value]...``, separated by commas; None for all of them.

    Raises:
        UnknownNameError: no such policy, or it has no such option; the message lists those there are.
        InputError: nothing is named, or something twice.
    """
    named = every_policy() if words is None else tuple(word.strip() for word in words.split(","))
    found = tuple(_policy(word) for word in named if word)
    if not found:
        raise InputError(f"--policies {words!r} names none; choose from {', '.join(every_policy())}")
    twice = {one.label for one in found if sum(one.label == other.label for other in found) > 1}
    if twice:
        raise InputError(f"--policies: {', '.join(sorted(twice))} is named more than once")
    return found


def _policy(label: str) -> PolicyChoice:
    name, *pairs = label.split(":")
    if name not in registry.names("policy"):
        choices = registry.names("policy")
        near = suggestion(name, choices)
        raise UnknownNameError(f"--policies: unknown policy {name!r}; choose from {', '.join(choices)}{near}")
    if not pairs:
        return PolicyChoice(label, name)
    known = [p.name for p in inspect.signature(registry.load("policy", name)).parameters.values()][1:]
    options = []
    for pair in pairs:
        key, equals, text = pair.partition("=")
        if key not in known or not equals:
            there = f"its options are {', '.join(known)}" if known else "it has none"
            raise UnknownNameError(f"--policies {label}: {pair!r} is no option of {name}; {there}")
        options.append((key, _value(text)))
    return PolicyChoice(label, name, tuple(options))


def _value(text: str) -> bool | float | str:
    """A number or a truth value where the text is one."""
    words = {"true": True, "false": False}
    if text.lower() in words:
        return words[text.lower()]
    try:
        number = float(text)
    except ValueError:
        return text
    return int(number) if number.is_integer() else number


def recorded_groups(words: Sequence[str], names: Sequence[Group], where: str) -> tuple[Group, ...]:
    """The recorded groups that words name; all of them where there are no words.

    Args:
        words: ``fft:N=1024``, ``fft`` for all its sizes, or ``a+b`` for a co-run.
        names: the groups that are recorded.
        where: the recording, for messages.

    Raises:
        UnknownNameError: a word names none of them; the message lists what there is.
    """
    if not words:
        return tuple(names)

    def named(word: str) -> list[Group]:
        parts = _parts(word)
        if len(parts) > 1:
            return [group for group in names if sorted(group) == sorted(parts)]
        return [group for group in names if len(group) == 1 and _covers(parts[0], group[0])]

    return _unique(words, named, lambda word: _not_recorded(word, names, where))


def catalog_groups(words: Sequence[str], catalog: Catalog) -> tuple[Group, ...]:
    """The groups that words name, by the kernel files; a bare kernel is every size its file states.

    Raises:
        UnknownNameError: an unknown kernel or size.
        InputError: a word has another form, or no word is there.
    """
    if not words:
        raise InputError(
            "name workloads to compare policies on, e.g. fft, fft:N=1024 or scan-lf:N=256+fft:N=256"
        )

    def named(word: str) -> list[Group]:
        parts = _parts(word)
        if len(parts) == 1 and ":" not in word:
            return [(str(workload),) for workload in catalog.kernel(word).workloads()]
        for part in parts:
            catalog.workload(part)
        return [tuple(parts)]

    return _unique(words, named, lambda word: f"{word} has no sizes")


def operation(group: Group) -> str:
    """The kernels of a group, which is what its sizes share: ``fft``, or ``scan-lf+fft`` for a co-run."""
    return TOGETHER.join(WorkloadName.parse(name).kernel for name in group)


def _parts(word: str) -> list[str]:
    """The workloads of a word."""
    parts = [part.strip() for part in word.split(TOGETHER)]
    if not all(parts):
        raise InputError(f"workload {word!r}: there is no name before or after a {TOGETHER}")
    if len(set(parts)) < len(parts):
        raise InputError(f"workload {word!r}: a co-run holds a workload once")
    return parts


def _covers(word: str, name: str) -> bool:
    return word == name or WorkloadName.parse(name).kernel == word


def _unique(
    words: Iterable[str], named: Callable[[str], list[Group]], missing: Callable[[str], str]
) -> tuple[Group, ...]:
    """The groups of all words in order, each once."""
    groups: dict[Group, None] = {}
    for word in words:
        found = named(word)
        if not found:
            raise UnknownNameError(missing(word))
        groups |= dict.fromkeys(found)
    return tuple(groups)


def _not_recorded(word: str, names: Sequence[Group], where: str) -> str:
    kernels = {WorkloadName.parse(group[0]).kernel for group in names if len(group) == 1}
    choices = [*sorted(kernels), *(TOGETHER.join(group) for group in names)]
    there = listed(names, TOGETHER)
    return f"{where}: no recorded space of {word}{suggestion(word, choices)}; there are {there}"
