"""A daemon's answers with a database beside them: stored runs of choice, no GPU and no compiler."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from itertools import islice
from typing import Any

import run_documents

from tuner.daemon.answers.answerer import Analyse, Answerer
from tuner.daemon.answers.replies import AnswerIndex
from tuner.daemon.backlog.backlog import Backlog
from tuner.daemon.interface import Question, Reply
from tuner.daemon.settings import Settings
from tuner.daemon.state import State
from tuner.database.answers import StoredAnswer, stored_answer
from tuner.database.runs import Store
from tuner.kernel_files.catalog import Catalog
from tuner.kernel_files.source_folder import kernels_root
from tuner.model.jobs import DeviceIdentity
from tuner.model.objective import described
from tuner.model.plan import Configuration, TunableValue
from tuner.model.records import Conditions, RunStatus, StoredRun, measurement_record
from tuner.model.run_document import RunDocument, SampleDocument
from tuner.model.trial import Energy, Flag, Measurement, Status, WorkloadResult

TX1 = DeviceIdentity(
    "sim:jetson-tx1", "NVIDIA Jetson TX1 (modelled)", "sim:jetson-tx1", "model-2", "12.9", modelled=True
)
H200 = DeviceIdentity("cuda:0", "NVIDIA H200", "GPU-1", "550.54", "12.9", modelled=False)
TWIN = replace(H200, spec="cuda:1", uuid="GPU-2")


@cache
def shipped() -> Catalog:
    """The kernels that come with the package; read once."""
    return Catalog.load(search_path=(kernels_root(),))


@cache
def first_values(spec: str) -> tuple[Configuration, ...]:
    """Some configurations of a workload."""
    workload = shipped().workload(spec)
    return tuple(islice(shipped().kernel(workload.kernel).space(workload), 50))


ENERGY = {"objective": "energy"}


def conditions(names: Sequence[str], device: DeviceIdentity = TX1, **changes: Any) -> Conditions:
    """What a run of shipped kernels is bound to; workloads may name a batch."""
    workloads = [shipped().workload(name) for name in names]
    kernels = {workload.kernel for workload in workloads}
    made = Conditions(
        workloads=tuple((str(workload), workload.batch) for workload in workloads),
        sources={kernel: shipped().kernel(kernel).fingerprint for kernel in kernels},
        device=device,
        objective="time",
        policy="auto",
        seed=0,
        clocks="off",
        settings={},
    )
    return replace(made, **changes)


def trial(
    values: Mapping[str, Mapping[str, TunableValue]],
    *,
    joules: float = 1.0,
    time_s: float = 0.01,
    clock_mhz: int | None = None,
    power_limit_w: int | None = None,
    unsure: float = 0.001,
) -> dict[str, Any]:
    """A trial as the document of a run has it; ``unsure`` is its relative standard uncertainty."""
    return run_documents.trial(
        values,
        clock_mhz=clock_mhz,
        power_limit_w=power_limit_w,
        time_s=time_s,
        time_s_uncertainty=unsure * time_s,
        energy_j=joules,
        energy_j_uncertainty=unsure * joules,
        power_w=joules / time_s,
    )


def document(
    names: Sequence[str],
    *,
    place: int = 0,
    saves_j: float = 0.5,
    max_slowdown: float | None = None,
    repeats: float | None = None,
    **best: Any,
) -> RunDocument:
    """The answer of a run: configurations at a place of the spaces; the default costs ``saves_j`` more."""
    values = {}
    for name in names:
        workload = shipped().workload(name)
        found = first_values(name)
        values[str(workload)] = found[place % len(found)]
    answer = trial(values, **best)
    return run_documents.answered(
        answer,
        default=trial(values, joules=answer["energy_j"] + saves_j, time_s=2 * answer["time_s"]),
        max_slowdown=max_slowdown,
        repeatability=None if repeats is None else {"energy_interval": repeats, "time_interval": repeats},
    )


def store_run(
    store: Store,
    names: Sequence[str],
    device: DeviceIdentity = TX1,
    *,
    status: str = "finished",
    bound: Mapping[str, Any] | None = None,
    **answer: Any,
) -> int:
    """Store a run with an answer; returns its number."""
    changes = dict(bound or {})
    if answer.get("max_slowdown") is not None:
        changes["objective"] = described("energy", answer["max_slowdown"])
    number = store.begin(conditions(names, device, **changes))
    store.end(number, RunStatus(status), document(names, **answer))
    return number


def known(
    names: Sequence[str],
    device: DeviceIdentity = TX1,
    *,
    run: int = 1,
    bound: Mapping[str, Any] | None = None,
    samples: Sequence[SampleDocument] = (),
    **answer: Any,
) -> StoredAnswer:
    """A stored answer in memory, without a database."""
    made = conditions(names, device, **dict(bound or {}))
    at = "2026-01-01T00:00:00.000+00:00"
    row = StoredRun(
        id=run,
        status=RunStatus.FINISHED,
        owner="",
        objective=made.objective,
        started_at=at,
        ended_at=at,
        conditions=made.record(),
        answer=document(names, **answer),
        trials=9,
    )
    found = stored_answer(row, samples)
    assert found is not None
    return found


def sample(
    joules: float,
    *,
    time_s: float = 0.01,
    unsure: float = 0.001,
    status: Status = Status.OK,
    flags: tuple[str, ...] = (),
) -> dict[str, Any]:
    """What measuring one workload again gave; ``unsure`` is its relative standard uncertainty."""
    ok = status is Status.OK
    return measurement_record(
        Measurement(
            results=(WorkloadResult(status, time_s if ok else None),),
            makespan_s=time_s if ok else None,
            makespan_uncertainty_s=unsure * time_s,
            energy=Energy(joules, unsure * joules, joules / time_s, "simulated", "gpu") if ok else None,
            flags=tuple(map(Flag.parse, flags)),
            modelled=True,
        )
    )


class Answers:
    """The daemon's answers and its backlog, composed as the service does it.

    Args:
        catalog: the kernels.
        identities: device -> identity.
        settings: of the daemon.
        analyse: called with workloads without an analytical answer.
        limits: further arguments of ``Answerer``.
        options: further arguments of ``Backlog``.
    """

    def __init__(
        self,
        catalog: Catalog,
        identities: Mapping[str, DeviceIdentity],
        settings: Settings | None = None,
        *,
        analyse: Analyse = lambda _workload, _device: None,
        limits: Mapping[str, int] | None = None,
        **options: Any,
    ) -> None:
        self.state = State(settings or Settings(), catalog, dict(identities))
        self.answerer = Answerer(self.state, analyse=analyse, **limits or {})
        self.backlog = Backlog(self.answerer, **options)

    def reply(self, question: Question) -> Reply:
        """The reply to a question, which counts."""
        prepared = self.answerer.find(question)
        self.backlog.uses.add(prepared.key, question.demand)
        return prepared.reply

    def adopt(self, **changes: Any) -> None:
        """Change fields of the state."""
        for name, value in changes.items():
            setattr(self.state, name, value)
        self.answerer.adopt(self.state)
        self.backlog.reconsider()

    def take(self, *answers: StoredAnswer) -> None:
        """Have exactly these stored answers, all of which were fresh when they were read."""
        self.answerer.take(AnswerIndex.of(answers, lambda _: ()))


def refresh(answers: Answerer, store: Store, names: Sequence[str] | None = None) -> None:
    """Have stored answers read again, of one set or all."""
    answers.take(*answers.read(store, names), names)
