"""Live progress of a comparison: the making of its ground truth, as of any run, and then the plays."""

from tuner.cli.progress import RunProgress


class CompareProgress(RunProgress):
    """A run's progress that counts plays too."""

    def played(self, done: int, total: int, detail: str) -> None:
        """Told after every play."""
        self._show("playing", done, total, detail)
