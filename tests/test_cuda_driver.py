"""The calls of the driver that CuPy lacks, over a library that checks what it is handed."""

import ctypes
from dataclasses import replace

import numpy as np
import pytest
from fake_cupy import FakeCupy, Kernel
from fake_driver import FakeLibrary

from tuner.devices.cuda.driver import DriverCallError, DriverCalls
from tuner.model.plan import TensorMap

WANTED = TensorMap("x", "float64", (1024, 512), (16, 256), 128)
ADDRESS = 0x7F0000001000


@pytest.fixture
def library() -> FakeLibrary:
    kernel = Kernel(lambda *_: None, 1e-3)
    kernel.cluster, kernel.clusters = 4, 33
    return FakeLibrary(FakeCupy({"clustered": kernel}))


@pytest.fixture
def driver(library: FakeLibrary) -> DriverCalls:
    return DriverCalls(lambda: library)


def test_active_clusters(driver: DriverCalls) -> None:
    """The driver is asked with the cluster as launch attribute, and its count comes back."""
    assert driver.max_active_clusters(1, (128, 2, 1), 4096, 4) == 33


def test_unknown_clusters(driver: DriverCalls) -> None:
    """A cluster that the function is not made for is refused in the driver's words."""
    with pytest.raises(DriverCallError, match="cuOccupancyMaxActiveClusters: CUDA_ERROR_INVALID_VALUE"):
        driver.max_active_clusters(1, (128, 1, 1), 0, 8)


def test_tensor_map(driver: DriverCalls, library: FakeLibrary) -> None:
    """A tensor map is a value of 128 aligned bytes; rows of the matrix follow each other."""
    encoded = driver.tensor_map(ADDRESS, WANTED)
    assert (encoded.shape, encoded.size, encoded.nbytes) == ((), 1, 128)
    assert encoded.ctypes.data % 64 == 0
    words = np.frombuffer(encoded.tobytes(), np.uint64)
    assert words[:6].tolist() == [ADDRESS, 1024, 512, 16, 256, 2]
    assert library.maps == [{"type": 8, "dims": [1024, 512], "box": [16, 256], "promotion": 2}]


@pytest.mark.parametrize(("promotion", "number"), [(0, 0), (64, 1), (128, 2), (256, 3)])
def test_promotion(driver: DriverCalls, library: FakeLibrary, promotion: int, number: int) -> None:
    """The bytes of a promotion are the driver's number for them."""
    driver.tensor_map(ADDRESS, replace(WANTED, promotion_bytes=promotion))
    assert library.maps[0]["promotion"] == number


@pytest.mark.parametrize(
    ("address", "wanted"),
    [
        (ADDRESS + 8, WANTED),
        (ADDRESS, replace(WANTED, dims=(1023, 512))),
        (ADDRESS, replace(WANTED, box=(16, 257))),
    ],
)
def test_tensor_map_that_cannot_be(driver: DriverCalls, address: int, wanted: TensorMap) -> None:
    """A refusal names the buffer, its form and the driver's reason."""
    with pytest.raises(DriverCallError, match=r"buffer 'x' \(.* elements of 8 bytes.*INVALID_VALUE"):
        driver.tensor_map(address, wanted)


def test_no_library() -> None:
    """Without a driver, and with one that is too old for a call, the words say so."""
    missing = DriverCalls(lambda: ctypes.CDLL("libno-such-driver.so.1"))
    with pytest.raises(DriverCallError, match="no NVIDIA driver"):
        missing.tensor_map(ADDRESS, WANTED)
    old = DriverCalls(lambda: ctypes.CDLL(None))
    with pytest.raises(DriverCallError, match="no cuOccupancyMaxActiveClusters: it is older than CUDA 12"):
        old.max_active_clusters(1, (32, 1, 1), 0, 2)
