"""Checks that only root can change a program and its imports."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

from tuner.installing.places import SHIPPED_PREFIX
from tuner.model.errors import InputError, InstallError

_HOMES = ("/home", "/root", "/run/user")  # no service sees them: ProtectHome=yes
_MOST_FILES = 1_000_000  # of an environment with CuPy and the CUDA headers there are some 30 000
_ASK_S = 60.0
_ASK = """
import json, sys, sysconfig, tuner, tuner.policies, tuner.power
own = [path for package in (tuner, tuner.policies, tuner.power) for path in package.__path__]
print(json.dumps([sysconfig.get_path("stdlib"), *own, *filter(None, sys.path)]))
"""

# from the checkout: what the package index has under the name is another project
_REMEDY = f"""install the program for root alone, from the directory of its source:
  python3 -m venv {SHIPPED_PREFIX}
  {SHIPPED_PREFIX}/bin/pip install '.[cuda12]'
  {SHIPPED_PREFIX}/bin/tuner install-service"""

Trusted = Callable[..., Path]
"""``tuner.kernel_files.trust.trusted``."""


def check(prefix: Path, trusted: Trusted, root: Path = Path("/")) -> None:
    """Refuse a program that the service would not find, or that others than root can change.

    Args:
        prefix: the program's environment, as the units name it.
        trusted: refuses a directory that others can change.
        root: below which the environment is; of an image only the environment itself is looked at.

    Raises:
        InputError: the message says what would be right.
        InstallError: the program does not run.
    """
    for home in _HOMES:
        if prefix.is_relative_to(home):
            raise InputError(f"{prefix}: services see nothing of {home}; {_REMEDY}")
    place = root / str(prefix).lstrip("/")
    for name in ("tuner", "tuner-clockd"):
        if not (place / "bin" / name).is_file():
            raise InputError(f"{place / 'bin' / name}: is not there; {_REMEDY}")
    _only_root_changes(place, trusted)
    if root == Path("/"):
        for path in _imported(prefix):
            _only_root_changes(path, trusted)


def _only_root_changes(path: Path, trusted: Trusted) -> None:
    try:
        trusted(path, {0}, most=_MOST_FILES)
    except InputError as error:
        raise InputError(f"root must run nothing that others can write: {error}; or {_REMEDY}") from error


def _imported(prefix: Path) -> list[Path]:
    """Directories that the program imports from; it is run for that, so look at ``prefix`` first."""
    command = [str(prefix / "bin" / "python"), "-I", "-c", _ASK]
    try:
        asked = subprocess.run(  # noqa: S603 - an interpreter that root alone can change, no shell
            command, check=True, capture_output=True, text=True, timeout=_ASK_S, stdin=subprocess.DEVNULL
        )
        named = [Path(path) for path in json.loads(asked.stdout)]
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        said = str(getattr(error, "stderr", "") or error).strip().splitlines()[-1]
        raise InstallError(f"{command[0]} does not run tuner: {said}") from error
    return [path for path in dict.fromkeys(named) if path.is_dir() and not path.is_relative_to(prefix)]
