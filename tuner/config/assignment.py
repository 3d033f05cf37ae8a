"""Values for the tunables of a workload, found one by one: those of a table, or those of a caller."""

from collections.abc import Mapping

from tuner.config.recipe import Recipe
from tuner.config.row_names import row_values
from tuner.expressions.arithmetic import NoValue
from tuner.kernel_files.formulas import Environment, Formula, Place, derived_for, with_derived
from tuner.model.errors import InputError, UnknownNameError, suggestion
from tuner.model.plan import Configuration, TunableValue, Workload
from tuner.model.row_layout import DENSE, RowLayout


def constants(recipe: Recipe, workload: Workload, layout: RowLayout = DENSE) -> dict[str, TunableValue]:
    """The names for expressions that no configuration decides: sizes, batch and rows.

    Raises:
        InputError: arrays of this layout are not taken.
    """
    sizes: dict[str, TunableValue] = {**dict(workload.sizes), "batch": workload.batch}
    return {**sizes, **row_values(recipe.buffers, sizes, layout)}


class Assignment:
    """A configuration in the making.

    Args:
        recipe: of the kernel.
        workload: at its problem.

    Attributes:
        env: the sizes, the batch, and of every tunable so far its value or what stands for it.
    """

    def __init__(self, recipe: Recipe, workload: Workload) -> None:
        self._recipe = recipe
        self._workload = workload
        self._values: dict[str, TunableValue] = {}
        self.env: dict[str, TunableValue | NoValue] = {**dict(workload.sizes), "batch": workload.batch}

    @property
    def configuration(self) -> Configuration:
        """The values in the order of declaration."""
        values = self._values
        return Configuration([(name, values[name]) for name in self._recipe.tunables if name in values])

    def take_table(self, given: Mapping[str, Formula | str | None], table: str) -> Configuration:
        """The values of ``[default]``, or of a table of an analytical answer.

        Args:
            given: what the table says.
            table: its name.

        Raises:
            KernelFileError: one is not in its list, or is missing.
        """
        recipe, path = self._recipe, self._recipe.place.path
        for name, formula in given.items():
            if not self._has_value(name):
                continue
            if formula is None:
                condition = recipe.conditions[name].when
                raise Place(path, table).error(
                    f"a value is missing for {name}, whose condition {condition} is true at {self._workload}"
                )
            value = formula if isinstance(formula, str) else formula.value(self._env_of(formula))
            if value not in recipe.tunables[name]:
                listed = ", ".join(map(str, recipe.tunables[name]))
                raise Place(path, f"{table} {name}").error(
                    f"{value!r} at {self._workload} is not a value of {name} ({listed})"
                )
            self._set(name, value)
        return self.configuration

    def take(self, values: Mapping[str, TunableValue]) -> Configuration:
        """The caller's values; those of tunables that have none are left out.

        Raises:
            UnknownNameError: they name what is no tunable.
            InputError: they lack a tunable, or have a value that is not in the kernel file.
        """
        tunables, conditions = self._recipe.tunables, self._recipe.conditions
        for name in values:
            if name not in tunables:
                raise UnknownNameError(
                    f"configuration: {self._recipe.name} has no tunable {name!r}; choose from "
                    f"{', '.join(tunables)}{suggestion(str(name), tunables)}"
                )
        always = [name for name in tunables if name not in conditions]
        missing = [name for name in always if name not in values]
        if missing:
            raise InputError(
                f"configuration: {', '.join(missing)} missing; it names all of {', '.join(always)}"
            )
        for name, choices in tunables.items():
            if not self._has_value(name):
                continue
            if name not in values:
                raise InputError(
                    f"configuration: {name} missing; with {self.configuration} its condition "
                    f"{conditions[name].when} is true"
                )
            if values[name] not in choices:
                listed = ", ".join(map(str, choices))
                raise InputError(f"configuration: {name} is {values[name]!r}; choose from {listed}")
            self._set(name, values[name])
        return self.configuration

    def _env_of(self, formula: Formula) -> Environment:
        """With the derived names that a formula needs, which need no tunable that is still to come."""
        return with_derived(self.env, derived_for(formula.expression.names, self._recipe.derived))

    def _has_value(self, name: str) -> bool:
        """Whether a tunable has a value, by those above; else ``env`` gets what stands for it."""
        condition = self._recipe.conditions.get(name)
        if condition is None or condition.holds(self.env):
            return True
        self.env[name] = condition.instead(self.env)
        return False

    def _set(self, name: str, value: TunableValue) -> None:
        """A value as the file writes it: 8 for NumPy's 8."""
        choices = self._recipe.tunables[name]
        self.env[name] = self._values[name] = choices[choices.index(value)]


def environment(
    recipe: Recipe, workload: Workload, configuration: Configuration, layout: RowLayout = DENSE
) -> Environment:
    """The names for expressions of a launch: sizes, batch, rows, tunables and derived names.

    Raises:
        InputError: arrays of this layout are not taken.
    """
    env: dict[str, TunableValue | NoValue] = dict(constants(recipe, workload, layout))
    env.update(configuration.items())
    for name, condition in recipe.conditions.items():
        if name not in env:
            env[name] = condition.instead(env)
    return with_derived(env, recipe.derived)
