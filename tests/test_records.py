"""Trials and measurements as JSON values."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.model.errors import StoreError
from tuner.model.plan import Configuration
from tuner.model.records import measurement_from, measurement_record, trial_from, trial_record
from tuner.model.trial import Energy, Flag, Measurement, Status, Trial, WorkloadResult
from tuner.model.typed import canonical

values = st.one_of(st.booleans(), st.integers(-(2**31), 2**31), st.text(max_size=5))
configurations = st.dictionaries(st.text(min_size=1, max_size=3), values, min_size=1, max_size=4).map(
    Configuration
)
positive = st.floats(1e-9, 1e9)
energies = st.builds(
    Energy,
    *(positive, positive, positive, st.text(max_size=5), st.text(max_size=5)),
    degrees=st.none() | positive,
    idle_watts=st.none() | positive,
    idle_uncertainty_w=positive,
)
measurements = st.builds(
    Measurement,
    st.lists(
        st.builds(
            WorkloadResult, st.sampled_from(Status), st.none() | positive, positive, st.text(max_size=9)
        ),
        min_size=1,
        max_size=3,
    ).map(tuple),
    st.none() | positive,
    energy=st.none() | energies,
    rounds=st.integers(0, 10**6),
    clock_mhz=st.none() | positive,
    flags=st.lists(st.text(max_size=5).map(Flag.parse), max_size=2).map(tuple),
    modelled=st.booleans(),
    temperature_c=st.none() | positive,
)


@given(measurements)
def test_measurement_survives_json(measurement: Measurement) -> None:
    """What is stored comes back equal, through JSON text."""
    assert measurement == measurement_from(json.loads(canonical(measurement_record(measurement))))


@given(configurations, configurations, *[st.none() | st.integers(1, 3000)] * 2)
def test_trial_survives_json(
    a: Configuration, b: Configuration, clock_mhz: int | None, power_limit_w: int | None
) -> None:
    """A trial comes back equal and with the same hash, though the text has its keys sorted."""
    trial = Trial((a, b), clock_mhz, power_limit_w)
    restored = trial_from(json.loads(canonical(trial_record(trial, ("x", "y")))), ("x", "y"))

    assert trial == restored
    assert hash(trial) == hash(restored)


@pytest.mark.parametrize("record", [{}, {"results": 3}, {"results": [{"status": "odd"}]}])
def test_foreign_measurement_is_refused(record: dict[str, object]) -> None:
    """A record of another shape is a StoreError, not a half-made measurement."""
    with pytest.raises(StoreError, match="not understood"):
        measurement_from(record)


def test_a_measurement_without_a_temperature_is_readable() -> None:
    """Databases of versions that kept none open; and one without a temperature is stored as these were."""
    record = measurement_record(Measurement((WorkloadResult(Status.OK, 1.0),), 1.0))

    assert "temperature_c" not in record
    assert measurement_from(record).temperature_c is None


def test_an_energy_without_idle_power_is_readable() -> None:
    """Trials stored before idle power was measured are read, and have no net joules."""
    energy = Energy(2.0, 0.1, 200.0, "counter", "gpu")
    record = json.loads(canonical(measurement_record(Measurement((), 0.01, energy=energy))))
    for key in ("degrees", "idle_watts", "idle_uncertainty_w"):
        del record["energy"][key]

    restored = measurement_from(record).energy

    assert restored == energy
    assert energy.net_joules is None
    assert energy.net_uncertainty_j is None
