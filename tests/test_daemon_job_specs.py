"""What clients may order and the daemon orders itself, and which GPU a job runs on."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from answering_scene import store_run
from fake_service import queued_job
from service_rig import (
    DEVICE,
    OTHER,
    PEER,
    ROOT,
    WORKLOAD,
    PlayedAttempt,
    Rig,
    catalog,
    plays,
    settings,
    working,
    works,
)

from tuner.daemon.devices.admission import windows_of
from tuner.daemon.devices.queue import DeviceQueue
from tuner.daemon.interface import NotNowError, Question
from tuner.daemon.jobs.shares import GONE_AFTER_S, Placement
from tuner.daemon.jobs.specs import checked, missing, spec_key, specs_of, unwanted, with_site_rules
from tuner.daemon.settings import WindowTable
from tuner.database.answers import ANALYSIS_VERSION, analytical_key
from tuner.model.errors import DeviceUnavailableError, InputError
from tuner.model.jobs import (
    FOR_AN_ANSWER,
    DeviceChoice,
    DeviceIdentity,
    Job,
    JobKind,
    JobSpec,
    JobState,
    Origin,
    same_kind,
    wrong_choice,
)
from tuner.model.records import Conditions, RunStatus
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


# --- Which GPU a job runs on: by name, of a kind, or any; and on several at once.

KIND = "NVIDIA H200"
THREE = ("cuda:0", "cuda:1", "cuda:2")


def gpu(spec: str, uuid: str = "", name: str = KIND, driver: str = "580") -> DeviceIdentity:
    return DeviceIdentity(spec, name, uuid or f"GPU-{spec}", driver, "13.0", modelled=False)


def job(device: str = "", begun_on: str = "") -> Job:
    spec = JobSpec((WORKLOAD,), device=device)
    when = "2026-01-01T00:00:00.000+00:00"
    return queued_job(1, spec, created_at=when, gpu=begun_on)


def placed(*devices: DeviceIdentity, missed_s: float = 0.0) -> Placement:
    """The placement of a daemon that has worked with these devices for so long."""
    clock = iter([0.0])
    return Placement(lambda: {one.spec: one for one in devices}, now=lambda: next(clock, missed_s))


@pytest.mark.parametrize(
    ("text", "allowed"),
    [
        ("", ["cuda:0", "cuda:1", "cuda:2"]),
        ("any", ["cuda:0", "cuda:1", "cuda:2"]),
        ("cuda:1", ["cuda:1"]),
        ("kind:NVIDIA H200", ["cuda:0", "cuda:1"]),
        ("kind:NVIDIA H200@590", ["cuda:1"]),
        ("kind:NVIDIA A100", []),
    ],
)
def test_a_choice_allows_devices(text: str, allowed: list[str]) -> None:
    """A job names a device, a model of GPU with or without its driver, or nothing, which is any device."""
    devices = (gpu("cuda:0"), gpu("cuda:1", driver="590"), gpu("cuda:2", name="NVIDIA L4"))
    choice = DeviceChoice.parse(text)
    assert [one.spec for one in devices if choice.allows(one)] == allowed
    assert DeviceChoice.parse(str(choice)) == choice
    assert placed(*devices).devices(job(str(choice))) == allowed
    assert not wrong_choice(text)


def test_gpus_of_a_kind_share_model_and_driver() -> None:
    """Another driver makes another kind, as its answers are stale here."""
    assert same_kind(gpu("cuda:0"), gpu("cuda:1"))
    assert not same_kind(gpu("cuda:0"), gpu("cuda:1", driver="590"))
    assert placed(gpu("cuda:0"), gpu("cuda:1"), gpu("cuda:2", driver="1")).alike("cuda:1") == [
        "cuda:0",
        "cuda:1",
    ]


@pytest.mark.parametrize("device", ["", "kind:NVIDIA H200", "cuda:0"])
def test_a_job_that_has_begun_stays_with_its_gpu(device: str) -> None:
    """Its GPU is known by its UUID, under whatever name it is here now."""
    here = placed(gpu("cuda:0", "GPU-b"), gpu("cuda:1", "GPU-a"))
    assert here.devices(job(device, begun_on="GPU-a")) == ["cuda:1"]


def test_a_job_waits_for_its_gpu_and_not_for_ever() -> None:
    """A GPU that is missed for a day is gone for good: its jobs begin anew on another."""
    begun = job(begun_on="GPU-a")
    soon = placed(gpu("cuda:0", "GPU-b"), missed_s=60.0)
    assert soon.devices(begun) == []
    assert soon.absence(begun) == "the GPU GPU-a, on which it has begun, is not here"
    assert placed(gpu("cuda:0", "GPU-b"), missed_s=GONE_AFTER_S).devices(begun) == ["cuda:0"]
    assert soon.devices(job("cuda:0", begun_on="GPU-a")) == ["cuda:0"], (
        "who names a device means what is there"
    )


def test_what_is_missing_is_told() -> None:
    """A job without a device here says which it waits for."""
    here = placed(gpu("cuda:0"))
    assert here.absence(job("cuda:7")) == "device cuda:7 is not here"
    assert here.absence(job("kind:NVIDIA L4@1")) == "a GPU of the kind NVIDIA L4 with driver 1 is not here"
    assert here.absence(job()) == ""


@works(devices=THREE, kind=KIND)
async def test_any_idle_device_takes_a_job(rig: Rig) -> None:
    """Jobs for any device of a kind run at once, one on each GPU; the next takes what is free first."""
    jobs = [await rig.submit(device=device) for device in ("", f"kind:{KIND}", "any", "")]
    running = [await rig.attempts.get() for _ in THREE]
    assert {one.spec.job_spec.device for one in running} == set(THREE)
    assert {(await rig.service.job(one.job)).device for one in running} == set(THREE)
    assert rig.attempts.empty()
    running[1].end()
    last = await rig.attempts.get()
    assert last.spec.job_spec.device == running[1].spec.job_spec.device
    assert {one.job for one in (*running, last)} == {one.id for one in jobs}


@works(devices=THREE, kind=KIND)
async def test_a_kind_that_is_not_here_is_refused(rig: Rig) -> None:
    """The message says which kinds there are."""
    with pytest.raises(InputError, match="the daemon tunes on kind:NVIDIA H200@1"):
        await rig.submit(device="kind:NVIDIA L4")


async def begun(rig: Rig, attempt: PlayedAttempt) -> None:
    """Store that an attempt has begun a run, as its process would."""
    identity = rig.state.identities[attempt.spec.job_spec.device]
    source = {"scan-lf": catalog().kernel("scan-lf").fingerprint}
    bound = Conditions(((WORKLOAD, 1),), source, identity, "energy", "random", 0, "off", {})

    def begin(books: Any) -> None:
        run = books.store.begin(bound)
        books.store.end(run, RunStatus.INTERRUPTED, None)
        books.jobs.change(attempt.job, JobState.RUNNING, run=run)

    await rig.storage.run(begin)


@plays
async def test_a_begun_job_goes_on_where_it_was(tmp_path: Path) -> None:
    """After an interruption a job with a run waits for its own GPU although others are idle."""
    async with working(tmp_path, devices=THREE, kind=KIND) as rig:
        first, attempt = await rig.begun()
        own = attempt.spec.job_spec.device
        await begun(rig, attempt)
        attempt.end(AttemptResult("busy", "others came"))
        again = await rig.attempts.get()
        assert (again.job, again.spec.job_spec.device) == (first.id, own)
    left = tuple(device for device in THREE if device != own)
    async with working(tmp_path, devices=left, kind=KIND) as rig:
        await rig.until(first.id, "queued", reason=f"the GPU {own}, on which it has begun, is not here")
        assert rig.attempts.empty()
    async with working(tmp_path, devices=THREE, kind=KIND) as rig:
        assert (await rig.attempts.get()).spec.job_spec.device == own


@works(devices=THREE, kind=KIND)
async def test_a_job_that_crashes_everywhere_fails(rig: Rig) -> None:
    """Crashes count whichever GPU they are on: a fault of the job does not go round all GPUs."""
    number = (await rig.submit()).id
    for _ in range(4):
        (await rig.attempts.get()).end(AttemptResult("crashed", "SIGSEGV"))
    assert (await rig.told(number))[-1] == ("failed", "4 attempts crashed, the last: SIGSEGV")


@works(devices=THREE[:2], kind=KIND)
async def test_a_gpu_that_is_not_to_be_had_keeps_no_job(rig: Rig) -> None:
    """Where one GPU cannot be opened, another of the kind takes the job at once."""
    _, attempt = await rig.begun()
    attempt.end(AttemptResult("unavailable", "it fell off the bus"))
    other = await rig.attempts.get()
    assert other.spec.job_spec.device != attempt.spec.job_spec.device


@plays
async def test_a_set_may_name_a_kind(tmp_path: Path) -> None:
    """A set for a kind, or for any device, is one job; it is queued once, also over a restart."""
    group = {"workloads": (WORKLOAD,), "policy": "random"}
    sets = (
        {**group, "name": "one", "devices": (f"kind:{KIND}",)},
        {**group, "name": "two", "devices": ("any",)},
    )
    chosen = settings(set=(*sets, {**group, "name": "absent", "devices": ("kind:NVIDIA L4",)}))
    for _ in range(2):
        async with working(tmp_path, chosen, devices=THREE, kind=KIND) as rig:
            jobs = await rig.service.jobs()
            assert sorted(one.spec.device for one in jobs) == ["", f"kind:{KIND}"]
            troubles = (await rig.service.status())["troubles"]
            assert any("set absent: device 'kind:NVIDIA L4' is not there" in one for one in troubles)


@works(settings(budget={"host_seconds_per_day": 10.0}), devices=THREE[:2], kind=KIND)
async def test_the_budget_of_the_host_holds_for_all_gpus(rig: Rig) -> None:
    """Seconds of all GPUs together are counted, and the GPU that spent nothing waits as well."""
    first, second = await rig.submit(device="cuda:0"), await rig.submit(device="cuda:1")
    both = {one.spec.job: one for one in (await rig.attempts.get(), await rig.attempts.get())}
    both[first.id].spent = (6.0, 1.0)
    both[second.id].spent = (5.0, 1.0)
    why = "today's budget of 10 s of measuring on all GPUs of the host is used up"
    await rig.until(first.id, "queued", reason=why)
    await rig.until(second.id, "queued", reason=why)
    assert (await rig.service.status())["host"]["spent_today_s"] == 11.0


@plays
async def test_a_window_may_be_for_some_devices(tmp_path: Path) -> None:
    """A closed window for one GPU keeps no other from its job."""
    night = WindowTable(start="0 22 * * *", hours=1.0, devices=("cuda:0",))
    async with working(tmp_path, settings(window=(night.model_dump(),)), devices=THREE[:2], kind=KIND) as rig:
        closed = await rig.submit(device="cuda:0")
        await rig.submit(device="cuda:1")
        assert (await rig.attempts.get()).spec.job_spec.device == "cuda:1"
        await rig.until(closed.id, "queued", reason="outside of the windows")
    assert windows_of(gpu("cuda:1"), (night,)) == ()


@works(settings(online={"refine": True}), devices=THREE, kind=KIND)
async def test_one_gpu_of_a_kind_searches(rig: Rig) -> None:
    """Asked on every GPU of a kind, a question is searched on one; the others wait, to verify its answer."""
    for device in THREE:
        rig.service.best(Question((WORKLOAD,), device=device), ROOT)
    await rig.attempts.get()
    await asyncio.sleep(60.0)  # many times what it takes to queue what is wanted
    assert len(await rig.service.jobs()) == 1


async def own(rig: Rig, device: str, workload: str) -> Job:
    """A job of the daemon's own for a device."""
    spec = JobSpec((workload,), device=device, policy="random")
    return await rig.service._board.add(spec, origin=Origin.STALE, priority=-0.5)


