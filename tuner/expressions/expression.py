"""The expressions of kernel files: arithmetic, comparisons and conditions over names, and nothing else.

An expression is parsed once into closures. Evaluation takes Python scalars, or NumPy arrays and then works
element by element with the same results: whole numbers stay exact (at most 63 bits), ``and``, ``or``, ``not``
and comparisons give booleans, and the side of a condition that is not taken is not evaluated. A service may
read kernel files of strangers, so length, nesting, exponents and the size of results are bounded.
"""

from collections.abc import Mapping

from tuner.expressions.arithmetic import MissingError, TroubleError, Value
from tuner.expressions.parser import RESERVED, parse
from tuner.model.errors import ExpressionError, NoValueError


class Expression:
    """One parsed expression.

    Attributes:
        text: what the kernel file says.
        names: the names it needs a value for.
    """

    __slots__ = ("_evaluate", "names", "text")

    def __init__(self, text: str) -> None:
        """Parse ``text``.

        Raises:
            ExpressionError: it is not in the language, too long or nested too deeply.
        """
        self.text = text
        try:
            self._evaluate, self.names = parse(text)
        except TroubleError as e:
            raise ExpressionError(f"expression {_shown(text)}: {e}") from None

    def evaluate(self, env: Mapping[str, Value]) -> Value:
        """Value of the expression with the names bound by ``env``.

        Args:
            env: scalars, or arrays of one shape.

        Returns:
            A bool, int, float or str; an array (bool, int64, float64, str) where a name it uses is one.

        Raises:
            NoValueError: it comes to a name that stands for ``NoValue``.
            ExpressionError: a name is not bound, or an operation has no result (division by zero, text in
                arithmetic, more than 63 bits).
        """
        try:
            return self._evaluate(env)
        except TroubleError as e:
            kind = NoValueError if isinstance(e, MissingError) else ExpressionError
            raise kind(f"expression {_shown(self.text)}: {e}") from None
        except ValueError:  # raised by NumPy's broadcasting
            raise ExpressionError(f"expression {_shown(self.text)}: its arrays differ in shape") from None

    def __eq__(self, other: object) -> bool:
        return self.text == other.text if isinstance(other, Expression) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.text)

    def __reduce__(self) -> tuple[type, tuple[str]]:
        return Expression, (self.text,)  # closures do not cross a pipe

    def __repr__(self) -> str:
        return f"Expression({self.text!r})"


def is_free_name(name: str) -> bool:
    """True when a kernel file may give this name to a size, tunable or derived value."""
    return name.isidentifier() and name.isascii() and name not in RESERVED


def _shown(text: str) -> str:
    return repr(text if len(text) <= 120 else f"{text[:117]}...")  # noqa: PLR2004 - one line of a terminal
