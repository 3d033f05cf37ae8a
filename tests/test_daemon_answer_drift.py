"""Measuring served answers again: what is chance, what is drift, and how rarely one is taken for another."""

import itertools
import math
import random
from datetime import datetime, timedelta, timezone
from statistics import NormalDist
from typing import cast

import pytest
from answering_scene import known, sample, trial
from hypothesis import given
from hypothesis import strategies as st

from tuner.daemon.answers.answerer import LEAST_REPEATABILITY, sample_document
from tuner.database.answers import SampleHistory
from tuner.model.errors import StoreError
from tuner.model.objective import COVERAGE
from tuner.model.run_document import AnswerDocument, AnswerTrial, SampleDocument
from tuner.model.trial import Status

NOW = datetime(2026, 1, 10, tzinfo=timezone.utc)
SCAN = "scan-lf:N=64"
VERDICTS = ("inside", "above", "below", "failed", "void")


def judged(
    joules: float, *, unsure: float = 0.001, repeats: float | None = 0.01, **how: object
) -> SampleDocument:
    """The document of a sample of an answer of 1 J."""
    answer = known([SCAN], unsure=0.001, repeats=repeats).answer
    return sample_document("energy", answer, sample(joules, unsure=unsure, **how), NOW)  # type: ignore[arg-type]


def test_the_interval_is_the_joint_one() -> None:
    """Both uncertainties and the repeatability add in squares; inside is up to it, outside is beyond."""
    joint = math.hypot(COVERAGE * 0.001, COVERAGE * 0.001, 0.01)
    assert judged(1.0)["interval"] == pytest.approx(joint, rel=1e-6)
    assert judged(1.0 + 0.99 * joint)["verdict"] == "inside"
    assert judged(1.0 + 1.01 * joint)["verdict"] == "above"
    assert judged(1.0 - 1.01 * joint)["verdict"] == "below"


def test_repeating_is_never_taken_to_be_exact() -> None:
    """Where a run learnt nothing of its repeatability, or minutes of calm, what a GPU shows is assumed."""
    for repeats in (None, 0.0):
        assert judged(1.0, unsure=0.0, repeats=repeats)["interval"] == pytest.approx(
            COVERAGE * math.hypot(LEAST_REPEATABILITY, 0.001)
        )


def test_time_and_products_are_compared_in_their_own_unit() -> None:
    """Of an answer for time it is seconds that count; of a product, both with their exponents."""
    best = cast("AnswerTrial", trial({}, joules=2.0, time_s=0.01))
    answer: AnswerDocument = {"best": best, "repeatability": None}
    slow = sample(2.0, time_s=0.011)
    assert sample_document("energy", answer, slow, NOW)["verdict"] == "inside"
    time = sample_document("time", answer, slow, NOW)
    assert (time["verdict"], time["unit"], time["expected"]) == ("above", "s", 0.01)
    product = sample_document("ed2p within 5.00% of the fastest", answer, slow, NOW)
    assert product["verdict"] == "above"
    assert product["cost"] == pytest.approx(2.0 * 0.011**2)


def test_what_was_throttled_does_not_count() -> None:
    """A sample of another clock says nothing of the answer."""
    document = judged(3.0, flags=("throttled: thermal",))
    assert document["verdict"] == "void"
    after = SampleHistory(verdict="above").after(document)
    assert after.doubted
    assert not after.drifted


def test_an_answer_that_fails_has_drifted() -> None:
    """A configuration that gives wrong answers now is stale after a second try, and says so."""
    found = SampleHistory.of([judged(1.0, status=Status.WRONG_ANSWER)] * 2)
    assert found.drifted == "drifted: it ends with wrong-answer now"


def test_what_is_no_measurement_is_a_damaged_record() -> None:
    """A sample that cannot be read is an error of the store, not a verdict."""
    with pytest.raises(StoreError):
        sample_document("energy", known([SCAN]).answer, {"results": []}, NOW)


