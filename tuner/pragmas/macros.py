"""The macros that a file defines, as far as they matter where loops are rewritten."""

import re
from collections.abc import Mapping

_DEFINE = re.compile(r"^[ \t]*#[ \t]*define[ \t]+([A-Za-z_]\w*)(\()?((?:\\\r?\n|[^\n])*)", re.MULTILINE)
_COMMENT = re.compile(r"//.*|/\*.*?(?:\*/|\Z)", re.DOTALL)
_WORD = re.compile(r"[A-Za-z_]\w*")
_BARE = re.compile(r"[-+]?(?:\d[\w.']*|\.\d\w*)")
_MOST_STEPS = 8


class Macros:
    """The macros of a source: every definition of a name counts, whatever its conditions.

    Args:
        text: the source.
    """

    def __init__(self, text: str) -> None:
        self._bodies: dict[str, list[str]] = {}
        self._functions: set[str] = set()
        for match in _DEFINE.finditer(text):
            body = _COMMENT.sub(" ", re.sub(r"\\\r?\n", " ", match[3])).strip()
            self._bodies.setdefault(match[1], []).append(body)
            if match[2]:
                self._functions.add(match[1])

    def __contains__(self, name: str) -> bool:
        return name in self._bodies

    def text(self, name: str) -> str:
        """What a macro without parameters stands for; empty of any other, or if it is defined twice."""
        bodies = set(self._bodies.get(name, []))
        return bodies.pop() if len(bodies) == 1 and name not in self._functions else ""

    def number(self, name: str) -> str:
        """The literal that a macro stands for, without brackets; empty where it is more."""
        for _ in range(_MOST_STEPS):
            body = self.text(name)
            while body.startswith("(") and body.endswith(")"):
                body = body[1:-1].strip()
            if _BARE.fullmatch(body):
                return body
            if not _WORD.fullmatch(body):
                return ""
            name = body
        return ""

    def words_behind(self, name: str) -> set[str]:
        """All words that a macro may come to, through others, too."""
        found: set[str] = set()
        left = [name]
        while left:
            for body in self._bodies.get(left.pop(), []):
                new = set(_WORD.findall(body)) - found
                found |= new
                left.extend(new & self._bodies.keys())
        return found


def aliases_in(text: str) -> Mapping[str, str]:
    """Other names of types in a source: name -> type; of a name with several, ``?``."""
    pairs = [(match[2], match[1]) for match in re.finditer(r"\btypedef\b([^;{}]*?)(\w+)\s*;", text)]
    pairs += [(match[1], match[2]) for match in re.finditer(r"\busing\s+(\w+)\s*=\s*([^;]+);", text)]
    found: dict[str, str] = {}
    for name, target in pairs:
        other = found.setdefault(name, " ".join(target.split()))
        if other != " ".join(target.split()):
            found[name] = "?"
    return found
