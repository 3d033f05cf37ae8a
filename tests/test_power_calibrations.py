"""The store of calibrations: by GPU, driver and reading, whole or not at all."""

import json
import multiprocessing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tuner.power.base import Response
from tuner.power.response.calibrations import entries, load, prepare, store

from tuner.devices.sensors import calibrated
from tuner.model.errors import StoreError
from tuner.model.jobs import DeviceIdentity

GPU, DRIVER = "GPU-1234", "580.1"
LAG = Response(
    "lag",
    capacitance_s=0.0145,
    capacitance_sigma_s=2e-4,
    delay_s=-0.002,
    delay_sigma_s=1e-4,
    origin="calibrated",
)
BLIND = Response("boxcar", window_s=0.025, origin="calibrated", averages=False)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state" / "sensors.json"


def test_what_is_stored_is_loaded(path: Path) -> None:
    """Responses come back as they were, with period, date and version beside them."""
    store(path, GPU, DRIVER, {"ring": (LAG, 0.02), "instant": (BLIND, 0.1)})

    assert load(path, GPU, DRIVER) == {"ring": LAG, "instant": BLIND}
    first, _ = entries(path)
    assert first.period_s == 0.02
    assert first.date.endswith("+00:00")
    assert first.tuner


@pytest.mark.parametrize(("gpu", "driver"), [(GPU, "590.2"), ("GPU-5678", DRIVER), ("sim:h200", DRIVER)])
def test_another_gpu_or_driver_has_none(path: Path, gpu: str, driver: str) -> None:
    """A calibration is that of one board under one driver; a simulated one is never a real one's."""
    store(path, GPU, DRIVER, {"ring": (LAG, 0.02)})

    assert load(path, gpu, driver) == {}


def test_only_the_same_is_replaced(path: Path) -> None:
    """Calibrating again replaces the readings calibrated, and leaves others, other GPUs and other drivers."""
    store(path, GPU, DRIVER, {"ring": (LAG, 0.02), "instant": (BLIND, 0.1)})
    store(path, GPU, "590.2", {"ring": (BLIND, 0.02)})
    store(path, "GPU-5678", DRIVER, {"ring": (BLIND, 0.02)})

    store(path, GPU, DRIVER, {"ring": (replace(LAG, capacitance_s=0.015), 0.02)})

    assert load(path, GPU, DRIVER)["ring"].capacitance_s == 0.015
    assert load(path, GPU, DRIVER)["instant"] == BLIND
    assert load(path, GPU, "590.2") == load(path, "GPU-5678", DRIVER) == {"ring": BLIND}


def test_no_file_is_no_calibration(path: Path) -> None:
    """Without a file nothing is calibrated, and looking makes none."""
    assert load(path, GPU, DRIVER) == {}
    assert not path.parent.exists()


def damaged(path: Path, change: Any) -> None:
    store(path, GPU, DRIVER, {"ring": (LAG, 0.02)})
    document = json.loads(path.read_text())
    change(document["calibrations"][0])
    del document["checksum"]  # as an earlier version wrote it
    path.write_text(json.dumps(document))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda item: item.pop("gpu"), "'gpu' is missing"),
        (lambda item: item.update(driver=580), "driver is 580, not a text"),
        (lambda item: item.update(response=None), "NoneType"),
        (lambda item: item["response"].update(kind="laag"), "'laag', not one of identity, lag, boxcar, ramp"),
        (lambda item: item["response"].update(capacitance_s=-0.1), "capacitance_s is -0.1, less than 0"),
        (lambda item: item["response"].update(capacitance_s=0), "a lag has a capacitance_s of 0"),
        (lambda item: item["response"].update(window_s=1), "a lag has a window_s of 1"),
        (lambda item: item["response"].update(delay_s="soon"), "delay_s is 'soon', not a number"),
        (lambda item: item["response"].update(delay_s=float("nan")), "delay_s is nan, not a number"),
        (lambda item: item["response"].update(delay_s=10**400), "too large"),
        (lambda item: item["response"].update(averages="yes"), "averages is 'yes', not true or false"),
        (lambda item: item.update(period_s=True), "period_s is True, not a number"),
    ],
)
def test_a_damaged_entry_is_named(path: Path, change: Any, says: str) -> None:
    """A value that cannot be is an error that names file, value and remedy; storing sets the file aside."""
    damaged(path, change)
    before = path.read_bytes()

    with pytest.raises(StoreError) as caught:
        load(path, GPU, DRIVER)
    assert says in str(caught.value)
    assert str(path) in str(caught.value)
    assert "tuner power calibrate" in str(caught.value)
    prepare(path)
    store(path, GPU, DRIVER, {"ring": (LAG, 0.02)})

    assert path.with_name("sensors.json.damaged").read_bytes() == before
    assert load(path, GPU, DRIVER) == {"ring": LAG}


