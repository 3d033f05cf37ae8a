"""What clients may order, and what the daemon orders itself."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from answering_scene import store_run
from service_rig import DEVICE, OTHER, PEER, ROOT, WORKLOAD, Rig, catalog, plays, settings, working, works

from tuner.daemon.interface import NotNowError, Question
from tuner.daemon.jobs.specs import checked, missing, spec_key, specs_of, unwanted, with_site_rules
from tuner.database.answers import ANALYSIS_VERSION, analytical_key
from tuner.model.errors import DeviceUnavailableError, InputError
from tuner.model.jobs import FOR_AN_ANSWER, JobKind, JobSpec, JobState, Origin
from tuner.search.job_messages import AttemptResult

DEVICES = (DEVICE, OTHER)
SET = {"name": "pair", "workloads": ("fft:N=4", WORKLOAD), "policy": "random", "priority": 2.0}


def test_an_order_is_filled_in() -> None:
    """Workloads that nobody names are the default set; a device that nobody names is any."""
    order = checked(JobSpec((), device="any"), catalog(), DEVICES)
    assert order.device == ""
    assert order.workloads == ("scan-lf:N=1024", "tridiag-wm:N=512", "fft:N=1024")
    assert checked(JobSpec(("fft:N=8,batch=2",), device=OTHER), catalog(), DEVICES) == JobSpec(
        ("fft:N=8,batch=2",), device=OTHER
    )


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"workloads": ("scam-lf:N=4",)}, "did you mean 'scan-lf'"),
        ({"workloads": (WORKLOAD, WORKLOAD)}, "named more than once"),
        ({"workloads": ("x" * 1000,)}, "at most 200"),
        ({"workloads": (WORKLOAD,) * 17}, "at most 16"),
        ({"objective": "speed"}, "choose from time, energy"),
        ({"policy": "magic"}, "unknown policy 'magic'; choose from"),
        ({"clocks": "fast"}, "not a choice of clocks"),
        ({"device": "cuda:7"}, "the daemon tunes on sim:jetson-tx1, sim:k40c"),
        ({"device": "kind:"}, "'kind:' names no kind; write kind:MODEL or kind:MODEL@DRIVER"),
        ({"device": "kind:H100@"}, "'kind:H100@' names no kind"),
        ({"options": {"bugdet": 3}}, "did you mean 'budget'"),
        ({"options": {"budget": 0}}, "budget: 0: write a whole number from 1"),
        ({"options": {"budget": True}}, "budget: True: write a whole number"),
        ({"options": {"budget": 2.5}}, "a whole number"),
        ({"options": {"time_limit_s": float("nan")}}, "time_limit_s: nan: write a number above 0"),
        ({"options": {"window_s": "1"}}, "write a number from 0.01 to 600"),
        ({"options": {"sensor": "a\nb"}}, "write the name of a sensor"),
        ({"objective": "time", "options": {"max_slowdown": 0.1}}, "max_slowdown: limits a search for energy"),
        ({"objective": "edp", "options": {"runs_per_day": 1.0}}, "use the objective time or energy"),
    ],
)
def test_a_wrong_order_is_refused(changes: dict[str, Any], says: str) -> None:
    """The message names what is wrong and what would be right."""
    with pytest.raises(InputError, match=says.replace("(", r"\(")):
        checked(JobSpec(**{"workloads": (WORKLOAD,), **changes}), catalog(), DEVICES)


def test_an_order_without_any_device_is_not_wrong() -> None:
    """That no device answers is nobody's wrong input: the same order may be taken later."""
    with pytest.raises(DeviceUnavailableError, match="`tuner status` says why"):
        checked(JobSpec((WORKLOAD,)), catalog(), ())


def test_clients_choose_no_clocks_unless_they_may() -> None:
    """Clocks are off, or as daemon.toml has them, or any where it says so."""
    order = JobSpec((WORKLOAD,), clocks="800")
    with pytest.raises(InputError, match="clients may not choose clocks here"):
        with_site_rules(order, settings().tuning)
    assert with_site_rules(order, settings(tuning={"clocks": "800"}).tuning).clocks == "800"
    assert with_site_rules(order, settings(tuning={"client_clocks": True}).tuning).clocks == "800"