@works(devices=THREE[:2], kind=KIND)
async def test_one_job_of_ours_gives_way_at_a_time(rig: Rig) -> None:
    """A client's job for any device stops the job of ours that would be taken last, and no other."""
    first, last = await own(rig, "cuda:0", "fft:N=4"), await own(rig, "cuda:1", "fft:N=8")
    running = {one.spec.job: one for one in (await rig.attempts.get(), await rig.attempts.get())}
    client = await rig.submit()
    await running[last.id].stopped.wait()
    taken = await rig.attempts.get()
    assert (taken.job, taken.spec.job_spec.device) == (client.id, "cuda:1")
    assert not running[first.id].stopped.is_set()


@works(settings(idle={"calm_s": 2.0}), devices=THREE[:2], kind=KIND)
async def test_no_job_of_ours_gives_way_where_a_device_is_idle(rig: Rig) -> None:
    """The idle device takes the client's job; a device that others use takes none."""
    await own(rig, "cuda:0", "fft:N=4")
    running = await rig.attempts.get()
    await rig.submit()
    assert (await rig.attempts.get()).spec.job_spec.device == "cuda:1"
    assert not running.stopped.is_set()


@pytest.mark.parametrize("there", ["a client's job", "a closed window"])
@plays
async def test_ours_gives_way_where_no_other_device_takes_the_clients(tmp_path: Path, there: str) -> None:
    """A device that a client's job has, or that may not work now, is none that the next one could go to."""
    night = {"start": "0 22 * * *", "hours": 1.0, "devices": ("cuda:1",)}
    chosen = settings(window=(night,)) if there == "a closed window" else settings()
    async with working(tmp_path, chosen, devices=THREE[:2], kind=KIND) as rig:
        if there == "a client's job":
            await rig.submit(device="cuda:1")
            await rig.attempts.get()
        await own(rig, "cuda:0", "fft:N=4")
        ours = await rig.attempts.get()
        client = await rig.submit(seed=1)
        await ours.stopped.wait()
        assert (await rig.attempts.get()).job == client.id


