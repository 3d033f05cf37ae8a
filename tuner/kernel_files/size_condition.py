"""For which sizes a kernel allows a configuration, and launches what, with the tunables known."""

from collections.abc import Mapping

from tuner.kernel_files.kernel_file import KernelFile
from tuner.kernel_files.recipe import ConditionRecipe, Recipe
from tuner.model.errors import ExpressionError
from tuner.model.expressions.array_expressions import reducer
from tuner.model.expressions.callables import PythonExpression
from tuner.model.expressions.parser import MAX_LENGTH
from tuner.model.plan import Configuration, TunableValue, Workload

ALWAYS, NEVER = "True", "False"


def written_out(recipe: Recipe, configuration: Mapping[str, TunableValue]) -> Configuration:
    """A configuration with what stands for tunables without a value, where that is the same for all sizes.

    So it has one form at all sizes: without a value of ``S`` that has ``otherwise = 1``, it has ``S = 1``.
    """
    values = dict(configuration)
    for name, condition in recipe.conditions.items():
        instead = _constant(condition)
        if name not in values and instead is not None:
            values[name] = instead
    return Configuration([(name, values[name]) for name in recipe.tunables if name in values])


def is_allowed(kernel: KernelFile, workload: Workload, written: Configuration) -> bool:
    """Return True if a kernel allows a configuration that is written out at a workload."""
    allowed = kernel.allowed(workload, written)
    return allowed is not None and written_out(kernel.recipe, allowed) == written


def _constant(condition: ConditionRecipe) -> TunableValue | None:
    """Return the substitute for a tunable without a value, if it is the same everywhere."""
    if condition.otherwise is None or isinstance(condition.otherwise.expression, PythonExpression):
        return None
    return None if condition.otherwise.expression.names else condition.otherwise.value({})


def size_condition(recipe: Recipe, configuration: Mapping[str, TunableValue]) -> str | None:
    """An expression over the sizes that is true where a configuration is allowed; ``True`` for all sizes.

    Returns:
        None where Python functions decide, where it is too long for an expression, or where nobody knows.
    """
    formulas = _formulas(recipe)
    parts = []
    expressions = [rule.expression for rule in recipe.rules]
    for name, condition in recipe.conditions.items():
        when = condition.when.expression
        if name not in configuration:
            parts.append(f"not ({when.text})")
            if condition.otherwise is not None:
                expressions.append(condition.otherwise.expression)
                formulas[name] = condition.otherwise.expression.text
        elif configuration[name] != _constant(condition):
            parts.append(f"({when.text})")
        elif configuration[name] not in recipe.tunables[name]:
            parts.append(f"not ({when.text})")
        expressions.append(when)
    expressions += [formula.expression for formula in recipe.derived.values()]
    if any(isinstance(expression, PythonExpression) for expression in expressions):
        return None
    parts += [f"({rule.expression.text})" for rule in recipe.rules]
    reduced = reducer(configuration, formulas)
    conditions: dict[str, None] = {}
    for part in parts:
        try:
            rest = reduced(part)
        except ExpressionError:  # a rule has no result for these values
            return None
        if rest != ALWAYS:
            conditions[rest] = None
        if len(rest) > MAX_LENGTH:
            return None
    if not conditions:
        return ALWAYS
    text = (
        next(iter(conditions)) if len(conditions) == 1 else " and ".join(f"({part})" for part in conditions)
    )
    return text if len(text) <= MAX_LENGTH else None


def _formulas(recipe: Recipe) -> dict[str, str]:
    """Text of what an expression may name beside sizes and tunables."""
    formulas = {name: formula.expression.text for name, formula in recipe.derived.items()}
    return {**formulas, "batch": recipe.batch.expression.text}


def launch_conditions(recipe: Recipe, configuration: Mapping[str, TunableValue]) -> dict[str, str | None]:
    """For which sizes a configuration that is written out has each launch; as ``size_condition``, by launch.

    ``False`` for a launch that it never has.
    """
    reduced = reducer(configuration, _formulas(recipe))
    conditions: dict[str, str | None] = {}
    for stage in recipe.stages:
        if stage.when is None:
            conditions[stage.name] = ALWAYS
        elif isinstance(stage.when.expression, PythonExpression):
            conditions[stage.name] = None
        else:
            try:
                left = reduced(stage.when.expression.text)
            except ExpressionError:  # it has no result for these values
                conditions[stage.name] = None
            else:
                conditions[stage.name] = left if len(left) <= MAX_LENGTH else None
    return conditions
