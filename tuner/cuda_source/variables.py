"""The variables and the textures of CUDA C++ text."""

import re

from tuner.cuda_source.tokens import without_comments
from tuner.model.plan import Source

_VARIABLE = re.compile(r"\b__(?:constant|device|managed)__\b(?P<rest>[^;{}()=]*)[;={]")
_ALIGNMENT = re.compile(r"(?:__align__|alignas)\s*\([^()]*\)")
_PARAMETERS = re.compile(r"<[^<>]*>")  # of templates
_NAME = re.compile(r"([A-Za-z_]\w*)\s*(?:\[[^\]]*\]\s*)*$")
_TEXTURE = re.compile(r"\bcudaTextureObject_t\b|\bcudaSurfaceObject_t\b|\btexture\s*<")


def declared_symbols(source: Source) -> tuple[str, ...]:
    """Names of the ``__constant__`` and ``__device__`` variables of a source and its headers."""
    found: dict[str, None] = {}
    for text in (source.text, *(text for _, text in source.headers)):
        for match in _VARIABLE.finditer(_ALIGNMENT.sub("", without_comments(text))):
            for declarator in _PARAMETERS.sub("", match["rest"]).split(","):
                name = _NAME.search(declarator.strip())
                if name is not None:
                    found[name[1]] = None
    return tuple(found)


def texture_line(text: str) -> int:
    """The first line that uses texture or surface objects; 0 where none does."""
    match = _TEXTURE.search(without_comments(text))
    return 0 if match is None else text.count("\n", 0, match.start()) + 1


def names_word(source: Source, word: str) -> bool:
    """Whether a source or one of its headers has a word outside of comments."""
    texts = (source.text, *(text for _, text in source.headers))
    return any(re.search(rf"\b{word}\b", without_comments(text)) for text in texts)
