"""When a tunable has a value, and what expressions see in its place where it has none."""

from dataclasses import dataclass

from tuner.expressions import Expression, NoValue


@dataclass(frozen=True)
class Condition:
    """The condition of a tunable.

    Attributes:
        when: over constants, the tunables above, and derived names of these; where it is false the tunable
            has no value.
        otherwise: what expressions see there, over constants and the tunables above; None where they must
            not come to it.
    """

    when: Expression
    otherwise: Expression | None = None

    @property
    def no_value(self) -> NoValue:
        """What stands for the tunable where nothing else does."""
        return NoValue(f"it has one where {self.when.text}")
