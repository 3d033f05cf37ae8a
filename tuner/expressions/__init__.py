"""The expression language of kernel files: no ``eval``, the same on numbers and on NumPy arrays."""

from tuner.expressions.arithmetic import NoValue
from tuner.expressions.arrays import ArrayExpression
from tuner.expressions.callables import PythonExpression
from tuner.expressions.expression import Expression, is_free_name
from tuner.expressions.function_digest import function_digest

__all__ = ["ArrayExpression", "Expression", "NoValue", "PythonExpression", "function_digest", "is_free_name"]