@plays
async def test_a_job_for_several_devices_says_once_why_it_waits(tmp_path: Path) -> None:
    """Devices that are kept from it for different reasons do not take turns to tell theirs."""
    night, never = ({"start": start, "hours": 1.0} for start in ("0 22 * * *", "0 23 * * *"))
    windows = ({**night, "devices": ("cuda:0",)}, {**never, "devices": ("cuda:1",)})
    async with working(tmp_path, settings(window=windows), devices=THREE[:2], kind=KIND) as rig:
        waiting = await rig.submit()
        await rig.until(waiting.id, "queued", reason="none of its devices is free for it now")
        await asyncio.sleep(130.0)  # two looks of each device
        assert len(await rig.storage.run(lambda books: books.jobs.events(waiting.id))) == 2


@plays
async def test_a_change_of_a_job_wakes_the_queues_that_it_concerns(tmp_path: Path) -> None:
    """A job wakes idle queues that may run it when it comes to wait, and where it runs its own queue."""
    woken: list[str] = []
    wake = DeviceQueue.wake

    def heard(queue: DeviceQueue) -> None:
        woken.append(queue.device)
        wake(queue)

    def wakes() -> list[str]:
        since, woken[:] = sorted(woken), []
        return since

    with pytest.MonkeyPatch.context() as patch:
        async with working(tmp_path, devices=THREE, kind=KIND) as rig:
            patch.setattr(DeviceQueue, "wake", heard)
            first = await rig.submit(device="cuda:0")
            assert wakes() == ["cuda:0"]
            await rig.attempts.get()
            assert set(wakes()) <= {"cuda:0"}
            await rig.submit(seed=1)
            assert wakes() == ["cuda:1", "cuda:2"]
            await rig.attempts.get()
            await rig.submit(device="cuda:0", seed=2)
            assert "cuda:0" not in wakes()
            await rig.service.cancel(first.id, ROOT)
            assert wakes() == ["cuda:0"]
