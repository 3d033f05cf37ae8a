"""Live progress of a comparison: the making of its ground truths, as of any run, and then the plays."""

from tuner.cli.progress import RunProgress


class CompareProgress(RunProgress):
    """A run's progress that says which space is measured, and counts plays."""

    def __init__(self, objective: str) -> None:
        super().__init__(objective)
        self._space = ""

    def space(self, name: str, number: int, total: int) -> None:
        """Told before each ground truth is taken."""
        self._space = f"{name} ({number}/{total}): "

    def played(self, done: int, total: int, detail: str) -> None:
        """Told after every play."""
        self._space = ""
        self._show("playing", done, total, detail)

    def _show(self, phase: str, done: int, total: int | None, detail: str) -> None:
        super()._show(f"{self._space}{phase}", done, total, detail)
