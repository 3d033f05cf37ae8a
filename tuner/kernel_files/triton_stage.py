"""Stages of Triton with all expressions parsed: options, constants, and what arguments are compiled for."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from tuner.kernel_files.formulas import Environment, Location, Template
from tuner.kernel_files.schema import NONE, KernelTable, LaunchTable
from tuner.kernel_files.triton_source import (
    TritonFunction,
    TritonParameter,
    has_type,
    specialised,
    triton_function,
)
from tuner.model.errors import suggestion
from tuner.model.expressions.operations import NoValue
from tuner.model.plan import (
    Buffer,
    BufferView,
    Scalar,
    Source,
    Specialisation,
    StageArgument,
    TunableValue,
)

OPTIONS: Mapping[str, tuple[int, ...] | range | None] = {
    "num_warps": (1, 2, 4, 8, 16, 32),
    "num_stages": range(65),
    "num_ctas": (1, 2, 4, 8, 16),
    "maxnreg": range(256),
    "enable_fp_fusion": None,
}
"""Options of Triton that a kernel may set, with their values; None for true and false."""

STATED: Mapping[str, int] = {"num_warps": 4, "num_stages": 3, "num_ctas": 1, "enable_fp_fusion": True}
"""Options that are always stated, with what Triton takes up to 3.9 where nothing is said."""

LEAST_ARCHITECTURE = 75
_CLUSTER_ARCHITECTURE = 90
_WARP = 32
_UNUSED = ("block", "shared_bytes", "resident", "cluster", "cooperative")  # keys of a launch: Triton decides


@dataclass(frozen=True)
class TritonStage:
    """A stage of one configuration: all that its compiler is told, and what is left to be passed."""

    options: tuple[str, ...]
    specialisation: tuple[Specialisation, ...]
    arguments: tuple[StageArgument, ...]
    block: tuple[int, int, int]
    least_architecture: int


@dataclass(frozen=True)
class TritonRecipe:
    """A jitted function as a stage launches it.

    Attributes:
        location: of the stage.
        options: as the file has them, ``num_warps={W}``, by name.
        names: of the tunables, sizes and expressions that options and constants take their values from.
    """

    location: Location
    function: TritonFunction
    options: Mapping[str, Template]
    names: tuple[str, ...]

    def evaluated(
        self, env: Environment, arguments: Sequence[StageArgument], buffers: Mapping[str, Buffer]
    ) -> TritonStage:
        """Evaluate the stage for one configuration.

        Raises:
            KernelFileError: an option has a value that Triton does not take, or an argument is of a type that
                its parameter does not.
        """
        options = self._options(env)
        specialisation, passed = [], []
        for one, argument in self._pairs(arguments):
            self._check_type(one, argument, buffers)
            own = specialised(one, argument, buffers, told=self.function.asks_arguments)
            specialisation.append(own)
            if own.dtype and argument is not None:
                passed.append(argument)
        for one in self.function.constants:
            value = env[one.name] if one.name in self.names else NoValue("")
            if not isinstance(value, NoValue):
                specialisation.append(Specialisation(one.name, constant=value))
        least = LEAST_ARCHITECTURE if options["num_ctas"] == 1 else _CLUSTER_ARCHITECTURE
        texts = tuple(
            f"{name}={str(value).lower() if OPTIONS[name] is None else int(value)}"
            for name, value in options.items()
        )
        return TritonStage(
            texts, tuple(specialisation), tuple(passed), (_WARP * options["num_warps"], 1, 1), least
        )

    def _options(self, env: Environment) -> dict[str, int]:
        values: dict[str, int] = dict(STATED)
        for name, template in self.options.items():
            text = template.fill(env).partition("=")[2].strip()
            known: TunableValue = (
                int(text) if text.isdecimal() else {"true": True, "false": False}.get(text, text)
            )
            values[name] = self._value(template.location, name, known)
        for name in self.names:
            value = env[name]
            if name in OPTIONS and not isinstance(value, NoValue):
                values[name] = self._value(self.location, name, value)
        if values.get("maxnreg") == 0:  # no limit
            del values["maxnreg"]
        return values

    @staticmethod
    def _value(location: Location, name: str, value: TunableValue) -> int:
        choices = OPTIONS[name]
        if choices is None and value in (True, False):
            return bool(value)
        if choices is not None and isinstance(value, int) and value in choices:
            return value
        if choices is None:
            listed = "true or false"
        elif isinstance(choices, range):
            listed = f"a whole number from {choices[0]} to {choices[-1]}"
        else:
            listed = f"one of {', '.join(map(str, choices))}"
        raise location.error(f"{name} is {value!r}; Triton takes {listed}")

    def _pairs(
        self, arguments: Sequence[StageArgument]
    ) -> list[tuple[TritonParameter, StageArgument | None]]:
        """Parameters with their arguments; defaults for those that are left out at the end."""
        pairs: list[tuple[TritonParameter, StageArgument | None]] = []
        for number, one in enumerate(self.function.passed):
            pairs.append((one, arguments[number] if number < len(arguments) else one.default_argument()))
        return pairs

    def _check_type(
        self, one: TritonParameter, argument: StageArgument | None, buffers: Mapping[str, Buffer]
    ) -> None:
        if argument is None or (isinstance(argument, Scalar) and argument.dtype == NONE):
            return
        if isinstance(argument, Scalar):
            if one.dtype and one.dtype != argument.dtype:
                raise self.location.error(
                    f"{one.name} of {self.function.name} is annotated as {one.dtype}, and its argument is"
                    f" {argument.dtype}"
                )
            if isinstance(one.default, float) and not argument.dtype.startswith(("float", "bfloat")):
                raise self.location.error(
                    f"{one.name} of {self.function.name} is {one.default} by default, and its argument is"
                    f" {argument.dtype}; float32 would be right"
                )
            dtype = argument.dtype
        elif isinstance(argument, str | BufferView):
            dtype = buffers[argument if isinstance(argument, str) else argument.buffer].dtype
            if one.dtype:
                raise self.location.error(
                    f"{one.name} of {self.function.name} is annotated as {one.dtype}, and its argument is an"
                    " array"
                )
        else:
            raise self.location.error(
                f"{one.name} of {self.function.name}: structs and tensor maps cannot be passed to Triton; a"
                " kernel makes a descriptor by tl.make_tensor_descriptor"
            )
        if not has_type(dtype):
            raise self.location.error(f"{one.name} of {self.function.name}: Triton has no type {dtype}")


def triton_recipe(
    *,
    location: Location,
    entry_location: Location,
    source: Source,
    entry: str | None,
    options: Sequence[Template],
    arguments: Sequence[str],
    names: Collection[str],
    tunables: Collection[str] = (),
) -> TritonRecipe:
    """A stage of Triton.

    Args:
        location: of the stage.
        entry_location: of the key that names the function.
        source: with the function.
        entry: its name; None for the only one.
        options: of the file.
        arguments: names of the arguments, in their order.
        names: all that have a value in every configuration.
        tunables: those of a file with no other stage, whose names are those of constants or options.

    Raises:
        KernelFileError: there is no such function, an option or a tunable is not known, or parameters and
            arguments do not fit.
    """
    function = triton_function(source, entry, entry_location)
    stated: dict[str, Template] = {}
    constants = {one.name for one in function.constants}
    for option in options:
        name, equals, _ = option.begin.partition("=")
        name = name.strip()
        if name not in OPTIONS or not equals:
            raise option.location.error(
                f"{option.begin!r} is no option of Triton; write NAME=VALUE with one of {', '.join(OPTIONS)}"
                f"{suggestion(name, OPTIONS)}"
            )
        if name in names:
            raise option.location.error(f"{name} is stated twice: {name} is a name with a value itself")
        stated[name] = option
    _check_arguments(function, arguments, location)
    known = tuple(name for name in names if name in constants or name in OPTIONS)
    unstated = [name for name in OPTIONS if name not in known and name not in stated]
    for name in tunables:
        if name not in known and (near := suggestion(name, unstated)):
            raise location.error(
                f"the tunable {name} is no tl.constexpr of {function.name} and no option of Triton{near}"
            )
    for one in function.constants:
        given = function.heuristics is None or one.name in function.heuristics
        if one.name not in known and not one.has_default and not given:
            raise location.error(
                f"{one.name}, a tl.constexpr of {function.name}, has no value: call a tunable, a size or"
                f" a derived name so{suggestion(one.name, names)}"
            )
    return TritonRecipe(location, function, stated, known)


def _check_arguments(function: TritonFunction, arguments: Sequence[str], location: Location) -> None:
    """Hold names and number of arguments against the parameters."""
    parameters = [one.name for one in function.passed]
    needed = [one.name for one in function.passed if not one.may_be_left_out]
    listed = ", ".join(parameters) or "none"
    constants = {one.name for one in function.constants}
    for name in arguments:
        if name in constants:
            raise location.error(
                f"{name} is a tl.constexpr of {function.name}, and takes no argument: call a tunable, a size"
                " or a derived name so"
            )
    least = max((parameters.index(name) + 1 for name in needed), default=0)
    if not least <= len(arguments) <= len(parameters):
        raise location.error(
            f"{function.name} takes {len(parameters)} arguments beside constants ({listed}), and"
            f" {len(arguments)} are given ({', '.join(arguments)})"
        )
    for number, (name, parameter) in enumerate(zip(arguments, parameters, strict=False), 1):
        if name != parameter and name in parameters:
            raise location.error(
                f"argument {number} is called {name}, and parameter {number} of {function.name} is"
                f" {parameter}: write the arguments in the order of the parameters ({listed})"
            )


def check_keys(kernel: KernelTable, launch: LaunchTable, key: str, at: Callable[[str], Location]) -> None:
    """Refuse the keys of CUDA C++ for a stage of Triton.

    Args:
        kernel: whose folders are for CUDA C++; those of a chain may be for its other stages.
        launch: of the stage.
        key: of a stage of a chain; empty for the only launch.
        at: makes the location of a key.

    Raises:
        KernelFileError: there is one.
    """
    for folders in () if key else ("headers", "include_paths"):
        if getattr(kernel, folders):
            raise at(f"[kernel] {folders}").error(
                "is for CUDA C++, and the source is of Triton: leave it out"
            )
    for name in _UNUSED:
        if getattr(launch, name) != type(launch).model_fields[name].default:
            raise at(f"{key or '[launch]'} {name}").error("is for CUDA C++: Triton decides it; leave it out")
