"""Column names of a stage's inputs in its rows."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from operator import or_

from pyspark.sql import Column
from pyspark.sql import functions as F

from schemas.domain import DomainSpec, InputSpec, StageSpec
from services.spark_pipeline.wire import fields_of, is_nullable

INPUT = "_input"  # input of a row, in rows of several inputs
EVENT_TIME = "_event_time"  # event time, if inputs name it differently


@dataclass(frozen=True)
class Inputs:
    """The inputs of a stage.

    Records of several inputs are rows of one DataFrame: columns with the same name are merged, and
    INPUT holds the input of a row.
    """

    domain: DomainSpec
    specs: tuple[InputSpec, ...]

    @classmethod
    def of(cls, domain: DomainSpec, stage: str) -> "Inputs":
        """The inputs of a stage of a domain."""
        return cls(domain, domain.inputs_of(stage))

    def only(self, spec: InputSpec) -> "Inputs":
        """One input alone, as one source reads it."""
        return Inputs(self.domain, (spec,))

    @property
    def names(self) -> tuple[str, ...]:
        """Names, in the domain's order."""
        return tuple(spec.name for spec in self.specs)

    @property
    def topics(self) -> tuple[str, ...]:
        """Topics, in the same order."""
        return tuple(spec.topic for spec in self.specs)

    @property
    def event_time(self) -> str:
        """The event-time column of the rows."""
        columns = {spec.event_time for spec in self.specs}
        return self.specs[0].event_time if len(columns) == 1 else EVENT_TIME

    @property
    def joined_time(self) -> str:
        """The event-time column of a join's outputs: that of its first input."""
        return self.specs[0].event_time

    def fields(self, name: str) -> dict[str, object]:
        """Avro types of an input's columns, by name."""
        return fields_of(self.domain.input(name).record, self.domain.codec)

    def column(self, sources: Sequence[str]) -> Column:
        """The value of these sources in each row: `INPUT.COLUMN`, null in rows of other inputs, or
        a plain COLUMN. Raises ValueError if a row would have two values."""
        named: dict[str, list[str]] = {}
        for source in sources:
            if "." not in source:
                return F.col(source)
            name, column = source.split(".")
            named.setdefault(column, []).append(name)
        names = [name for each in named.values() for name in each]
        if len(names) > len(set(names)):
            raise ValueError(f"{', '.join(sources)}: an aggregate takes one column of each input")
        values = [self._shared(column, inputs) for column, inputs in named.items()]
        return values[0] if len(values) == 1 else F.coalesce(*values)

    def marker(self, name: str) -> Column:
        """A column that is non-null exactly in rows of an input."""
        column = self.own_column(name)
        return F.when(F.col(INPUT) == name, F.lit(1)) if column is None else F.col(column)

    def own_column(self, name: str) -> str | None:
        """A column that every record of this input has, and no other input."""
        for column, kind in self.fields(name).items():
            if not is_nullable(kind) and self._having(column) == [name]:
                return column
        return None

    def found_by(self, stage: StageSpec, name: str) -> str | None:
        """An aggregate of the stage that is non-null only if the input has a record in the
        group."""
        for aggregate in stage.aggregates:
            columns = [source.split(".") for source in aggregate.of]
            if aggregate.function not in ("count", "count_distinct") and all(
                len(parts) == 2
                and parts[0] == name
                and parts[1] in self.fields(name)
                and not is_nullable(self.fields(name)[parts[1]])
                for parts in columns
            ):
                return aggregate.column
        return None

    def _having(self, column: str) -> list[str]:
        """The inputs whose record has a column; all inputs if it comes from a lookup."""
        result = [name for name in self.names if column in self.fields(name)]
        return result or list(self.names)

    def _shared(self, column: str, inputs: list[str]) -> Column:
        if set(self._having(column)) <= set(inputs):
            return F.col(column)
        is_one = reduce(or_, (self.marker(name).isNotNull() for name in inputs))
        return F.when(is_one, F.col(column))
