"""Keys of ``tuner.apply`` calls: everything that decides what a call does."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from tuner.application.borrowing import BorrowedArray
from tuner.application.choice import DEFAULT
from tuner.application.keys import ArrayForm, row_pitch, taken
from tuner.kernel_files.kernel_file import KernelFile
from tuner.model.errors import InputError
from tuner.model.plan import RowLayout, TunableValue

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
        output_pitches: elements from one row to the next of each output that is given, None for those that
            are contiguous; empty where all are, or none is given.
        replaced: place of the input whose memory the only output is; None where there is none.
    """

    kernel: str
    forms: tuple[ArrayForm, ...]
    device: int
    configuration: Settings
    sizes: Mapping[str, int | str]
    output_pitches: tuple[int | None, ...] = ()
    replaced: int | None = None

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
        return self.kernel, self.device, self.forms, settings, sizes, self.output_pitches, self.replaced


def asked_of(
    kernel: str,
    arrays: Sequence[BorrowedArray],
    outs: Sequence[BorrowedArray],
    configuration: Settings,
    sizes: Mapping[str, int | str],
) -> ApplicationCall:
    """The arguments of a call, by its arrays and the outputs that are given."""
    held = [array.array for array in arrays]
    pitches = tuple(row_pitch(out.array) for out in outs)
    return ApplicationCall(
        kernel,
        tuple(ArrayForm(array.array.shape, array.dtype, row_pitch(array.array)) for array in arrays),
        int(held[0].data.device_id),
        configuration,
        sizes,
        () if all(pitch is None for pitch in pitches) else pitches,
        replaced_place([array.data.ptr for array in (*held, *(out.array for out in outs))], len(outs)),
    )


def replaced_place(addresses: Sequence[int], outs: int) -> int | None:
    """Place of the input that the only output begins at; None where it begins elsewhere.

    Args:
        addresses: of inputs, then outputs.
        outs: how many of them are outputs.
    """
    if outs != 1:
        return None
    place = addresses.index(addresses[-1])
    return place if place < len(addresses) - 1 else None


def layout_of(file: KernelFile, asked: ApplicationCall) -> RowLayout:
    """Return the memory layout of the rows of a call's arrays.

    An output that begins where an input does that it cannot replace does not count: the two overlap.

    Raises:
        InputError: rows lie apart and the kernel takes none that do.
    """
    inputs = taken(file)
    outputs = [buffer for buffer in file.recipe.buffers if buffer.role == "out"]
    of_inputs = [form.pitch for form in asked.forms]
    pitches = []
    for buffer, pitch in zip([*inputs, *outputs], [*of_inputs, *asked.output_pitches], strict=False):
        if pitch is None:
            continue
        if not buffer.row_pitch:
            label = "out" if buffer.role == "out" else buffer.name
            raise InputError(
                f"{file.name}: {label} is not contiguous ({pitch} elements from one row to the next), and"
                " this kernel takes no rows that lie apart; cupy.ascontiguousarray copies it to one that is"
            )
        pitches.append((buffer.name, pitch))
    if asked.replaced is None or len(outputs) != 1:
        return RowLayout(tuple(pitches))
    alike = of_inputs[asked.replaced] == (asked.output_pitches[0] if asked.output_pitches else None)
    return RowLayout(tuple(pitches), alike and outputs[0].in_place == inputs[asked.replaced].name)


def seen_key(
    kernel: str,
    outs: tuple[int, int | None],
    forms: Sequence[object],
    configuration: Settings,
    sizes: Mapping[str, int | str],
) -> tuple[object, ...]:
    """Everything that was checked of a call and cannot change while this is the same.

    ``outs`` is the number of outputs and the place of the input that one replaces. Addresses, streams and
    the current GPU are not in the key.
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
