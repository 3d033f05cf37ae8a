"""What calls of ``tuner.apply`` are known by: all that decides what they do."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from tuner.application.choice import DEFAULT
from tuner.application.signature import Array, Form
from tuner.errors import InputError
from tuner.model import TunableValue

Settings: TypeAlias = "Mapping[str, TunableValue] | str | None"
"""A configuration, ``default``, or None for the best that is known."""


@dataclass(frozen=True)
class ApplicationCall:
    """The arguments of a call; see ``tuner.apply``.

    Attributes:
        kernel: name in the catalogue.
        forms: of the arrays.
        device: number of the GPU.
        configuration: see ``tuner.apply``.
        sizes: what the arrays do not tell.
    """

    kernel: str
    forms: tuple[Form, ...]
    device: int
    configuration: Settings
    sizes: Mapping[str, int | str]

    def key(self) -> tuple[object, ...]:
        """All that decides what a call does.

        Raises:
            InputError: configuration or sizes are not of a kind that can be compared.
        """
        try:
            settings = _settings_key(self.configuration)
            sizes = frozenset(_sizes_key(self.sizes))
            hash(settings)
        except (TypeError, AttributeError) as error:
            raise InputError(
                f"{self.kernel}: configuration maps tunables to values, or is {DEFAULT!r}; sizes are whole"
                f" numbers or names ({error})"
            ) from error
        if isinstance(settings, str) and settings != DEFAULT:
            raise InputError(
                f"{self.kernel}: configuration is {settings!r}; it must map tunables to values, or be"
                f" {DEFAULT!r}"
            )
        return self.kernel, self.device, self.forms, settings, sizes


def asked_of(
    kernel: str, arrays: Sequence[Array], configuration: Settings, sizes: Mapping[str, int | str]
) -> ApplicationCall:
    """The arguments of a call, by its arrays."""
    forms = tuple(Form(array.shape, array.dtype.name) for array in arrays)
    return ApplicationCall(kernel, forms, int(arrays[0].data.device_id), configuration, sizes)


def seen_key(
    kernel: str,
    outs: int,
    forms: Sequence[object],
    configuration: Settings,
    sizes: Mapping[str, int | str],
) -> tuple[object, ...]:
    """Everything that was checked of a call and cannot change while this is the same.

    Addresses, streams and the current GPU are not in it.
    """
    if not sizes and configuration is None:
        return kernel, outs, *forms
    return kernel, outs, *forms, *_sizes_key(sizes), _settings_key(configuration)


def _sizes_key(sizes: Mapping[str, int | str]) -> list[tuple[str, type, int | str]]:
    """60.0 equals 60 and is no size: what is refused once is refused always."""
    return [(name, type(value), value) for name, value in sizes.items()]


def _settings_key(configuration: Settings) -> object:
    if configuration is None or isinstance(configuration, str):
        return configuration
    return frozenset(configuration.items())
