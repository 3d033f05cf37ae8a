"""What builds a configuration, read from the record that a run has stored of it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tuner.model.errors import InputError
from tuner.model.plan import STREAM_PRIORITY, TunableValue
from tuner.recordings import checks
from tuner.untrusted.build_texts import define_words, is_plain_word, macro_value
from tuner.untrusted.compiler_options import check_options


@dataclass(frozen=True)
class Build:
    """What builds a configuration.

    Attributes:
        macros: what the compiler is told of the tunables.
        options: what else it is told.
        source: with pragmas the name of the source, of which ``tuner kernels expand`` writes the one that
            takes the macros; else None.
        entries: functions that are launched, with template arguments; none where that is not known.
        parameters: tunables that launches are told, as block sizes.
    """

    macros: Mapping[str, TunableValue]
    options: tuple[str, ...] = ()
    source: str | None = None
    entries: tuple[str, ...] = ()
    parameters: Mapping[str, TunableValue] = field(default_factory=dict)

    def words(self) -> list[str]:
        """Options of nvcc, each a word that is safe unquoted.

        Raises:
            InputError: one is not, or no kernel may have it: whoever wrote the record may name a program.
        """
        check_options(self.options)
        for option in self.options:
            if not is_plain_word(option) or "," in option:
                raise InputError(f"the option {option!r} is not safe in a command of a shell")
        return [*define_words(self.macros), *self.options]

    def launches(self) -> list[str]:
        """What is launched with template arguments, and what launches are told: ``f<4> with block=64``."""
        entries = [one for one in self.entries if "<" in one]
        told = ", ".join(f"{name}={macro_value(value)}" for name, value in self.parameters.items())
        if not told:
            return entries
        if not entries and len(self.entries) == 1:
            entries = list(self.entries)
        return [f"{entries[0]} with {told}"] if len(entries) == 1 else [*entries, f"each with {told}"]


def build_of(configuration: Mapping[str, TunableValue], record: Mapping[str, Any] | None) -> Build:
    """What builds a configuration.

    Args:
        configuration: the values.
        record: as ``tuner.kernel_files.build_record.build_record`` makes it; None where all tunables are macros.

    Raises:
        ValueError: the record is none.
    """
    if record is None:
        launch = {name: value for name, value in configuration.items() if name == STREAM_PRIORITY}
        return Build({n: v for n, v in configuration.items() if n not in launch}, parameters=launch)
    where = "expanded"
    macros = checks.table(record, "macros", where)
    lists = {
        key: checks.one(record, key, where, checks.TEXTS) if key in record else ()
        for key in ("options", "entries", "parameters")
    }
    return Build(
        macros={name: checks.one(macros, name, "expanded macros", checks.TEXT) for name in macros},
        options=tuple(lists["options"]),
        source=None if record.get("source") is None else checks.one(record, "source", where, checks.NAME),
        entries=tuple(lists["entries"]),
        parameters={name: configuration[name] for name in lists["parameters"]},
    )