def test_precision_is_that_of_the_settings_where_nobody_says() -> None:
    """Options of daemon.toml hold for clients too, and theirs go before."""
    tuning = settings(tuning={"energy_precision": 0.02}).tuning
    assert with_site_rules(JobSpec((WORKLOAD,)), tuning).options["energy_precision"] == 0.02
    chosen = JobSpec((WORKLOAD,), options={"energy_precision": 0.1})
    assert with_site_rules(chosen, tuning).options["energy_precision"] == 0.1


def test_equal_orders_are_told_by_what_they_ask() -> None:
    """The order in which workloads are named makes no other order; an option does."""
    assert spec_key(JobSpec(("a", "b"))) == spec_key(JobSpec(("b", "a")))
    assert spec_key(JobSpec(("a",))) != spec_key(JobSpec(("a",), options={"seed": 1}))


def test_sets_become_orders_for_every_device() -> None:
    """What a set leaves open is as [tuning] has it."""
    chosen = settings(set=(SET,), tuning={"objective": "edp"})
    orders = specs_of(chosen.set[0], chosen, catalog(), DEVICES)
    assert [order.device for order in orders] == list(DEVICES)
    assert {(order.objective, order.policy) for order in orders} == {("edp", "random")}


def test_a_wrong_set_is_told_and_keeps_no_other() -> None:
    """Sets are queued one by one."""
    chosen = settings(set=({"name": "bad", "workloads": ("none:N=4",)}, SET))
    orders, wrong = missing(chosen, catalog(), (DEVICE,), ())
    assert [priority for _, priority in orders] == [2.0]
    assert wrong[0].startswith("set bad: unknown kernel 'none'")
    assert unwanted(chosen, catalog(), (DEVICE,), ()) == []


@plays
async def test_sets_are_queued_once(tmp_path: Path) -> None:
    """A set is a job once, also over a restart; taken out it is cancelled, put back it is queued again."""
    chosen = settings(set=(SET,))
    async with working(tmp_path, chosen) as rig:
        (job,) = await rig.service.jobs()
        assert (job.origin, job.priority, job.spec.workloads) == (Origin.SET, 2.0, ("fft:N=4", WORKLOAD))
        await rig.service.adopt()
        assert len(await rig.service.jobs()) == 1
    async with working(tmp_path, chosen) as rig:
        assert len(await rig.service.jobs()) == 1
        rig.state.settings = settings()
        await rig.service.adopt()
        (job,) = await rig.service.jobs()
        assert (job.state, job.reason) == (JobState.CANCELLED, "daemon.toml does not name it any more")
        rig.state.settings = chosen
        await rig.service.adopt()
        again, _ = await rig.service.jobs()
        await rig.service.cancel(again.id, ROOT)
        await rig.service.adopt()
        assert len(await rig.service.jobs()) == 2, "what a client has cancelled stays so"


@works(settings(online={"refine": True}))
async def test_a_question_queues_its_refinement_once(rig: Rig) -> None:
    """What was never tuned and is asked for is queued; the next reply names the job."""
    question = Question(("tridiag-wm:N=512",))
    assert rig.service.best(question, PEER).refinement is None
    attempt = await rig.attempts.get()
    (job,) = await rig.service.jobs()
    assert job.origin is Origin.REQUEST
    assert rig.service.best(question, PEER).refinement == job.id
    attempt.end()
    await rig.told(job.id)
    assert len(await rig.service.jobs()) == 1


@works(settings(online={"refine": True}))
async def test_a_search_without_a_valid_trial_is_not_made_again_and_again(rig: Rig) -> None:
    """It has ended with a message; asking again, in any order, queues no other, also not a cancelled one."""
    rig.service.best(Question(("fft:N=4", WORKLOAD)), PEER)
    (await rig.attempts.get()).end(AttemptResult("limited", "no trial was valid"))
    rig.service.best(Question((WORKLOAD, "fft:N=4")), PEER)
    await asyncio.sleep(120.0)  # many times what it takes to queue what is wanted
    (job,) = await rig.service.jobs()
    assert (job.state, job.reason) == (JobState.FINISHED, "no trial was valid")
    rig.service.best(Question((WORKLOAD,)), PEER)
    other = (await rig.attempts.get()).job
    await rig.service.cancel(other, ROOT)
    rig.service.best(Question((WORKLOAD,)), PEER)
    await asyncio.sleep(120.0)
    assert len(await rig.service.jobs()) == 2


