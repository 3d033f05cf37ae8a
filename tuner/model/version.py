"""The version of this package."""

from pathlib import Path

VERSION = "0.2.0"  # in what is built from a checkout, setup.py names the commit here
_DIGITS = 40


def _commit(git: Path) -> str:
    """First digits of the commit that a checkout is at, read from its files; empty where that is not plain.

    Args:
        git: the folder ``.git``, or the file of a worktree that names its own (gitrepository-layout(5)).
    """
    try:
        own = git if git.is_dir() else git.parent / git.read_text().removeprefix("gitdir: ").strip()
        common = own / "commondir"
        shared = own / common.read_text().strip() if common.exists() else own
        head = (own / "HEAD").read_text().strip()
        name = head.removeprefix("ref: ")
        if name != head:
            loose = shared / name
            packed = "" if loose.exists() else (shared / "packed-refs").read_text().partition(f" {name}\n")[0]
            head = packed[-_DIGITS:] or loose.read_text()
        return f"{int(head, 16):0{_DIGITS}x}"[:8]
    except (OSError, ValueError):
        return ""


_git = Path(__file__).parents[2] / ".git"
if "+" not in VERSION and _git.exists():  # later than the version, and earlier than any build of a commit
    VERSION += f"+dev.g{digits}" if (digits := _commit(_git)) else "+dev"
