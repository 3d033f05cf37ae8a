"""The console of everything that is printed for people: no text can act on the terminal."""

from collections.abc import Iterable
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from tuner.untrusted.text import plain


class PlainConsole(Console):
    """A console of rich that replaces control characters of texts, and takes no markup out of them.

    What rich itself sends to a terminal (colours, the cursor) is untouched.

    Args:
        attributes: of ``rich.console.Console``.
    """

    def __init__(self, **attributes: Any) -> None:  # noqa: ANN401 - rich's own
        super().__init__(markup=False, emoji=False, **attributes)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Render; every piece of text that comes out is plain."""
        for segment in super().render(renderable, options):
            if segment.control is None and not segment.text.isprintable():
                yield Segment(plain(segment.text), segment.style)
            else:
                yield segment