@given(st.lists(st.sampled_from(VERDICTS)))
def test_only_two_in_a_row_on_one_side_are_drift(verdicts: list[str]) -> None:
    """Void samples apart, an answer has drifted once the same doubt came twice running, and stays so."""
    found = SampleHistory.of(
        {"at": "2026-01-02T00:00:00+00:00", "verdict": verdict, "told": "x"} for verdict in verdicts
    )
    counted = [verdict for verdict in verdicts if verdict != "void"]
    assert bool(found.drifted) == any(one == other != "inside" for one, other in itertools.pairwise(counted))
    assert not (found.drifted and found.doubted)


def test_samples_are_due_by_age_and_at_once_in_doubt() -> None:
    """An answer is measured again after so many hours, at once after a doubt, never once it has drifted."""
    ended = (NOW - timedelta(hours=23)).isoformat()
    assert not SampleHistory().due(ended, NOW, 24.0)
    assert SampleHistory().due(ended, NOW + timedelta(hours=1), 24.0)
    assert not SampleHistory().due(ended, NOW + timedelta(days=99), 0.0)
    assert SampleHistory(at=NOW.isoformat(), verdict="above").due(ended, NOW, 24.0)
    assert not SampleHistory(at=NOW.isoformat(), verdict="inside").due(ended, NOW, 24.0)
    assert not SampleHistory(drifted="drifted: x", verdict="above").due(ended, NOW, 24.0)


def test_a_clock_that_was_wrong_hides_no_answer_from_sampling() -> None:
    """A sample that seems to come from the future, or from no time at all, is not waited for."""
    assert SampleHistory(at=(NOW + timedelta(days=3000)).isoformat()).due("", NOW, 24.0)
    assert SampleHistory().due("yesterday", NOW, 24.0)


def test_chance_is_rarely_taken_for_drift() -> None:
    r"""False alarms stay below what the two-in-a-row rule allows by the theory of normal noise.

    Both samples are held against one stored value, so that its error is common to them: the differences have
    the correlation u0^2 / (u0^2 + u1^2 + r^2). An answer has at least three repeats of a sample's noise, so
    that u0^2 <= u1^2 / 3, and the correlation is at most 1/4. Each sample is outside with 5 %; both on the
    same side with 2 P(X > 1.96, Y > 1.96) of two normal variables of that correlation, 0.42 %.
    """
    noise, again, tries = 0.006, 0.005, 8000
    normal, step = NormalDist(), 0.001
    places = (COVERAGE + step * (number + 0.5) for number in range(6000))
    both = sum(normal.pdf(x) * normal.cdf((0.25 * x - COVERAGE) / math.sqrt(1 - 0.25**2)) for x in places)
    bound = 2.0 * step * both
    assert bound == pytest.approx(0.0042, abs=0.0005)
    draw = random.Random(20260110)  # noqa: S311 - noise, no secret
    own = noise / math.sqrt(3)
    alarms = first = 0
    record = sample(1.0, unsure=noise)
    for _ in range(tries):
        answer: AnswerDocument = {
            "best": cast("AnswerTrial", trial({}, joules=1.0 + draw.gauss(0, own), unsure=own)),
            "repeatability": {"energy_interval": COVERAGE * again, "time_interval": 0.0},
        }
        found = SampleHistory()
        for _ in range(2):
            measured = 1.0 + draw.gauss(0, again) + draw.gauss(0, noise)
            record["energy"] |= {"joules": measured, "uncertainty_j": noise * measured}
            found = found.after(sample_document("energy", answer, record, NOW))
            if not found.doubted:
                break
            first += 1
        alarms += bool(found.drifted)
    assert 0.03 * tries < first < 0.07 * tries  # the noise is what the intervals say
    assert alarms < tries * bound + 3.0 * math.sqrt(tries * bound)


def test_a_drift_beyond_the_interval_is_found_by_two_samples() -> None:
    """A cost that rises by three joint intervals is drift after two samples, with both numbers in words."""
    found = SampleHistory.of([judged(1.05), judged(1.05)])
    assert found.drifted.startswith("drifted: 1.05 ± 0.0021 J on 2026-01-10, was 1 ± 0.002 J")
    assert found.drifted.endswith("(modelled)")
