"""How a watch starts, resumes, ends and starts anew, with lists in place of a bus and a cluster."""

import threading
from dataclasses import replace

import pytest
from confluent_kafka import KafkaError, KafkaException

from schemas import catalogue
from schemas.events import Concluded, WatchBegun
from services.console.watching import END_S
from services.definitions.watches import end_watch, keep_watch, position_path
from services.watcher import position, process
from services.watcher.position import PublishedSince
from services.watcher.processes import STOP_TIMEOUT_S
from services.watcher.schema_ids import RegistrySilentError
from tests.unit.watcher.records import message
from tests.unit.watcher.watches import Reader, shop, watched

pytestmark = pytest.mark.unit


def test_a_watch_that_begins_anew_counts_into_runs_of_its_own(bus, context):
    for seconds in (17, 18):
        context.at_s(seconds)
        watching = watched(shop(), context)
        end_watch(context.settings.data, "w")
        process.close(watching)
    ids = ["watch-w-19700101-000000-11", "watch-w-19700101-000000-12"]
    assert bus.conclusions() == dict.fromkeys(ids, 3)
    assert {run_id for _, run_id, _ in bus.events} == {*ids}


def test_a_watch_that_goes_on_counts_into_the_runs_that_it_had(bus, context):
    context.at_s(17)
    process.close(watched(shop(), context))
    context.at_s(18)
    watching = process.open_watching(shop(), context)
    watching.reader.end_ms = 20_000
    watching.catch_up(threading.Event(), 5)
    assert watching.behind is None
    watching.end()
    assert bus.conclusions() == {"watch-w-19700101-000000-11": 3}


def test_a_watch_that_is_another_now_is_concluded_first(bus, context):
    watching = watched(shop(), context)
    keep_watch(context.settings.data, shop(stage="shipped"))
    process.close(watching)
    assert bus.conclusions() == {"watch-w-19700101-000000-1": 3}
    assert not watching.path.exists()


def test_a_new_login_is_no_other_watch(bus, context):
    first, second = (
        shop(kafka={"bootstrap": "k:9", "properties": {"sasl.password": one}}) for one in "ab"
    )
    watching = watched(first, context)
    keep_watch(context.settings.data, second)
    process.close(watching)
    assert bus.conclusions() == {}
    _, rest = position.load(watching.path)
    assert position.digest(second) == rest["watch"]
    assert position.digest(shop(kafka={"bootstrap": "other:9"})) != rest["watch"]


@pytest.mark.parametrize("is_another", [True, False])
def test_what_a_killed_process_left_is_caught_up_with_and_concluded(bus, context, is_another):
    watching = watched(shop(), context)
    watching.save()
    end_watch(context.settings.data, "w")
    if is_another:
        keep_watch(context.settings.data, shop(stage="shipped"))
    context.end_ms = 20_000
    process.end_left("w", context, threading.Event())
    assert bus.conclusions() == {"watch-w-19700101-000000-1": 3}
    assert not position_path(context.settings.data, "w").exists()


class Unavailable(Reader):
    def ends(self):
        raise process.KafkaUnavailableError("it is gone")


def test_what_cannot_be_caught_up_with_is_concluded_and_says_so(bus, context):
    watching = watched(shop(), context)
    watching.save()
    end_watch(context.settings.data, "w")
    context.reader = Unavailable
    process.end_left("w", context, threading.Event())
    (fields,) = [fields for topic, _, fields in bus.events if topic == catalogue.CONCLUSIONS]
    assert fields["invalid_reasons"] == ["It ended before everything was recounted: it is gone."]


ENDS = {catalogue.CONCLUSIONS, Concluded.name}


@pytest.mark.parametrize("known", [ENDS, {Concluded.name}, {catalogue.CONCLUSIONS}])
@pytest.mark.parametrize("is_ended", [True, False])
def test_of_a_run_that_was_concluded_before_a_kill_only_the_rest_is_published(
    bus, context, known, is_ended
):
    watching = watched(shop(thresholds=["missing <= 0"]), context)
    watching.save()
    bus.events.clear()
    mine = "watch-w-19700101-000000-1"
    events = {(mine, one) for one in known}
    context.published_since = PublishedSince(events=events)
    context.end_ms = 9_000_000
    if is_ended:
        end_watch(context.settings.data, "w")
        process.end_left("w", context, threading.Event())
    else:
        process.open_watching(watching.watch, context).catch_up(threading.Event(), 5)
    told = [fields.get("event", topic) for topic, run_id, fields in bus.events if run_id == mine]
    assert [one for one in told if one in ENDS] == sorted(ENDS - known)


def test_a_run_that_only_the_killed_process_had_begun_is_concluded(bus, context):
    watching = watched(shop(), context)
    watching.save()
    end_watch(context.settings.data, "w")
    begun = {
        ("watch-w-19700101-010000-1", WatchBegun.name),
        ("watch-w-19700101-020000-2", WatchBegun.name),  # of another start
        ("watch-w-eu-19700101-010000-1", WatchBegun.name),
    }
    context.published_since = PublishedSince(events=begun)
    context.reader = Unavailable
    process.end_left("w", context, threading.Event())
    assert [*bus.conclusions()] == ["watch-w-19700101-000000-1", "watch-w-19700101-010000-1"]


