"""Calls functions in Python files of the user: right answers, and laws that right answers obey.

Only worker processes come here (and tests): what the user has written runs with the user's rights, and never
in the process that searches or serves. A file is run only if it is the one that was looked at.
"""

import hashlib
import importlib.machinery
import importlib.util
import inspect
import sys
from collections.abc import Callable, Mapping
from functools import lru_cache
from types import CodeType, ModuleType
from typing import Any

from tuner.config.data_files import file_sha256
from tuner.model.errors import InputError, UncheckableError
from tuner.model.inputs import PythonFunction

_MOST_WORDS = 500  # characters of a message of the user's
_TAKES_BY_NAME = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


def called(function: PythonFunction, given: Mapping[str, Any]) -> Any:  # noqa: ANN401 - whatever it returns
    """What the function returns for those of the given values that it takes by name.

    Args:
        function: which.
        given: arrays and sizes by name.

    Raises:
        UncheckableError: the file cannot be run or is not what was looked at, the function asks for what
            there is not, or it raises.
    """
    loaded = _function(function)
    taken = _taken(function, loaded, given)
    try:
        return loaded(**taken)
    except BaseException as error:  # of the user's: he may leave, or interrupt himself
        raise UncheckableError(f"{function}: raised {_told(error, function.path)}") from error


def _function(function: PythonFunction) -> Callable[..., Any]:
    try:
        now = file_sha256(function.path)
    except InputError as error:
        raise UncheckableError(str(error)) from error
    if function.sha256 and now != function.sha256:
        raise UncheckableError(
            f"{function.path}: has changed since the kernel file was read; start the run again"
        )
    found = getattr(_module(function.path, now), function.name, None)
    if not callable(found):
        what = "has no function" if found is None else "is no function:"
        raise UncheckableError(f"{function.path}: {what} {function.name!r}")
    return found  # type: ignore[no-any-return]  # callable, as was just seen


@lru_cache(maxsize=16)
def _module(path: str, sha256: str) -> ModuleType:
    """The module of a file, run once for each of its contents."""
    name = f"tuner_reference_{sha256[:16]}"
    spec = importlib.util.spec_from_file_location(name, path, loader=_ReadLoader(name, path, sha256))
    if spec is None or spec.loader is None:
        raise UncheckableError(f"{path}: is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses and pickles of the user's look for it there
    try:
        spec.loader.exec_module(module)
    except BaseException as error:
        sys.modules.pop(name, None)
        raise UncheckableError(f"{path}: cannot be imported: {_told(error, path)}") from error
    return module


class _ReadLoader(importlib.machinery.SourceFileLoader):
    """Compiles the bytes that were looked at: nothing is taken from a cache, and none is written."""

    def __init__(self, name: str, path: str, sha256: str) -> None:
        super().__init__(name, path)
        self._sha256 = sha256

    def get_code(self, fullname: str) -> CodeType | None:
        data = self.get_data(self.get_filename(fullname))
        if hashlib.sha256(data).hexdigest() != self._sha256:
            raise ImportError("it has changed while it was read")
        code: CodeType = self.source_to_code(data, self.get_filename(fullname))
        return code


def _told(error: BaseException, path: str) -> str:
    """What was raised, where, and the beginning of its words."""
    try:
        words = str(error)
    except Exception:  # noqa: BLE001 - the user's own class
        words = "its message cannot be made"
    shown = words if len(words) <= _MOST_WORDS else f"{words[:_MOST_WORDS]}..."
    return f"{type(error).__name__}: {shown}{_line(error, path)}"


def _taken(function: PythonFunction, loaded: Callable[..., Any], given: Mapping[str, Any]) -> dict[str, Any]:
    try:
        parameters = inspect.signature(loaded).parameters.values()
    except (TypeError, ValueError):
        return dict(given)
    if any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters):
        return dict(given)
    for parameter in parameters:
        by_name = parameter.kind in _TAKES_BY_NAME
        needed = parameter.default is inspect.Parameter.empty
        if (
            needed
            and (parameter.kind is inspect.Parameter.POSITIONAL_ONLY or by_name)
            and (not by_name or parameter.name not in given)
        ):
            raise UncheckableError(
                f"{function}: takes {parameter.name!r}, which is none of what it is called with by name: "
                f"{', '.join(given)}"
            )
    return {p.name: given[p.name] for p in parameters if p.kind in _TAKES_BY_NAME and p.name in given}


def _line(error: BaseException, path: str) -> str:
    """Where in the user's file it was raised."""
    if isinstance(error, SyntaxError) and error.lineno is not None:
        return f" (line {error.lineno})"
    trace, line = error.__traceback__, None
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == path:
            line = trace.tb_lineno
        trace = trace.tb_next
    return "" if line is None else f" (line {line})"
