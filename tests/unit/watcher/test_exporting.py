"""A watch that is exported by one process: what it counts, and its page."""

import pytest

from schemas.events import WatchTrouble
from services.definitions.watches import keep_watch
from services.runtime.settings import ServiceSettings
from services.watcher import process
from services.watcher.exporting import ExportContext, ExportedEvents, ExportedState
from services.watcher.group_lag import GroupLagReader, NextRecords
from tests.unit.watcher.records import message
from tests.unit.watcher.watches import Reader, shop

pytestmark = pytest.mark.unit


class Exported(ExportContext):
    """An exported watch of a cluster that is a list."""

    def open_reader(self, watch):
        return Reader(), GroupLagReader(None, NextRecords(None), watch.groups)


@pytest.fixture
def lines():
    return []


@pytest.fixture
def context(tmp_path, lines):
    state = ExportedState(shop(), ExportedEvents(lines.append))
    keep_watch(tmp_path, state.watch)
    result = Exported(ServiceSettings(data=tmp_path), state)
    result.clock = lambda: 1_000
    return result


def judge(watching, numbers, end_ms):
    watching.reader.records = [message("in", None, b"%d" % n, 5_000 + n, offset=n) for n in numbers]
    watching.reader.end_ms = end_ms
    watching.step()


def missing(context):
    return sum(context.state.events.counts.counters["verdicts"].values())


def test_what_is_read_again_after_a_problem_is_counted_once(context):
    watching = process.open_watching(context.state.watch, context)
    judge(watching, range(3), 10_000)
    context.show(watching)
    watching.save()
    judge(watching, range(3, 5), 20_000)  # after the saved position
    before = context.state.events.counts.saved()
    again = process.open_watching(context.state.watch, context)
    assert context.state.events.counts.saved() != before
    judge(again, range(3, 5), 20_000)
    assert context.state.events.counts.saved() == before
    assert missing(context) == 5


def test_figures_of_before_are_served_while_a_watch_counts_again(context):
    watching = process.open_watching(context.state.watch, context)
    judge(watching, range(3), 10_000)
    context.show(watching)
    again = process.open_watching(context.state.watch, context)
    again.behind.ends = {("in", 0): 3}
    context.show(again)
    (family,) = (one for one in context.metrics.collect() if one.name == "tidegauge_verdicts")
    assert [sample.value for sample in family.samples] == [3]
    judge(again, range(3), 10_000_000_000_000)
    context.show(again)
    (family,) = (one for one in context.metrics.collect() if one.name == "tidegauge_verdicts")
    assert [sample.value for sample in family.samples] == [3]


def test_the_position_of_another_process_leaves_the_counts_as_they_are():
    events, other = ExportedEvents(print), ExportedEvents(print)
    events.publish_figures(
        "results.throughput",
        "run",
        **{"topic": "in", "pipeline": "", "stage": "", "records": 3, "bytes": 12, "aborted": 0},
    )
    events.published("watch", [("figures", 0, 1)])
    assert events.counts.mean_bytes(is_input=True) == 4
    assert events.counts.mean_bytes(is_input=False) is None
    assert other.counts.mean_bytes(is_input=True) is None


def test_each_problem_is_told_once_and_the_page_has_the_newest(context, lines):
    for number in range(30):
        for reason in ("it is <gone>", f"reason {number}"):
            event = WatchTrouble(kind="not_readable", watch="w", topic="in", reason=reason)
            context.state.events.publish(event)
    assert lines.count("Problem: in: it is <gone>") == 1
    text = context.state.page()
    assert "in: it is &lt;gone&gt;" in text
    assert "reason 29" in text
    assert "reason 3<" not in text


def test_the_page_of_a_watch_that_is_not_running_says_why(context):
    assert "It is beginning." in context.state.page()
    context.state.problem = "<b>"
    assert "It is not running: &lt;b&gt;" in context.state.page()


def test_the_page_has_the_run_up_to_now(context):
    watching = process.open_watching(context.state.watch, context)
    judge(watching, range(3), 10_000)
    watching.runs.object(0, "Something & more was lost.")
    context.show(watching)
    text = context.state.page()
    assert "<code>watch-w-19700101-000000-1</code>" in text
    assert "until 1970-01-01 00:00:10 UTC" in text
    assert "<td>missing<td>3" in text
    assert "Something &amp; more was lost." in text
