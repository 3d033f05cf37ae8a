"""Text from outside without what a terminal or a log would act on.

JSON documents keep a text as it is: ``json.dumps`` escapes control characters by itself.
"""

import logging
import re

REPLACEMENT = "\ufffd"

_BIDI = "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"
_FORMAT = "\u2028\u2029\ufeff\ufff9-\ufffb\U000e0000-\U000e007f"
_HARMFUL = re.compile(f"[\x00-\x08\x0b-\x1f\x7f-\x9f{_BIDI}{_FORMAT}\ud800-\udfff]")
_BREAKS = re.compile(r"\r\n|\n")
_CONTINUED = "\n    "


def plain(text: str) -> str:
    """A text of one or more lines with its control characters replaced by U+FFFD; line breaks and tabs stay.

    Replaced are C0 and C1 control characters (escape sequences begin with one of them), DEL, the marks that
    turn the direction of writing, invisible tags, line separators and lone surrogates.
    """
    return _HARMFUL.sub(REPLACEMENT, text.replace("\r\n", "\n"))


def plain_line(text: str) -> str:
    """The same for a name or another text of one line: a line break in it becomes U+FFFD, too."""
    return plain(text).replace("\n", REPLACEMENT).replace("\t", " ")


def continued(text: str) -> str:
    """The same for a log entry: lines after the first are indented, so that none looks like an entry."""
    return _BREAKS.sub(_CONTINUED, plain(text))


def shortened(text: str, most_lines: int = 200, most_characters: int = 4000) -> str:
    """A message that fits a screen: a value of megabytes in it is cut."""
    lines = text.split("\n")
    cut = [line if len(line) <= most_characters else f"{line[:most_characters]}... [cut]" for line in lines]
    return "\n".join(cut if len(cut) <= most_lines else [*cut[:most_lines], "... [cut]"])


class PlainFormatter(logging.Formatter):
    """Log entries without control characters; only an entry begins at the left."""

    def format(self, record: logging.LogRecord) -> str:
        """The entry; its further lines, such as a traceback, are indented."""
        return continued(super().format(record))
