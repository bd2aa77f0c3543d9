"""A watch of another broker goes on while each part of its own stack is killed in turn: its counts
are those of a brute force over both topics."""

from pathlib import Path

import pytest

from services.definitions.watches import keep_watch
from tests.faults.breakable_stack import breakable_stack, eventually
from tests.integration.kafka_broker import running_broker
from tests.integration.watched_bus import a_watch, await_conclusion, concluded, published, read_of
from tests.integration.watched_pipeline import (
    Load,
    Pipeline,
    brute_force,
    faulty,
    identified,
    make_topics,
    told_by,
)

pytestmark = pytest.mark.faults

RATE, MOST = 200, 1_000_000
JUDGED = """
    SELECT count() AS conclusions, uniqExact(run_id) AS runs FROM tidegauge.results_conclusions
    WHERE kind = 'run' AND startsWith(run_id, 'watch-orders-')
"""


def test_counts_are_those_of_a_brute_force_after_each_part_was_killed(tmp_path: Path) -> None:
    (tmp_path / "watched").mkdir()
    with running_broker(tmp_path / "watched") as other, breakable_stack(tmp_path / "own") as stack:
        make_topics(other.bootstrap, orders=2, shipped=2)
        sides = {"inputs": [{"topic": "orders"}], "outputs": [{"topic": "shipped"}]}
        watch = a_watch(other, "orders", **sides)
        keep_watch(stack.settings.data, watch)
        load = Load(other.bootstrap, lambda n: [("orders", b"%d" % n, b"", None)], MOST, RATE)
        pipeline = Pipeline(
            other.bootstrap,
            ["orders"],
            lambda order: faulty(int(order.key()), ("shipped", order.key(), b"", None)),
        )
        pipeline.start()
        load.start()

        def has_read(more: int) -> bool:
            return read_of(published(stack.settings), watch, "orders") >= more

        for part in stack.services():
            before = read_of(published(stack.settings), watch, "orders")
            eventually(lambda before=before: has_read(before + RATE), f"it reads before {part}")
            stack.kill(part)
            eventually(stack.is_ready, f"every part serves again after {part}")
        load.end()
        pipeline.end()
        inputs, outputs = (
            identified(other.bootstrap, [topic], lambda m: m.key().decode())
            for topic in ("orders", "shipped")
        )
        last_ms = max(ms for _, ms in (*inputs, *outputs))
        records = await_conclusion(stack.settings, watch, last_ms)
        assert told_by(records, watch) == brute_force(watch, inputs, outputs)
        known = len(concluded(records, watch))
        assert known > 2

        def is_judged_once() -> bool:
            (row,) = stack.sql(JUDGED)
            return int(row["conclusions"]) == int(row["runs"]) >= known

        eventually(is_judged_once, "each run is concluded once in SQL, too")
