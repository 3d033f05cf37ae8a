"""Candidates of a space that is too large to be listed, made when somebody asks for them."""

from collections.abc import Sequence

from tuner.kernel_files.kernel_file import KernelFile
from tuner.model.plan import Configuration, Plan, Workload
from tuner.search.declared import TraitReader
from tuner.space.sampled import SampledSpace
from tuner.space.search_view import Candidate, LargeSpace


class CandidateSource:
    """Makes the candidates that a search looks at beyond those that are listed.

    Args:
        space: a sample of which is listed.
        declaration: of its workload.

    Attributes:
        made: by configuration; None where one is pruned. Listed ones are among them once they were asked for.
    """

    def __init__(self, space: SampledSpace, declaration: TraitReader) -> None:
        self._space = space
        self._declaration = declaration
        self.made: dict[Configuration, Candidate | None] = {}

    def neighbours(self, configuration: Configuration) -> Sequence[Candidate]:
        """See ``LargeSpace.neighbours``."""
        found = map(self._made, self._space.neighbours(configuration))
        return [one for one in found if one is not None]

    def candidate(self, configuration: Configuration) -> Candidate | None:
        """See ``LargeSpace.candidate``."""
        allowed = self._declaration.kernel.allowed(self._declaration.workload, configuration)
        return None if allowed is None else self._made(allowed)

    def as_told(self) -> LargeSpace:
        """The space as a policy is told of it."""
        return LargeSpace(self._space.size, self.neighbours, self.candidate)

    def _made(self, configuration: Configuration) -> Candidate | None:
        if configuration not in self.made:
            self.made[configuration] = self._declaration.of(configuration).candidate
        return self.made[configuration]


class PlansOnDemand(dict[Configuration, Plan]):
    """Plans of listed configurations; those of others are made, and kept, when they are looked up.

    Args:
        kernel: evaluates them.
        workload: of the kernel.
    """

    def __init__(self, kernel: KernelFile, workload: Workload) -> None:
        super().__init__()
        self._kernel, self._workload = kernel, workload

    def __missing__(self, configuration: Configuration) -> Plan:
        allowed = self._kernel.allowed(self._workload, configuration)
        if allowed is None:
            raise KeyError(configuration)
        plan = self._kernel.plan(self._workload, allowed)
        self[allowed] = plan
        return plan
