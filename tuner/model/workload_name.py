"""Workloads as text: on the command line, in answers, in recordings."""

from dataclasses import dataclass, replace

_BATCH = "batch"


@dataclass(frozen=True)
class WorkloadName:
    """The parts of ``kernel[:size=value[,size=value]...][,batch=n]``.

    The kernel file says which sizes there are; see ``Catalog.workload``.

    Attributes:
        kernel: name of the kernel.
        sizes: (name, value) as written, without the batch; what is no pair is a name without a value.
        batch: as written; None where none is named.
    """

    kernel: str
    sizes: tuple[tuple[str, str], ...] = ()
    batch: str | None = None

    @classmethod
    def parse(cls, text: str) -> "WorkloadName":
        """The parts of a text; spaces around them do not count."""
        kernel, _, rest = text.partition(":")
        pairs = [_pair(part) for part in rest.split(",") if part.strip()]
        batches = [value for name, value in pairs if name == _BATCH and value]
        if len(batches) != 1:  # none; or several, which are refused as a size that is given twice
            return cls(kernel.strip(), tuple(pairs))
        return cls(kernel.strip(), tuple(pair for pair in pairs if pair[0] != _BATCH), batches[0])

    def with_batch(self, batch: int) -> "WorkloadName":
        """The same with a batch."""
        return replace(self, batch=str(batch))

    def without_batch(self) -> "WorkloadName":
        """The same without its batch, as answers name it."""
        return replace(self, batch=None)

    @property
    def sizes_text(self) -> str:
        """What follows the colon, without the batch."""
        return ",".join(f"{name}={value}" if value else name for name, value in self.sizes)

    def __str__(self) -> str:
        sizes = [self.sizes_text] if self.sizes else []
        rest = ",".join([*sizes, *([] if self.batch is None else [f"{_BATCH}={self.batch}"])])
        return f"{self.kernel}:{rest}" if rest else self.kernel


def _pair(part: str) -> tuple[str, str]:
    name, _, value = (word.strip() for word in part.partition("="))
    return (name, value) if name and value else (part.strip(), "")
