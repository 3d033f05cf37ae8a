"""What the text of a CUDA source tells without a compiler: its variables, its textures."""

import re
from collections.abc import Sequence
from dataclasses import replace

from tuner.config.formulas import Place
from tuner.config.library_stage import LibraryStageRecipe
from tuner.config.stage_recipe import StageRecipe
from tuner.errors import suggestion
from tuner.model import Source

_COMMENT = re.compile(r'//[^\n]*|/\*.*?\*/|("(?:\\.|[^"\\\n])*")', re.DOTALL)
_VARIABLE = re.compile(r"\b__(?:constant|device|managed)__\b(?P<rest>[^;{}()=]*)[;={]")
_ALIGNMENT = re.compile(r"(?:__align__|alignas)\s*\([^()]*\)")
_PARAMETERS = re.compile(r"<[^<>]*>")  # of templates
_NAME = re.compile(r"([A-Za-z_]\w*)\s*(?:\[[^\]]*\]\s*)*$")
_TEXTURE = re.compile(r"\bcudaTextureObject_t\b|\bcudaSurfaceObject_t\b|\btexture\s*<")


def without_comments(text: str) -> str:
    """The text with a space for every comment; lines keep their numbers."""
    return _COMMENT.sub(lambda m: m[1] or " " + "\n" * m[0].count("\n"), text)


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


def symbols_of(
    stages: Sequence[StageRecipe | LibraryStageRecipe], symbol: str, buffer: str, place: Place
) -> list[StageRecipe | LibraryStageRecipe]:
    """The stages, those whose source declares a variable with the buffer that it is filled from.

    Where no declaration is found, as behind a macro, the sources that name the variable count.

    Raises:
        KernelFileError: no source names it.
    """
    name = symbol.rpartition("::")[2]
    sources = {stage.source.path: stage.source for stage in stages if isinstance(stage, StageRecipe)}
    having = {path for path, source in sources.items() if name in declared_symbols(source)}
    having = having or {path for path, source in sources.items() if _names(source, name)}
    if not having:
        known = dict.fromkeys(one for source in sources.values() for one in declared_symbols(source))
        paths = ", ".join(sources)
        choice = f"it has {', '.join(known)}{suggestion(name, known)}" if known else "it has none"
        raise place.error(f"{paths}: no __constant__ or __device__ variable is called {symbol!r}; {choice}")
    return [
        replace(stage, symbols=(*stage.symbols, (symbol, buffer)))
        if isinstance(stage, StageRecipe) and stage.source.path in having
        else stage
        for stage in stages
    ]


def _names(source: Source, word: str) -> bool:
    texts = (source.text, *(text for _, text in source.headers))
    return any(re.search(rf"\b{word}\b", without_comments(text)) for text in texts)
