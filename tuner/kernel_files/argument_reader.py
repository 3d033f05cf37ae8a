"""Reads ``[[argument]]``: arrays, values, structs and tensor maps, by the names that stages call them."""

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tuner.kernel_files.argument_recipe import (
    ArgumentRecipe,
    BufferRecipe,
    ScalarRecipe,
    StructRecipe,
    TensorMapRecipe,
    known_dtype,
)
from tuner.kernel_files.formulas import Formula, Location, Template
from tuner.kernel_files.input_reader import InputRecipe, read_input
from tuner.kernel_files.kernel_file import check_in_place, check_rows
from tuner.kernel_files.schema import (
    DTYPES,
    MAPPED_DTYPES,
    NONE,
    Argument,
    BufferArgument,
    ScalarArgument,
    StructArgument,
    TensorMapArgument,
)
from tuner.model.errors import suggestion
from tuner.model.plan import BufferRole

Arguments = dict[str, ArgumentRecipe]
_ZEROS = re.compile(r"\s*constant\(\s*0(\.0*)?\s*\)\s*")


@dataclass(frozen=True)
class ArgumentReader:
    """Parses the arguments of one document.

    Attributes:
        at: makes the location of a key.
        sizes: names that the types of arrays may use.
        names: names that everything else may use.
        folder: paths of data are relative to it.
        step_names: names of loops, which the values of scalars may use, too.
        restores: whether ``inout`` arrays are restored unless the file says otherwise.
    """

    at: Callable[[str], Location]
    sizes: Collection[str]
    names: Collection[str]
    folder: Path
    step_names: Collection[str] = ()
    restores: bool = False

    def read(self, tables: Sequence[Argument]) -> tuple[tuple[BufferRecipe, ...], Arguments]:
        """The arrays, and all that a stage can take by name, in the order of the file.

        Raises:
            KernelFileError: a key is wrong, a name stands twice, or no array is written.
        """
        keys = {f"[[argument]] {number} ({_name(a)})": a for number, a in enumerate(tables, 1)}
        buffers = {a.buffer: self._buffer(key, a) for key, a in keys.items() if isinstance(a, BufferArgument)}
        by_name = {a.buffer: a for a in keys.values() if isinstance(a, BufferArgument)}
        arguments: Arguments = {}
        for key, argument in keys.items():
            name = _name(argument)
            if name in arguments:
                raise self.at(key).error("an argument of this name stands above")
            if isinstance(argument, ScalarArgument):
                stepped = [*self.names, *self.step_names]
                types = (*DTYPES, NONE) if argument.dtype == NONE else DTYPES
                dtype = self._dtype(f"{key} dtype", argument.dtype, types, self.names)
                value = Formula(self.at(f"{key} value"), argument.value, stepped)
                arguments[name] = ScalarRecipe(name, dtype, value)
            elif isinstance(argument, StructArgument):
                arguments[name] = self._struct(key, argument)
            elif isinstance(argument, TensorMapArgument):
                arguments[name] = self._tensor_map(key, argument, buffers)
            else:
                check_in_place(self.at(f"{key} in_place"), argument, by_name)
                arguments[name] = name
        constants = {buffer for _, buffer in self.symbols(tables).values()}
        arguments = {name: argument for name, argument in arguments.items() if name not in constants}
        if not any(buffer.role in ("out", "inout") for buffer in buffers.values()):
            raise self.at("[[argument]]").error('no buffer has role "out" or "inout"; nothing can be checked')
        return tuple(buffers.values()), arguments

    def symbols(self, tables: Sequence[Argument]) -> dict[str, tuple[str, str]]:
        """Of the arrays that are no parameters: key of the argument -> variable of the source, and array."""
        return {
            f"[[argument]] {number} ({_name(a)})": (a.symbol or a.buffer, a.buffer)
            for number, a in enumerate(tables, 1)
            if isinstance(a, BufferArgument) and a.role == "constant"
        }

    def _struct(self, key: str, argument: StructArgument) -> StructRecipe:
        fields = []
        for name, text in argument.fields.items():
            location = self.at(f"{key} fields.{name}")
            dtype, equals, value = (part.strip() for part in text.partition("="))
            if not (equals and value):
                raise location.error(
                    f'{text!r} does not have the form "TYPE = EXPRESSION", as in "int32 = N"'
                )
            template = self._dtype(f"{key} fields.{name}", dtype, DTYPES, self.names)
            fields.append(
                ScalarRecipe(name, template, Formula(location, value, [*self.names, *self.step_names]))
            )
        return StructRecipe(argument.scalar, tuple(fields))

    def _buffer(self, key: str, argument: BufferArgument) -> BufferRecipe:
        shape = tuple(Formula(self.at(f"{key} shape"), axis, self.names) for axis in argument.shape)
        dtype = self._dtype(f"{key} dtype", argument.dtype, DTYPES, self.sizes)
        role: BufferRole = "in" if argument.role == "constant" else argument.role
        if argument.restored is not None and role != "inout":
            raise self.at(f"{key} restored").error(
                f"only an inout array is restored, and this is {argument.role}"
            )
        restored = self.restores if argument.restored is None else argument.restored
        check_rows(self.at(f"{key} row_pitch"), argument, shape, [*self.sizes, "batch"])
        return BufferRecipe(
            *(argument.buffer, role, dtype, shape),
            input=self._input(key, argument, role),
            restored=restored and role == "inout",
            row_pitch=argument.row_pitch,
            in_place=argument.in_place,
            cleared=self._cleared(key, argument, role),
        )

    def _cleared(self, key: str, argument: BufferArgument, role: BufferRole) -> bool:
        """Return True if an output begins with zeros."""
        cleared = (
            role == "out" and argument.input is not None and _ZEROS.fullmatch(argument.input) is not None
        )
        if cleared and (argument.row_pitch or argument.in_place):
            what = (
                "rows may lie apart" if argument.row_pitch else f"memory may be that of {argument.in_place}"
            )
            raise self.at(f"{key} input").error(f"an array whose {what} is not set to zero")
        return cleared

    def _input(self, key: str, argument: BufferArgument, role: BufferRole) -> InputRecipe | None:
        if argument.input is None:
            return None
        location = self.at(f"{key} input")
        if role == "out" and _ZEROS.fullmatch(argument.input):
            return None
        if role not in ("in", "inout"):
            zeros = "; out takes constant(0): zeros before every run" if role == "out" else ""
            raise location.error(
                f"the array has the role {argument.role!r}; only in and inout are given values{zeros}"
            )
        return read_input(location, argument.input, [*self.sizes, "batch"], self.folder)

    def _tensor_map(
        self, key: str, argument: TensorMapArgument, buffers: Mapping[str, BufferRecipe]
    ) -> TensorMapRecipe:
        if argument.buffer not in buffers:
            raise self.at(f"{key} buffer").error(
                f"no buffer is called {argument.buffer!r}; choose from {', '.join(buffers)}"
                f"{suggestion(argument.buffer, buffers)}"
            )

        def pair(field: str, values: Sequence[int | str]) -> tuple[Formula, Formula]:
            inner, outer = (Formula(self.at(f"{key} {field}"), value, self.names) for value in values)
            return inner, outer

        return TensorMapRecipe(
            location=self.at(key),
            buffer=buffers[argument.buffer],
            element=self._dtype(f"{key} element", argument.element, MAPPED_DTYPES, self.names),
            dims=pair("dims", argument.dims),
            box=pair("box", argument.box),
            promotion=Formula(self.at(f"{key} promotion"), argument.promotion, self.names),
        )

    def _dtype(self, key: str, text: str, dtypes: tuple[str, ...], names: Collection[str]) -> Template:
        location = self.at(key)
        template = Template(location, text, names)
        if template.is_plain:
            known_dtype(location, text, dtypes)
        return template


def _name(argument: Argument) -> str:
    if isinstance(argument, ScalarArgument | StructArgument):
        return argument.scalar
    return argument.tensor_map if isinstance(argument, TensorMapArgument) else argument.buffer
