"""The verb `compare`: the comparable figures of two sides, other differences, and significance."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from rich.console import Console
from rich.table import Table
from rich.text import Text

from analysis import comparison, described
from analysis.comparability import Facts, differed, left_out, needed_of
from analysis.comparison import FigureDifference, Side
from schemas.report import Described, Report
from services.console.report.build import build_report
from services.console.report.words import interleaved_sentences
from services.console.terminal import titled_table
from services.readmodel import runs, seconds
from services.runtime.clickhouse import QueryError

SHORT = {"core-seconds per million records": "core-s/M", "records/s": "/s"}  # units in a table


@dataclass(frozen=True)
class Pair:
    """Two pipelines, or two sides of runs of one. facts: of the runs of each side; same_run: both
    are pipelines of the same run; pairs: how many the comparison has."""

    old: Side
    new: Side
    facts: tuple[Sequence[Facts], Sequence[Facts]]
    same_run: bool
    pairs: int = 1

    @property
    def runs(self) -> list[Facts]:
        """The runs of both sides, each once."""
        return list({each.run_id: each for side in self.facts for each in side}.values())

    @property
    def doubts(self) -> list[str]:
        """Why a difference may have a cause other than the pipeline."""
        doubts = [doubt for run in self.runs for doubt in run.doubts()]
        rates = {rate for run in self.runs if (rate := run.rate_after_search)}
        if len(rates) > 1:
            doubts.append(f"the latencies are of the rates found, {' and '.join(sorted(rates))}")
        return doubts

    @property
    def also_different(self) -> list[str]:
        """Other differences between the sides."""
        before, after = (
            [each.circumstances(side.name) for each in of]
            for side, of in zip((self.old, self.new), self.facts, strict=True)
        )
        return differed(before, after)

    @property
    def may_be_real(self) -> bool:
        """Whether a difference can apply beyond these runs."""
        return not self.doubts and (self.same_run or comparison.by_runs(self.old, self.new))

    def decided(self) -> list[FigureDifference]:
        """The figures that the decision uses."""
        return comparison.differences(self.old, self.new, same_run=self.same_run, pairs=self.pairs)

    def said(self, figure_differences: Sequence[FigureDifference]) -> str:
        """The decision in words."""
        text = comparison.conclusion(
            self.old, self.new, figure_differences, same_run=self.same_run, doubts=self.doubts
        )
        return f"{text} {needed_of(run.report for run in self.runs)}".rstrip()

    def described(self, *, whole: bool) -> list[Described]:
        """The figures beside the decision. whole: also those of single stages."""
        before, after = ([each.report for each in of] for of in self.facts)
        stages = comparison.common_stages(self.old, self.new)
        rows = described.of_reports((self.old.name, before), (self.new.name, after), stages)
        if not whole:
            return [row for row in rows if not row.stage]
        latencies = comparison.other_latencies(self.old, self.new, same_run=self.same_run)
        return [*map(_row, latencies), *rows]


@dataclass(frozen=True)
class Comparison:
    """The comparison of some runs. refused: why a run is left out, by run id; interleaved: the
    report of a run whose pipelines took turns, which has decided, else None."""

    refused: dict[str, str]
    pairs: list[Pair]
    interleaved: Report | None = None


ByStage = dict[str, dict[str, seconds.BySecond]]


class KnownRuns(Protocol):
    """The runs that can be compared. Both methods raise QueryError."""

    def facts(self, run_id: str) -> Facts:
        """What decides whether a run is comparable."""

    def latencies(self, run_id: str) -> ByStage:
        """Its latencies by pipeline, stage and second."""


@dataclass(frozen=True)
class StoredRuns:
    """The runs in the store at a URL."""

    url: str

    def facts(self, run_id: str) -> Facts:
        """See KnownRuns."""
        versions = runs.engine_versions(self.url, run_id)
        return Facts(build_report(self.url, run_id), runs.request_of(self.url, run_id), versions)

    def latencies(self, run_id: str) -> ByStage:
        """See KnownRuns."""
        return seconds.latencies(self.url, run_id)


def compared(known: KnownRuns, before: Sequence[str], after: Sequence[str] | None) -> Comparison:
    """Two sides of runs, or the pipelines of one run if there is no second side. Raises QueryError
    if nothing is comparable."""
    before, after = list(dict.fromkeys(before)), after and list(dict.fromkeys(after))
    if after is None and len(before) > 1:
        raise QueryError("Several runs need a second side: ./tidegauge compare RUN,RUN RUN,RUN")
    both = [run_id for run_id in before if run_id in (after or ())]
    if both and len([*before, *(after or ())]) > 2:
        raise QueryError(f"{both[0]} is on both sides.")
    facts_of = {run_id: known.facts(run_id) for run_id in [*before, *(after or ())]}
    refused = left_out(list(facts_of.values()))
    sides = [[run_id for run_id in side if run_id not in refused] for side in (before, after or ())]
    if after is None:
        run_id = sides[0][0]
        if facts_of[run_id].report.interleaved:
            return Comparison(refused, [], facts_of[run_id].report)
        latencies = known.latencies(run_id)
        facts = [[facts_of[run_id]]] * 2
        return Comparison(refused, _pairs(comparison.pipelines_of(latencies), facts, same_run=True))
    if not sides[1]:
        none = "Nothing to compare: no run is left on the second side."
        raise QueryError(" ".join([*refused.values(), none]))
    read = [[known.latencies(run_id) for run_id in side] for side in sides]
    facts = [[facts_of[run_id] for run_id in side] for side in sides]
    return Comparison(refused, _pairs(comparison.pairs_of(*read), facts, same_run=False))


def _pairs(
    sides: Sequence[tuple[Side, Side]], facts: Sequence[Sequence[Facts]], *, same_run: bool
) -> list[Pair]:
    """The pairs with the facts of the runs that have their pipelines."""

    def having(of: Sequence[Facts], side: Side) -> list[Facts]:
        return [each for each in of if each.has(side.name)]

    return [
        Pair(old, new, (having(facts[0], old), having(facts[1], new)), same_run, len(sides))
        for old, new in sides
    ]


def show_comparison(console: Console, result: Comparison, *, whole: bool = False) -> None:
    """Print how two sides of runs differ, or the pipelines of one run. whole: with a table of the
    described figures."""
    for reason in result.refused.values():
        console.print(reason, soft_wrap=True)
    if result.interleaved is not None:
        sentences = interleaved_sentences(result.interleaved)
        console.print(*sentences, sep="\n", soft_wrap=True)
        turns = result.interleaved.interleaved
        if whole and turns is not None and turns.described:
            console.print(table(turns.described))
    for pair in result.pairs:
        _show(console, pair, whole=whole)


def as_json(comparison: Comparison) -> dict[str, Any]:
    """`left_out`: why, by run id; `comparisons`, one for each pair of pipelines; `interleaved`: as
    in the report of a run whose pipelines took turns, else null.

    A comparison has the pipeline and runs of both sides, `by`: what the intervals come from,
    `differences`: the decided figures, jointly with `confidence`, `described`: the others, each
    with that confidence by itself (rows: `described.row`), and `said`: the decision in words.
    """
    turns = comparison.interleaved and comparison.interleaved.interleaved
    return {
        "left_out": comparison.refused,
        "comparisons": [_pair_as_json(pair) for pair in comparison.pairs],
        "interleaved": turns and turns.as_json(),
    }


def _pair_as_json(pair: Pair) -> dict[str, Any]:
    decided = pair.decided()
    sides = {
        name: {"pipeline": side.name, "runs": [fact.run_id for fact in facts]}
        for name, side, facts in zip(
            ("before", "after"), (pair.old, pair.new), pair.facts, strict=True
        )
    }
    return sides | {
        "by": "runs" if comparison.by_runs(pair.old, pair.new) else "seconds",
        "confidence": comparison.CONFIDENCE,
        "also_different": pair.also_different,
        "doubts": pair.doubts,
        "differences": [
            _row(each).as_json() | {"real": each.is_real and pair.may_be_real} for each in decided
        ],
        "described": [row.as_json() for row in pair.described(whole=True)],
        "said": pair.said(decided),
    }  # fmt: skip


def _row(figure_difference: FigureDifference) -> Described:
    return described.row(
        figure_difference.stage,
        figure_difference.figure,
        figure_difference.before,
        figure_difference.after,
        figure_difference.interval,
    )


def _show(console: Console, pair: Pair, *, whole: bool) -> None:
    console.print(Text.assemble((pair.new.name, "bold"), f" against {pair.old.name}"))
    if other := pair.also_different:
        console.print(f"  Also different: {'; '.join(other)}.", soft_wrap=True)
    result = pair.decided()
    for difference in result:
        sentence = comparison.sentence(difference, may_be_real=pair.may_be_real)
        console.print(f"  {sentence}", soft_wrap=True)
    rows = pair.described(whole=whole)
    for row in rows if not whole else ():
        text = f"  Described only: {described.in_words(row)}."
        console.print(text, soft_wrap=True)
    if whole and rows:
        console.print(table(rows))
    console.print(pair.said(result), soft_wrap=True)


def table(rows: Sequence[Described]) -> Table:
    """Described figures, at most 80 columns wide."""
    result = titled_table("described only, each with a 95 % interval of its own", style=None)
    for column in ("stage", "figure"):
        result.add_column(column, overflow="fold")
    for column in ("before", "after", "difference", "interval"):
        result.add_column(column, justify="right", overflow="fold")
    for row in rows:
        bounds = (row.low, row.high)
        between = " to ".join(described.plain(bound, "+") for bound in bounds if bound is not None)
        levels = map(described.plain, (row.before, row.after))
        figure = f"{described.name_of(row)}, {SHORT.get(row.unit, row.unit)}"
        result.add_row(row.stage, figure, *levels, described.step(row), between or "–")
    return result
