"""What to paste into a build: the tunables of a configuration as macros of a compiler."""

import shlex
from collections.abc import Mapping

from tuner.model.plan import TunableValue
from tuner.model.run_document import Expanded


def flags_of(configuration: Mapping[str, TunableValue]) -> str:
    """A configuration as options of nvcc: ``-DP=16 -Dshuffle=1``; booleans are 1 and 0, as kernels get them.

    Values that a shell would read otherwise are quoted.
    """
    values = (
        (name, int(value) if isinstance(value, bool) else value) for name, value in configuration.items()
    )
    return " ".join(shlex.quote(f"-D{name}={value}") for name, value in values)


def expanded_use(expanded: Expanded) -> str:
    """The same where template arguments are tunables, or pragmas, which count in its expansion."""
    macros, source = flags_of(expanded["macros"]), expanded["source"]
    expands = f" with the source of tuner kernels expand {source}" if source else ""
    built = [f"{macros}{expands}"] if macros else []
    return "; ".join([*built, *(f"launch {entry}" for entry in expanded["entries"] if "<" in entry)])
