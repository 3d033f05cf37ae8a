"""Arrays of CuPy as those of other libraries, for tests on a GPU."""

from contextlib import nullcontext
from typing import Any


class Borrowed:
    """With DLPack, and a namespace that takes arrays by it; the stream of its producer has written it."""

    def __init__(self, held: Any, producer: Any = None) -> None:
        self.held = held
        self.producer = producer

    def __dlpack__(self, **options: Any) -> Any:
        with nullcontext() if self.producer is None else self.producer:
            return self.held.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self.held.__dlpack_device__()

    def __array_namespace__(self) -> Any:
        return Library


class Library:
    @staticmethod
    def from_dlpack(array: Any) -> Borrowed:
        return Borrowed(array)


class Interface:
    """With the CUDA array interface alone; it may be forbidden to write it."""

    def __init__(self, held: Any, *, readonly: bool = False, producer: Any = None) -> None:
        self.held = held
        interface = {**held.__cuda_array_interface__, "data": (held.data.ptr, readonly)}
        if producer is not None:
            interface["stream"] = producer.ptr
        self.__cuda_array_interface__ = interface