def test_a_digit_that_changed_is_seen(path: Path) -> None:
    """A response that could be, and is not the one that was stored, is not used."""
    store(path, GPU, DRIVER, {"ring": (LAG, 0.02)})
    path.write_text(path.read_text().replace("0.0145", "0.0175"))

    with pytest.raises(StoreError, match="checksum"):
        load(path, GPU, DRIVER)


def test_a_file_of_an_earlier_version_is_used(path: Path) -> None:
    """A file without a checksum counts, and gets one when something is stored."""
    damaged(path, lambda _: None)
    assert load(path, GPU, DRIVER) == {"ring": LAG}

    store(path, GPU, DRIVER, {"instant": (BLIND, 0.1)})

    assert "checksum" in json.loads(path.read_text())
    assert load(path, GPU, DRIVER) == {"ring": LAG, "instant": BLIND}


@given(st.data())
def test_no_flipped_bit_gives_other_numbers(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """After any flip of a bit the responses are those that were stored, or none."""
    path = tmp_path_factory.mktemp("flip") / "sensors.json"
    store(path, GPU, DRIVER, {"ring": (LAG, 0.02)})
    content = bytearray(path.read_bytes())
    place = data.draw(st.integers(0, 8 * len(content) - 1))
    content[place // 8] ^= 1 << place % 8
    path.write_bytes(content)

    try:
        found = load(path, GPU, DRIVER)
    except StoreError:
        return
    assert found == {"ring": LAG}


@given(
    st.one_of(
        st.binary(max_size=60),
        st.recursive(
            st.none() | st.integers() | st.text(max_size=5),
            lambda x: (
                st.lists(x, max_size=3)
                | st.dictionaries(
                    st.sampled_from(["version", "calibrations", "gpu", "response"]), x, max_size=3
                )
            ),
        ).map(lambda value: json.dumps(value).encode()),
    )
)
def test_any_other_file_is_an_error_of_ours(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    """Whatever stands in the file, reading it gives calibrations or an error that names it."""
    path = tmp_path_factory.mktemp("any") / "sensors.json"
    path.write_bytes(content)

    try:
        found = load(path, GPU, DRIVER)
    except StoreError as error:
        assert str(path) in str(error)  # noqa: PT017 - either outcome is right
    else:
        assert found == {}


def test_an_unwritable_place_is_told(tmp_path: Path) -> None:
    """Where the directory cannot be made, the error names the file."""
    (tmp_path / "state").write_text("a file where the directory should be")

    with pytest.raises(StoreError, match=r"sensors\.json"):
        prepare(tmp_path / "state" / "sensors.json")


def test_nothing_is_left_beside_the_file(path: Path) -> None:
    """After a success, and after a failure in the middle of writing, no temporary file remains."""
    store(path, GPU, DRIVER, {"ring": (LAG, 0.02)})
    before = path.read_bytes()
    with pytest.raises(ValueError, match="JSON"):
        store(path, GPU, DRIVER, {"ring": (replace(LAG, delay_s=float("inf")), 0.02)})

    assert path.read_bytes() == before
    assert {entry.name for entry in path.parent.iterdir()} == {"sensors.json", ".sensors.json.lock"}


def _store_one(path: str, number: int) -> None:
    store(Path(path), GPU, DRIVER, {f"reading-{number}": (LAG, 0.02)})


def test_two_at_once_lose_nothing(path: Path) -> None:
    """Processes that store at the same time all find their entries in the file."""
    context = multiprocessing.get_context("fork")
    workers = [context.Process(target=_store_one, args=(str(path), number)) for number in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()

    assert set(load(path, GPU, DRIVER)) == {f"reading-{number}" for number in range(4)}


def test_a_user_comes_before_the_system(tmp_path: Path) -> None:
    """What a user calibrated counts more than an administrator's, which fills in the rest."""
    user, system = tmp_path / "user.json", tmp_path / "system.json"
    store(user, GPU, DRIVER, {"ring": (LAG, 0.02)})
    store(system, GPU, DRIVER, {"ring": (BLIND, 0.02), "instant": (BLIND, 0.1)})
    identity = DeviceIdentity("cuda:0", "GPU", GPU, DRIVER, "", modelled=False)

    found = calibrated(identity, user, system)

    assert found("ring") == LAG
    assert found("instant") == BLIND
    assert found("average") is None
