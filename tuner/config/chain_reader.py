"""Reads what makes stages a chain: loops, views of buffers, streams, and stages of libraries."""

from collections.abc import Callable, Collection, Mapping, Sequence

from tuner.config.argument_recipes import ArgumentRecipe, ParameterRecipe, ViewRecipe, values_of
from tuner.config.chain_schema import (
    OPERANDS,
    ChainedTable,
    LibraryStageTable,
    LoopTable,
    OperandTable,
    ViewTable,
)
from tuner.config.library_stage import LibraryStageRecipe, OperandRecipe
from tuner.config.stage_recipe import StageRecipe
from tuner.kernel_files.formulas import Formula, Place, named
from tuner.kernel_files.recipe import LoopRecipe, Predecessor
from tuner.kernel_files.schema import KernelDocument
from tuner.model.errors import suggestion

_LAUNCH = "launch"
_NUMBERS = ("m", "n", "k", "alpha", "beta", "inverse", "threads", "first")


def loop_tables(document: KernelDocument) -> dict[str, LoopTable]:
    """The loops of a file by name; that of ``[launch]`` is called so."""
    launch = document.launch
    if launch is not None and launch.repeat is not None:
        table = LoopTable(repeat=launch.repeat, index=launch.index, swap=launch.swap, derived=launch.derived)
        return {_LAUNCH: table}
    return dict(document.loop)


