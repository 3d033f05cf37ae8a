"""What a call prints while it runs, and writes to its cache file."""

from tuner.kernel_tuner.cache import CacheFile
from tuner.kernel_tuner.objectives import Metrics
from tuner.kernel_tuner.parameters import shown
from tuner.kernel_tuner.results import params_of, row_of
from tuner.search.trial_event import TrialEvent
from tuner.untrusted.text import plain


class Listener:
    """Hears how a run comes on; see ``tuner.search.tuning.ProgressListener``.

    Args:
        metrics: computed from every result.
        cache: gets every result at once; None for no cache file.
        quiet: print nothing.
    """

    def __init__(self, metrics: Metrics | None, cache: CacheFile | None, *, quiet: bool) -> None:
        self._metrics = metrics
        self._cache = cache
        self._quiet = quiet

    def compiled(self, done: int, total: int) -> None:
        """Compiling is not told."""

    def told(self, sentence: str) -> None:
        """What policies say of themselves is in the stored run."""

    def measured(self, event: TrialEvent) -> None:
        """A trial has ended: one line, and one entry of the cache file."""
        if event.confirming:
            return
        configuration = event.trial.configurations[0]
        row = row_of(configuration, event.measurement, self._metrics)
        if self._cache is not None:
            self._cache.add(row)
        if not self._quiet:
            say(line(params_of(configuration), row, self._metrics))


def line(params: dict[str, object], row: dict[str, object], metrics: Metrics | None) -> str:
    """One result as Kernel Tuner prints it: parameters, time in ms, metrics."""
    if "__error__" in row:
        return f"{shown(params)}, {row['__error__']}: {row.get('error_detail', '')}".rstrip(": ")
    values = {name: f"{row[name]:.3f}" for name in metrics or {}}
    return shown({**params, "time": f"{row['time']:.3f}ms", **values})


def say(text: str) -> None:
    """Print to standard output, as Kernel Tuner does."""
    print(plain(text), flush=True)  # noqa: T201 - what its users expect