def test_an_unreadable_position_of_a_watch_that_was_ended_is_removed(context):
    path = position_path(context.settings.data, "w")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"no position")
    process.end_left("w", context, threading.Event())
    assert not path.exists()


def test_an_unreadable_position_of_a_watch_is_an_error(context):
    keep_watch(context.settings.data, shop())
    path = position_path(context.settings.data, "w")
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(b"no position")
    with pytest.raises(ValueError, match="cannot be read"):
        process.end_left("w", context, threading.Event())
    assert path.exists()


def test_a_late_record_does_not_conclude_a_run_again(bus, context):
    watching = watched(shop(run_s=5), context)
    watching.reader.end_ms = 200_000
    watching.step()
    watching.reader.records = [message("in", None, b"late", 6_000, offset=3)]
    watching.step()
    watching.step()
    told = [run_id for topic, run_id, _ in bus.events if topic == catalogue.CONCLUSIONS]
    assert told.count("watch-w-19700101-000005-1") == 1
    assert bus.conclusions()["watch-w-19700101-000005-1"] == 3


@pytest.fixture
def run(context):
    """Runs the process of the watch w."""

    def run(*, only_conclude=False):
        process.run("w", context, threading.Event(), only_conclude=only_conclude)

    return run


def test_a_process_that_concludes_is_no_watch_though_there_is_a_file_by_now(bus, context, run):
    watched(shop(), context).save()
    end_watch(context.settings.data, "w")

    class Late(Reader):
        def frontier_ms(self):
            keep_watch(context.settings.data, shop(stage="shipped"))
            return 20_000

    context.reader = Late
    context.watches.clear()
    run(only_conclude=True)
    assert context.watches == [shop()]
    assert bus.conclusions() == {"watch-w-19700101-000000-1": 3}
    assert (context.settings.data / "watches" / "w.json").exists()


def test_what_is_wrong_with_a_kept_file_is_one_line(bus, context, run):
    keep_watch(context.settings.data, shop())
    (context.settings.data / "watches" / "w.json").write_text('{"name": "w", "inputs": []}')
    with pytest.raises(SystemExit) as ended:
        run()
    assert ended.value.code.startswith("watch w: ")
    assert "\n" not in ended.value.code


class WithoutRegistry(Reader):
    def read(self, _most, _timeout_s):
        raise RegistrySilentError("the registry does not answer: TimeoutError")


def test_a_process_ends_while_the_registry_does_not_answer(bus, context, run):
    watching = watched(shop(), context)
    watching.save()
    before = watching.path.read_bytes()
    context.reader = WithoutRegistry
    with pytest.raises(SystemExit, match="watch w: the registry does not answer: TimeoutError"):
        run()
    assert watching.path.read_bytes() == before


def test_a_cluster_that_is_down_is_said_without_names_of_the_client(bus, context, run):
    class Down(Reader):
        def places(self):
            raise KafkaException(KafkaError(KafkaError._TRANSPORT, "Failed to get metadata"))

    keep_watch(context.settings.data, shop())
    context.reader = Down
    with pytest.raises(SystemExit) as ended:
        run()
    assert "Failed to get metadata" in str(ended.value)
    assert "KafkaError" not in str(ended.value)
    assert "_TRANSPORT" not in str(ended.value)


def test_a_watch_is_concluded_though_the_registry_does_not_answer(bus, context):
    watched(shop(), context).save()
    end_watch(context.settings.data, "w")
    context.reader = WithoutRegistry
    process.end_left("w", context, threading.Event())
    (fields,) = [fields for topic, _, fields in bus.events if topic == catalogue.CONCLUSIONS]
    (reason,) = fields["invalid_reasons"]
    assert "before everything was recounted" in reason
    assert "the registry does not answer" in reason


@pytest.mark.parametrize("error", [KafkaException("ssl.ca.location"), FileNotFoundError("ca.pem")])
def test_what_cannot_be_opened_any_more_is_not_concluded_and_not_in_the_way(bus, context, error):
    def moved(*_):
        raise error

    watching = watched(shop(), context)
    watching.save()
    end_watch(context.settings.data, "w")
    context.reader = moved
    process.end_left("w", context, threading.Event())
    assert bus.conclusions() == {}
    assert not watching.path.exists()


def test_what_is_left_stays_while_the_bus_does_not_say_what_was_published(bus, context):
    watching = watched(shop(), context)
    watching.save()
    end_watch(context.settings.data, "w")
    context.published_since = KafkaException("the bus is away")
    with pytest.raises(KafkaException):
        process.end_left("w", context, threading.Event())
    assert watching.path.exists()


def test_a_position_is_saved_less_often_also_for_the_size_of_its_definition(bus, context):
    context.pace = replace(context.pace, bytes_per_saved_s=1)
    watching = watched(shop(), context)
    watching.save()
    arrays, rest = position.load(watching.path)
    size = sum(column.nbytes for column in arrays.values()) + len(rest["definition"])
    assert watching._save_every_s == size


def test_ctrl_c_waits_for_longer_than_a_watch_may_catch_up():
    assert END_S > STOP_TIMEOUT_S + process.CATCH_UP_S + 15