@works()
async def test_what_a_job_reads_is_shown_while_it_runs(rig: Rig) -> None:
    """Power and clock of the last trial are scraped until the job ends; a clock left set is counted."""
    job, attempt = await rig.begun()
    attempt.tell("trial", {"number": 1, "status": "ok", "watts": 9.5, "clock_mhz": 998.0})
    text = rig.service.metrics().decode()
    assert f'tuner_gpu_power_watts{{gpu="{DEVICE}"}} 9.5' in text
    assert f'tuner_gpu_clock_hertz{{gpu="{DEVICE}"}} 9.98e+08' in text
    attempt.end(AttemptResult("finished", clocks_left=(DEVICE,)))
    await rig.told(job.id)
    await asyncio.sleep(1.0)
    text = rig.service.metrics().decode()
    assert "tuner_gpu_power_watts{" not in text
    assert "tuner_gpu_clock_hertz{" not in text
    assert f'tuner_clock_restore_failures_total{{gpu="{DEVICE}"}} 1.0' in text


@works()
async def test_analytical_answers_of_changed_sources_go(rig: Rig) -> None:
    """The database keeps those of the kernels there are."""
    device = rig.state.identities[DEVICE]
    keys = [
        analytical_key(WORKLOAD, device, source, ANALYSIS_VERSION)
        for source in (catalog().kernel("scan-lf").fingerprint, "another")
    ]
    for key in keys:
        rig.answerer.remember({key: {}})
        await rig.storage.run(lambda books, key=key: books.ledger.remember_analytical(key, {}))  # type: ignore[misc]  # bound at once
    await rig.service.adopt()
    kept = await rig.storage.run(lambda books: books.ledger.analytical())
    assert list(kept) == keys[:1]


@works(settings(limits={"queue": 3}))
async def test_the_queue_is_bounded(rig: Rig) -> None:
    """One user leaves a place of three to others; a job too many is refused, and none is lost."""
    await rig.submit()
    await rig.attempts.get()
    await rig.submit()
    await rig.submit()
    with pytest.raises(NotNowError, match="2 jobs of yours wait already"):
        await rig.submit()
    assert len(await rig.service.jobs()) == 3


@works()
async def test_clients_order_no_samples(rig: Rig) -> None:
    """What is measured again, the daemon decides."""
    with pytest.raises(InputError, match="clients submit searches"):
        await rig.service.submit(JobSpec((WORKLOAD,), kind=JobKind.SAMPLE), PEER)


async def known_by(rig: Rig, names: tuple[str, ...], status: str = "finished") -> int:
    """A run is stored with an answer, as if a client's job had ended; the daemon reads it."""
    device = rig.state.identities[DEVICE]
    run = await rig.storage.run(lambda books: store_run(books.store, names, device, status=status))
    await rig.service._maintenance.refresh(names)
    return run


@pytest.mark.parametrize("origin", [origin for origin in Origin if origin in FOR_AN_ANSWER])
@works()
async def test_what_is_answered_meanwhile_is_not_tuned_again(rig: Rig, origin: Origin) -> None:
    """A search of our own that waits is dropped once its question is answered, whatever order it names."""
    await rig.submit()
    await rig.attempts.get()  # so that all others wait
    order = JobSpec(("fft:N=4", WORKLOAD), device=DEVICE, options={"seed": 7})
    ours = await rig.service._board.add(order, origin=origin)
    theirs = await rig.service.submit(JobSpec(("fft:N=4", WORKLOAD)), PEER)
    assert await known_by(rig, (WORKLOAD, "fft:N=4"), "interrupted") == 1
    assert (await rig.service.job(ours.id)).state is JobState.QUEUED, "that run will be gone on with"
    assert await known_by(rig, (WORKLOAD, "fft:N=4")) == 2
    assert (await rig.told(ours.id))[-1] == ("cancelled", "answered by run 2")
    assert (await rig.service.job(theirs.id)).state is JobState.QUEUED, "who asks for a search gets it"


@works()
async def test_another_question_stays(rig: Rig) -> None:
    """An answer for another objective, or other workloads, drops nothing."""
    await rig.submit()
    await rig.attempts.get()
    board = rig.service._board
    jobs = [
        await board.add(JobSpec(("fft:N=4",), "energy", device=DEVICE), origin=Origin.REQUEST),
        await board.add(JobSpec(("fft:N=4", WORKLOAD), device=DEVICE), origin=Origin.REQUEST),
    ]
    await known_by(rig, ("fft:N=4",))
    assert {(await rig.service.job(job.id)).state for job in jobs} == {JobState.QUEUED}
