"""The border to builds: which texts may stand in a command of a shell, in a list of words, or in a header.

A word of a command may be pasted, or come out of ``$(tuner export 1)`` or of make, where quotes mean nothing.
nvcc hands values to a shell of its own between double quotes, in which ``$`` and a backtick still act. So a
word has only letters that mean themselves in all of them.
"""

import re
from collections.abc import Mapping

from tuner.model.errors import InputError

_PLAIN = "A-Za-z0-9_@%+=:,./-"
_WORD = re.compile(f"[{_PLAIN}]+")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_MACRO_VALUE = re.compile(  # texts in quotes, and the rest without comments, directives and line splices
    r"""(?: "(?:[^"\\]|\\.)*" | '(?:[^'\\]|\\.)+' | (?<=[0-9a-fA-F])'(?=[0-9a-fA-F])
        | (?! // | /\* | \*/ | %: ) [^"'\\\#] )*""",
    re.VERBOSE,
)
_RAW_TEXT = re.compile(r"""(?<![A-Za-z0-9_])(?:u8|[uUL])?R["']""")  # goes on over lines
_TRIGRAPH = re.compile(r"\?\?[=/'()!<>-]")
_WORDS = """
alignas alignof and and_eq asm auto bitand bitor bool break case catch char class compl concept
const consteval constexpr constinit const_cast continue co_await co_return co_yield decltype default defined
delete do double dynamic_cast else enum explicit export extern false float for friend goto if inline
int long mutable namespace new noexcept not not_eq nullptr operator or or_eq private protected
public register reinterpret_cast requires restrict return short signed sizeof static static_assert
static_cast struct switch template this thread_local throw true try typedef typeid typename union
unsigned using virtual void volatile wchar_t while xor xor_eq
"""
_KEYWORDS = frozenset(_WORDS.split())  # of C and C++


def is_c_name(text: str) -> bool:
    """True for what C and C++ take as a name of a program."""
    return _NAME.fullmatch(text) is not None and text not in _KEYWORDS


def macro_value(value: object) -> str:
    """A value as a macro: truth values are 1 and 0."""
    return str(int(value)) if isinstance(value, bool) else str(value)


def is_plain_word(text: str) -> bool:
    """True where a text is one word, and itself, in every shell, in make and in a list of words."""
    return _WORD.fullmatch(text) is not None


def plain_label(text: str) -> str:
    """A text of others as a word that is no option, for what only people read."""
    return re.sub(f"[^{_PLAIN}]+", "_", text).lstrip("-") or "unnamed"


def define_words(values: Mapping[str, object]) -> list[str]:
    r"""Macros as options of nvcc, a word each; commas are ``\,``, as nvcc splits a value at others.

    Raises:
        InputError: a name is no name of a macro, or a value would not stay a word; the message names it.
    """
    words = []
    for name, value in values.items():
        text = macro_value(value)
        if _NAME.fullmatch(name) is None:
            raise InputError(f"{name!r}: is no name of a macro (letters, digits and _)")
        if text and not is_plain_word(text):
            raise InputError(
                f"{name}: its value {text!r} is not safe in a command of a shell, which reads it otherwise"
            )
        words.append(f"-D{name}={text}".replace(",", r"\,"))
    return words


def define_line(name: str, value: object) -> str:
    """A macro as a line of a header, which defines this name and nothing else.

    Raises:
        InputError: the name is none of a program, or the value would not stay in its line.
    """
    text = macro_value(value)
    if not is_c_name(name) or name.startswith("__"):
        raise InputError(f"{name!r}: cannot be a macro of a header; C and C++ have it for something else")
    stays = text.isprintable() and _MACRO_VALUE.fullmatch(text) and not _TRIGRAPH.search(text)
    if not stays or _RAW_TEXT.search(text):
        raise InputError(f"{name}: its value {text!r} cannot be a macro of a header")
    return f"#define {name} {text}".rstrip()
