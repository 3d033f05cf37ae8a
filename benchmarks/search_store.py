"""Searches that were played, kept in a folder for as long as what plays them stays the same."""

import ast
import hashlib
import inspect
import json
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path

import search_peers
import search_pyatf
from search_plays import Play
from search_spaces import Game

from tuner.model import registry

PROTOCOL = 3  # raised when plays kept from before cannot be compared any more


@dataclass(frozen=True)
class Task:
    """One search to play: a space (by where it was read and its place there), a searcher, a seed."""

    where: str
    place: int
    searcher: str
    ours: bool
    seed: int
    budget: int
    folder: str


class Store:
    """Plays kept in a folder: one file per space, searcher, budget and version of what plays.

    Args:
        folder: where.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._plays: dict[Path, dict[int, Play]] = {}

    def get(self, game: Game, task: Task) -> Play | None:
        """A play that was kept."""
        path = self._path(game, task)
        if path not in self._plays:
            lines = path.read_text().splitlines() if path.exists() else []
            self._plays[path] = {play.seed: play for play in map(_play, lines)}
        return self._plays[path].get(task.seed)

    def put(self, game: Game, task: Task, play: Play) -> None:
        """Keep a play, at once; one that never started (a package is missing) only for now."""
        path = self._path(game, task)
        self._plays.setdefault(path, {})[task.seed] = play
        if not play.evaluations:
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a") as file:
            file.write(json.dumps(asdict(play)) + "\n")

    def _path(self, game: Game, task: Task) -> Path:
        version = policy_version(task.searcher) if task.ours else peer_version(task.searcher)
        name = f"{task.searcher}-{task.budget}-{version}-{PROTOCOL}.jsonl"
        return self._folder / game.digest / name


def peer_version(name: str) -> str:
    """Version of the package that a search of others is from.

    Raises:
        InputError: it is not installed.
    """
    return search_pyatf.version() if name in search_pyatf.TECHNIQUES else search_peers.version()


@lru_cache
def policy_version(name: str) -> str:
    """Differs when the source of a policy, or of a sibling that it imports, does."""
    start = Path(inspect.getfile(registry.load("policy", name)))
    digest = hashlib.sha256()
    for path in sorted(imported(start)):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


def imported(path: Path, found: frozenset[Path] = frozenset()) -> frozenset[Path]:
    """A source file and those it imports relatively, and so on; with those that were found already."""
    found |= {path}
    for node in ast.walk(ast.parse(path.read_text())):
        if not isinstance(node, ast.ImportFrom) or not node.level:
            continue
        base = path.parents[node.level - 1].joinpath(*(node.module or "").split("."))
        near = [base.with_suffix(".py"), base / "__init__.py"]
        near += [base / f"{alias.name}.py" for alias in node.names]
        for one in near:
            if one.exists() and one not in found:
                found |= imported(one, found)
    return found


def _play(line: str) -> Play:
    fields = json.loads(line)
    best = tuple((number, time_s) for number, time_s in fields["best"])
    taken = fields["search_ms"]
    return Play(**{**fields, "best": best, "search_ms": None if taken is None else tuple(taken)})