class ChainReader:
    """Parses the chains of one document.

    Args:
        at: makes the place of a key.
        document: the file.
        names: what expressions may use outside of loops.

    Attributes:
        tables: the loops by name.
        step_names: what the loops name: the numbers of their steps, and expressions of these.
    """

    def __init__(self, at: Callable[[str], Place], document: KernelDocument, names: Collection[str]) -> None:
        self._at = at
        self._names = names
        self._in_launch = document.launch is not None and document.launch.repeat is not None
        self.tables = loop_tables(document)
        self.step_names = list(dict.fromkeys(name for loop in self.tables for name in self._own(loop)))

    def place(self, loop: str) -> Place:
        """The table of a loop."""
        return self._at("[launch]" if self._in_launch else f"[loop.{loop}]")

    def loops(self, buffers: Collection[str]) -> dict[str, LoopRecipe]:
        """The loops by name.

        Raises:
            KernelFileError: an expression is wrong, or no array is called as one that is swapped.
        """
        found = {}
        for name, table in self.tables.items():
            place = self.place(name)
            for buffer in (buffer for pair in table.swap for buffer in pair):
                self._check_buffer(buffer, self._at(f"{place.key} swap"), buffers)
                if sum(pair.count(buffer) for pair in table.swap) > 1:
                    raise self._at(f"{place.key} swap").error(f"{buffer} stands twice")
            repeat = Formula(self._at(f"{place.key} repeat"), table.repeat, self._names)
            derived = named(
                self._at, f"{place.key[:-1]}.derived]", table.derived, [*self._names, table.index]
            )
            swaps = tuple((a, b) for a, b in table.swap)
            found[name] = LoopRecipe(place, repeat, table.index, swaps, derived)
        return found

    def loop_of(self, stage: ChainedTable | None, key: str) -> str:
        """The loop that a stage is part of; empty for none.

        Raises:
            KernelFileError: there is no such loop.
        """
        if stage is None:
            return _LAUNCH if self._in_launch else ""
        if stage.loop is not None and stage.loop not in self.tables:
            choices = ", ".join(self.tables) or "there is none"
            hint = suggestion(stage.loop, self.tables)
            raise self._at(f"{key} loop").error(
                f"no [loop] is called {stage.loop!r}; choose from {choices}{hint}"
            )
        return stage.loop or ""

    def names_in(self, loop: str) -> list[str]:
        """What expressions of stages in a loop may use."""
        return [*self._names, *self._own(loop)]

    def predecessors(self, stage: ChainedTable | None) -> tuple[Predecessor, ...]:
        """What a stage runs after, besides the stages of its own stream."""
        return () if stage is None else tuple(map(Predecessor.parse, stage.after))

    def view(
        self, table: ViewTable, place: Place, arguments: Mapping[str, ArgumentRecipe], loop: str
    ) -> ViewRecipe:
        """A view among the arguments of a stage.

        Raises:
            KernelFileError: there is no such array, or its offset is no expression.
        """
        self._check_buffer(table.buffer, place, [n for n, a in arguments.items() if isinstance(a, str)])
        return ViewRecipe(table.buffer, Formula(place, table.offset, self.names_in(loop)))

    def check_indices(self, arguments: Sequence[ParameterRecipe], place: Place, loop: str) -> None:
        """Refuse values that depend on the step of a loop that the stage is not in.

        Raises:
            KernelFileError: there is one.
        """
        known = self._own(loop)
        for value in (value for argument in arguments for value in values_of(argument)):
            foreign = value.expression.names & set(self.step_names).difference(known)
            if foreign:
                indices = {table.index for table in self.tables.values()}
                which = "numbers the steps of" if foreign <= indices else "belongs to"
                raise place.error(
                    f"{value.place.key} depends on {', '.join(sorted(foreign))}, which {which} a loop that"
                    " this stage is not in"
                )

    def library_stage(
        self, table: LibraryStageTable, key: str, arguments: Mapping[str, ArgumentRecipe]
    ) -> LibraryStageRecipe:
        """A stage that a library runs.

        Raises:
            KernelFileError: an expression is wrong, or there is no such array.
        """
        names = self.names_in(self.loop_of(table, key))
        buffers = [name for name, argument in arguments.items() if isinstance(argument, str)]
        matrices: dict[str, OperandRecipe] = {}
        for name in OPERANDS[table.library]:
            given: OperandTable | ViewTable = getattr(table, name)
            if isinstance(given, ViewTable):
                given = OperandTable(buffer=given.buffer, offset=given.offset)
            place = self._at(f"{key} {name}")
            self._check_buffer(given.buffer, place, buffers)
            matrices[name] = OperandRecipe(
                place,
                given.buffer,
                Formula(place, given.offset, names),
                None if given.ld is None else Formula(place, given.ld, names),
                Formula(place, given.transposed, self._names),
            )
        numbers = {name: getattr(table, name) for name in _NUMBERS}
        return LibraryStageRecipe(
            place=self._at(key),
            table=table,
            matrices=matrices,
            numbers={
                name: Formula(self._at(f"{key} {name}"), value, names)
                for name, value in numbers.items()
                if value is not None
            },
            when=None if table.when is None else Formula(self._at(f"{key} when"), table.when, names),
            stream=Formula(self._at(f"{key} stream"), table.stream, self._names),
            after=self.predecessors(table),
        )

    def checked(
        self, stages: tuple[StageRecipe | LibraryStageRecipe, ...]
    ) -> tuple[StageRecipe | LibraryStageRecipe, ...]:
        """The stages, when loops are made of stages that follow each other and all predecessors are known.

        Raises:
            KernelFileError: they are not.
        """
        closed: set[str] = set()
        current = ""
        for number, stage in enumerate(stages):
            if stage.loop != current:
                closed.add(current)
                current = stage.loop
                if current and current in closed:
                    raise self._at(f"{stage.place.key} loop").error(
                        f"the stages of [loop.{current}] do not follow each other"
                    )
            self._check_after(stage, stages[:number], stages)
        for name in self.tables:
            if name not in {stage.loop for stage in stages}:
                raise self.place(name).error('no stage is in this loop; write loop = "..." in [[stage]]')
        return stages

    def _check_after(
        self,
        stage: StageRecipe | LibraryStageRecipe,
        above: Sequence[StageRecipe | LibraryStageRecipe],
        stages: Sequence[StageRecipe | LibraryStageRecipe],
    ) -> None:
        place = self._at(f"{stage.place.key} after")
        for one in stage.after:
            body = {other.name for other in stages if stage.loop and other.loop == stage.loop}
            if one.before and one.name not in body:
                listed = ", ".join(sorted(body)) or "there is none"
                raise place.error(f"{one.name}@-{one.before}: no stage of this loop is called so ({listed})")
            if not one.before and one.name not in {other.name for other in above}:
                later = one.name in body
                hint = f"; {one.name}@-1 is the one of the step before" if later else ""
                listed = ", ".join(dict.fromkeys(other.name for other in above)) or "there is none"
                raise place.error(f"no stage above is called {one.name!r} ({listed}){hint}")

    def _check_buffer(self, name: str, place: Place, buffers: Collection[str]) -> None:
        if name not in buffers:
            raise place.error(
                f"no buffer is called {name!r}; choose from {', '.join(buffers)}{suggestion(name, buffers)}"
            )

    def _own(self, loop: str) -> list[str]:
        """The names of a loop; none without one."""
        return [self.tables[loop].index, *self.tables[loop].derived] if loop else []
