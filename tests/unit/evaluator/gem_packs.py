"""gem_packs by brute force: records, the expected outputs of every stage, and verdicts. Plain
Python, written from the definitions (domains/gem_packs, schemas/domain.py, ARCHITECTURE.md) and not
from the evaluator: all records are known, and every window is computed from a list of records.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from fractions import Fraction
from math import floor
from typing import Any

from schemas.load import Constant
from schemas.protocol import Judgement, Pipeline, RunPlan, RunRequest, Workload
from services.evaluator.columnar.columns import LIMITS
from services.evaluator.pairing.evaluation import Evaluation
from tests import gem_packs
from tests.unit.evaluator.oracle import phase_of
from tests.unit.evaluator.records import (
    DEADLINE_MS,
    GIVE_UP_MS,
    MEASURE_MS,
    PHASES,
    RUN_ID,
    START_MS,
    Run,
    Totals,
)

# With a stage for the kind of window that no stage of the domain has: tumbling, of both inputs.
GEM_PACKS = gem_packs.with_peak(gem_packs.GEM_PACKS)
CODEC = GEM_PACKS.codec
COUNTRIES = {geo: row[0] for geo, row in (GEM_PACKS.stage("enriched").table or ...).rows.items()}
GRACE_MS = 1_000
Key = tuple[Any, ...]
Fields = dict[str, Any]


@dataclass(frozen=True)
class Event:
    """A purchase or an ad."""

    input: str
    appended_ms: int
    price: float = 10.0
    sequence: int = 0
    time_ms: int = START_MS
    scheduled_us: int = MEASURE_MS * 1_000
    user: str = "u1"
    pack: str = "p1"
    geo: str = "g000"
    partition: int = 0
    offset: int = field(default=-1, compare=False)
    handed_ms: int | None = field(default=None, compare=False)

    @property
    def topic(self) -> str:
        """The input topic."""
        return f"gem_packs.{self.input}"

    @property
    def fields(self) -> Fields:
        """Columns of both inputs."""
        return {
            "user_id": self.user,
            "gem_pack_id": self.pack,
            "price": self.price,
            "geo": self.geo,
            "time": self.time_ms,
            "sequence": self.sequence,
            "run_id": RUN_ID,
        }

    @property
    def encoded(self) -> bytes:
        """The encoded value."""
        fields = self.fields | {"scheduled_at": self.scheduled_us}
        return CODEC.encode(GEM_PACKS.input(self.input).record, fields)


@dataclass(frozen=True)
class Said:
    """A record of an output topic. fields: None for a copy."""

    stage: str
    appended_ms: int
    fields: Fields | None = None
    raw: bytes = b""
    partition: int = 0

    @property
    def topic(self) -> str:
        """The output topic."""
        return f"output.p.{self.stage}"

    @property
    def encoded(self) -> bytes:
        """The encoded value."""
        if self.fields is None:
            return self.raw
        return CODEC.encode(GEM_PACKS.records_of(self.stage)[0], self.fields)

    @property
    def key_on_the_wire(self) -> bytes:
        """The expected key."""
        fields = CODEC.decode(self.raw)[1] if self.fields is None else self.fields
        return str(fields[GEM_PACKS.stage(self.stage).key or "gem_pack_id"]).encode()


@dataclass(frozen=True)
class Due:
    """An expected output, and the records that contribute to it. window_us: the latest scheduled
    time in the windows that were joined."""

    content: Fields | bytes
    events: tuple[Event, ...]
    closed_ms: int | None = None
    copies: int = 1
    window_us: int | None = None

    @property
    def latest_ms(self) -> int:
        return max(one.appended_ms for one in self.events)

    @property
    def due_ms(self) -> int:
        return self.latest_ms if self.closed_ms is None else max(self.latest_ms, self.closed_ms)

    @property
    def scheduled_us(self) -> int:
        return max(one.scheduled_us for one in self.events)


def closed_ms(events: Iterable[Event], inputs: tuple[str, ...], members: list[Event], end_ms: int):
    """When a window with these members is closed."""
    candidates = []
    passed = [
        [one.appended_ms for one in events if one.input == name and one.time_ms >= end_ms]
        for name in inputs
    ]
    if all(passed):
        candidates.append(max(min(times) for times in passed))
    times = sorted(one.appended_ms for one in members)
    for at_ms in times:
        if not any(at_ms < other <= at_ms + DEADLINE_MS for other in times):
            candidates.append(at_ms + DEADLINE_MS)
            break
    return min(candidates)


def windows(events: list[Event], size_s: int, slide_s: int) -> dict[int, list[Event]]:
    """Events by start of their windows."""
    found: dict[int, list[Event]] = {}
    for one in events:
        start_ms = one.time_ms // (1000 * slide_s) * 1000 * slide_s
        while start_ms + 1000 * size_s > one.time_ms:
            found.setdefault(start_ms, []).append(one)
            start_ms -= 1000 * slide_s
    return found


def aggregated(
    events: list[Event],
    inputs: tuple[str, ...],
    size_s: int,
    slide_s: int,
    key: Callable[[Event], str],
    content: Callable[[list[Event]], Fields],
    named: str,
) -> dict[Key, Due]:
    """The expected outputs of an aggregate of inputs."""
    due: dict[Key, Due] = {}
    mine = [one for one in events if one.input in inputs]
    for start_ms, members in windows(mine, size_s, slide_s).items():
        end_ms = start_ms + 1000 * size_s
        at_ms = closed_ms(events, inputs, members, end_ms)
        counted = [one for one in members if one.appended_ms <= at_ms + GRACE_MS]
        for value in {key(one) for one in counted}:
            group = [one for one in counted if key(one) == value]
            if {one.input for one in group} == set(inputs):
                head = {"run_id": RUN_ID, named: value}
                span = {"window_start": start_ms, "window_end": end_ms}
                due[value, start_ms] = Due(head | span | content(group), tuple(group), at_ms)
    return due


Pair = tuple[Event, Event]


@dataclass(frozen=True)
class Span:
    """Length and slide of windows, in seconds."""

    size_s: int
    slide_s: int


@dataclass(frozen=True)
class Queries:
    """The windows of the queries: of the joins, and of the averages of records and of pairs."""

    joined: Span = Span(8, 4)
    averaged: Span = Span(8, 4)

    def domain(self):
        """The domain with these windows."""
        windows = gem_packs.queries_over(
            self.joined.size_s, self.joined.slide_s, "highest", "offers"
        ) | gem_packs.queries_over(
            self.averaged.size_s, self.averaged.slide_s, "average", "dear_average"
        )
        return GEM_PACKS.resolved(windows)


IN_SECONDS = Queries(Span(1, 1), Span(1, 1))


def pairs_of(counted: list[Event], key: Callable[[Event], Key | None]) -> list[Pair]:
    """Purchases and ads with equal keys."""
    ads: dict[Key | None, list[Event]] = {}
    for one in counted:
        if one.input == "ads":
            ads.setdefault(key(one), []).append(one)
    return [
        (one, other)
        for one in counted
        if one.input == "purchases"
        for other in ads.get(key(one), [])
    ]


@dataclass(frozen=True)
class Joined:
    """Purchases and ads joined on a key, without those whose key is None."""

    events: list[Event]
    span: Span
    key: Callable[[Event], Key | None]

    def members(self) -> dict[int, list[Event]]:
        """The records of each window, with or without a partner."""
        mine = [one for one in self.events if self.key(one) is not None]
        return windows(mine, self.span.size_s, self.span.slide_s)

    def closed_ms(self, start_ms: int, members: list[Event]) -> int:
        """When a window with these members is closed."""
        end_ms = start_ms + 1000 * self.span.size_s
        return closed_ms(self.events, ("purchases", "ads"), members, end_ms)

    def pairs(self, members: list[Event], until_ms: int) -> tuple[list[Pair], int]:
        """The pairs of the records of a window that were appended until a time, and the latest
        scheduled time of these records."""
        counted = [one for one in members if one.appended_ms <= until_ms]
        latest_us = max((one.scheduled_us for one in counted), default=0)
        return pairs_of(counted, self.key), latest_us


def country(event: Event) -> str | None:
    """The country of its geography."""
    return COUNTRIES.get(event.geo)


def of_pairs(joined: Joined, content: Callable[[Pair], Fields | None]) -> dict[Key, Due]:
    """The expected outputs of a window_join, or of a filter on it."""
    due: dict[Key, Due] = {}
    for start_ms, members in joined.members().items():
        at_ms = joined.closed_ms(start_ms, members)
        pairs, latest_us = joined.pairs(members, at_ms + GRACE_MS)
        for purchase, ad in pairs:
            fields = content((purchase, ad))
            if fields is None:
                continue
            key = (purchase.sequence, ad.sequence, start_ms)
            head = {"run_id": RUN_ID, "purchase": purchase.sequence, "ad": ad.sequence}
            span = {"window_start": start_ms, "window_end": start_ms + 1000 * joined.span.size_s}
            if key in due:  # of several copies the first pair counts
                first = min((due[key].events, (purchase, ad)), key=_appended)
                due[key] = replace(due[key], events=first, copies=due[key].copies + 1)
            else:
                content_of = head | span | fields
                due[key] = Due(content_of, (purchase, ad), at_ms, window_us=latest_us)
    return due


def _appended(pair: tuple[Event, ...]) -> list[int]:
    return [one.appended_ms for one in pair]


Dear = tuple[Pair, int]  # a pair, and the latest scheduled time in the window it was joined in


def dear_averages(joined: Joined, span: Span) -> dict[Key, Due]:
    """AVG(price) of dear offers by country. A window contains the pairs of the join windows that
    end in it, so a pair counts in each of these. Every record in at least one of the pairs
    contributes once, and so does every copy of it."""
    due: dict[Key, Due] = {}
    of_joins = joined.members()
    size_ms = 1000 * span.size_s
    last_ms = {start_ms: start_ms + 1000 * joined.span.size_s - 1 for start_ms in of_joins}
    starts = {
        start_ms
        for at_ms in last_ms.values()
        for start_ms in range(
            at_ms // (1000 * span.slide_s) * 1000 * span.slide_s,
            at_ms - size_ms,
            -1000 * span.slide_s,
        )
    }
    for start_ms in starts:
        inner = [one for one, at_ms in last_ms.items() if start_ms <= at_ms < start_ms + size_ms]
        members = {id(one): one for each in inner for one in of_joins[each]}
        at_ms = closed_ms(
            joined.events, ("purchases", "ads"), [*members.values()], start_ms + size_ms
        )
        dear: dict[str | None, list[Dear]] = {}
        for each in inner:
            until_ms = min(at_ms, joined.closed_ms(each, of_joins[each])) + GRACE_MS
            pairs, latest_us = joined.pairs(of_joins[each], until_ms)
            for pair in pairs:
                if max(pair[0].price, pair[1].price) > 100:
                    dear.setdefault(country(pair[0]), []).append((pair, latest_us))
        for name, found in dear.items():
            prices = [Fraction(max(one.price, other.price)) for (one, other), _ in found]
            content = {
                "run_id": RUN_ID,
                "country": name,
                "window_start": start_ms,
                "window_end": start_ms + size_ms,
                "average_price": float(sum(prices, Fraction()) / len(prices)),
            }
            contributing = {id(one): one for pair, _ in found for one in pair}
            due[name, start_ms] = Due(
                content,
                tuple(contributing.values()),
                at_ms,
                window_us=max(latest_us for _, latest_us in found),
            )
    return due


def expectations(events: list[Event], queries: Queries = Queries()) -> dict[str, dict[Key, Due]]:
    """The expected outputs of every stage, by output key."""
    due: dict[str, dict[Key, Due]] = {name: {} for name in GEM_PACKS.stage_names}
    for one in events:
        key = (one.sequence,)
        due["ingest"].setdefault(key, Due(one.encoded, (one,)))
        due["parse"].setdefault(key, Due(one.fields, (one,)))
        if country(one) is not None:
            due["enriched"].setdefault(key, Due(one.fields | {"country": country(one)}, (one,)))

    def mean(group: list[Event]) -> Fields:
        return {"average_price": float(sum(Fraction(o.price) for o in group) / len(group))}

    bought, both = ("purchases",), ("purchases", "ads")
    averaged = (queries.averaged.size_s, queries.averaged.slide_s)
    due["revenue"] = aggregated(
        events,
        bought,
        8,
        4,
        lambda one: one.pack,
        lambda group: {"revenue": float(sum(Fraction(one.price) for one in group))},
        "gem_pack_id",
    )
    due["average"] = aggregated(events, bought, *averaged, lambda one: one.geo, mean, "geo")
    due["total"] = aggregated(
        events,
        bought,
        8,
        4,
        lambda one: RUN_ID,
        lambda group: {"revenue": float(sum(Fraction(one.price) for one in group))} | mean(group),
        "run_id",
    )
    due["peak"] = aggregated(
        events,
        both,
        1,
        1,
        lambda one: one.geo,
        lambda group: {"highest_price": max(one.price for one in group)},
        "geo",
    )
    due["conversions"] = of_pairs(
        Joined(events, Span(8, 4), lambda one: (one.user, one.pack)),
        lambda pair: {
            "user_id": pair[0].user,
            "gem_pack_id": pair[0].pack,
            "price": pair[0].price,
        },
    )
    due["highest"] = of_pairs(
        Joined(events, queries.joined, lambda one: (one.geo, one.time_ms)),
        lambda pair: {
            "geo": pair[0].geo,
            "time": pair[0].time_ms,
            "highest_price": max(pair[0].price, pair[1].price),
        },
    )

    def offer(pair: Pair) -> Fields:
        price = max(pair[0].price, pair[1].price)
        return {"country": country(pair[0]), "time": pair[0].time_ms, "price": price}

    offers = Joined(
        events, queries.joined, lambda one: (country(one), one.time_ms) if country(one) else None
    )
    due["offers"] = of_pairs(offers, offer)
    due["dear"] = of_pairs(offers, lambda p: offer(p) if offer(p)["price"] > 100 else None)
    due["dear_average"] = dear_averages(offers, queries.averaged)
    return due


def key_of(said: Said) -> Key:
    """The expected output that an output is matched to."""
    fields = CODEC.decode(said.raw)[1] if said.fields is None else said.fields
    names = {
        "revenue": ("gem_pack_id", "window_start"),
        "average": ("geo", "window_start"),
        "peak": ("geo", "window_start"),
        "total": ("run_id", "window_start"),
        "dear_average": ("country", "window_start"),
        **dict.fromkeys(
            ("conversions", "highest", "offers", "dear"), ("purchase", "ad", "window_start")
        ),
    }.get(said.stage, ("sequence",))
    return tuple(fields[name] for name in names)


def is_same(stage: str, expected: Fields | bytes, actual: Fields | bytes) -> bool:
    """Equality, except for sums and means, which may be added in any order."""
    if isinstance(expected, bytes) or isinstance(actual, bytes):
        return expected == actual
    rough = {"revenue", "average_price"}
    for name, value in expected.items():
        if name in rough:
            if abs(actual[name] - value) > 1e-9 * max(1.0, abs(value)):
                return False
        elif actual[name] != value:
            return False
    return True


def judge(events: list[Event], outputs: list[Said], queries: Queries = Queries()) -> Totals:
    """Totals after everything was read and every deadline has passed."""
    due, totals, count = expectations(events, queries), Totals(), dict[Any, int]()
    for said in sorted(outputs, key=lambda one: (one.appended_ms, one.partition)):
        where, out_ms = (said.stage, key_of(said)), said.appended_ms
        expected = due[said.stage].get(where[1])
        if expected is None or (
            expected.closed_ms is None and out_ms < expected.latest_ms - DEADLINE_MS
        ):
            phase = phase_of(out_ms * 1_000)
            totals.count_verdict(said.stage, phase, out_ms, "unexpected", 1)
            continue
        phase = phase_of(expected.scheduled_us)
        count[where] = count.get(where, 0) + 1
        if count[where] > 1:
            if count[where] > expected.copies:
                totals.count_verdict(said.stage, phase, out_ms, "duplicate", 1)
            continue
        times = [one.appended_ms for one in expected.events]
        by_definition = {
            "latest": out_ms - max(times),
            "mean": floor(out_ms - Fraction(sum(times), len(times)) + Fraction(1, 2)),
            "event_time": out_ms - expected.scheduled_us // 1_000,
        }
        if expected.window_us is not None:
            by_definition["window_time"] = out_ms - expected.window_us // 1_000
        handed = [one.handed_ms for one in expected.events]
        if None not in handed:
            by_definition["processing_time"] = out_ms - max(handed)
        for definition, latency_ms in by_definition.items():
            totals.count_latency(said.stage, definition, phase, out_ms, latency_ms, 1)
        content = said.raw if said.fields is None else said.fields
        verdict = "late" if out_ms > expected.due_ms + DEADLINE_MS else "exact"
        if not is_same(said.stage, expected.content, content):
            verdict = "wrong"
        totals.count_verdict(said.stage, phase, out_ms, verdict, 1)
    for stage, every in due.items():
        for key, expected in every.items():
            if (stage, key) not in count:
                phase = phase_of(expected.scheduled_us)
                totals.count_verdict(stage, phase, expected.latest_ms, "missing", 1)
    return totals.without_nothing()


def a_plan(stages: tuple[str, ...] = GEM_PACKS.stage_names, domain=GEM_PACKS) -> RunPlan:
    """A run of one pipeline `p`: late after 1 s, missing after 2 s."""
    workload = Workload(
        name="test",
        summary="-",
        domain="gem_packs",
        load=Constant(rate_per_second=1),
        phases=PHASES.phases,
        judgement=Judgement(deadline_ms=DEADLINE_MS, give_up_ms=GIVE_UP_MS),
    )
    pipeline = Pipeline(
        name="p", summary="-", engine="spark", mode="real-time", implementation="customised"
    )
    request = RunRequest(
        run_id=RUN_ID,
        workload=workload,
        pipelines=(pipeline,),
        stages=stages,
        domain=domain,
        published={"p": stages},
    )
    return RunPlan(request=request, start_offsets={})


def a_run(*stages: str, domain=GEM_PACKS, limits=LIMITS) -> Run:
    """A run of the given stages, or of all."""
    run = Run()
    run.evaluation = Evaluation(a_plan(stages or domain.stage_names, domain), PHASES, limits=limits)
    return run
