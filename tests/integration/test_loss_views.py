"""What the views say was lost, with counts worked out by hand."""

import json

import pytest

from schemas import catalogue
from services.store.engine import Query
from tests.integration.store_engine import insert_events

pytestmark = pytest.mark.integration

HEAD = {"time": 0, "producer": "tests"}


def verdicts(run_id, stage, phase, **counts):
    none = dict.fromkeys(("exact", "wrong", "missing", "late", "duplicate", "unexpected"), 0)
    where = {"run_id": run_id, "pipeline": "p", "stage": stage, "phase": phase, "second": 0}
    return HEAD | where | none | {"samples": []} | counts


def lifecycle(run_id, event, **detail):
    fields = {"run_id": run_id, "event": event, "pipeline": "p", "stage": "", "phase": ""}
    return HEAD | fields | {"detail": json.dumps(detail)}


def sent(run_id, phase, records):
    counts = {"intended": records, "sent": records, "acknowledged": records, "failed": 0}
    where = {"run_id": run_id, "phase": phase, "second": 0}
    return HEAD | where | counts | {"send_delays_us": [], "counts": [], "queue_full_us": 0}


def losses(engine, run_id):
    sql = (
        "SELECT stage, due, received, lost, lost_before, lost_inside, lost_after FROM losses"
        f" WHERE run_id = '{run_id}' ORDER BY stage"
    )
    answer = engine.answer(Query(sql, "JSONCompactEachRow")).data.decode()
    rows = map(json.loads, answer.splitlines())
    return [[row[0], *(None if each is None else int(each) for each in row[1:])] for row in rows]


def test_of_a_load_through_the_gateway_frames_and_results_add_up(engine):
    insert_events(
        engine,
        catalogue.VERDICTS,
        verdicts("r", "parse", "warm_up", exact=40),
        verdicts("r", "parse", "measure", exact=50, late=3, wrong=1, missing=4, duplicate=9),
    )
    way_in = {"transport": "udp", "sent": 100, "received": 99, "appended": 98}
    insert_events(
        engine, catalogue.LIFECYCLE, lifecycle("r", "way_in", lost=1, not_appended=1, **way_in)
    )
    insert_events(engine, catalogue.GENERATOR, sent("r", "measure", 98))
    # 100 records were sent and 94 distinct results came.
    assert losses(engine, "r") == [["parse", 98, 94, 6, 2, 4, 0]]


def test_of_a_system_behind_sockets_what_it_does_not_say_is_unknown(engine):
    rows = [
        verdicts(run, stage, "measure", exact=exact, missing=missing)
        for run in ("told", "silent")
        for stage, exact, missing in (("ingest", 94, 6), ("area", 18, 2))
    ]
    insert_events(engine, catalogue.VERDICTS, *rows)
    came = {"ingest": 94, "area": 18}
    said = {"frames_received": 97, "sent": {"ingest": 95, "area": 18}, "received": came}
    nothing = {"frames_received": None, "sent": dict.fromkeys(came), "received": came}
    insert_events(
        engine,
        catalogue.LIFECYCLE,
        lifecycle("told", "results_received", transport="tcp", **said),
        lifecycle("silent", "results_received", transport="tcp", **nothing),
    )
    insert_events(
        engine,
        catalogue.GENERATOR,
        *(sent(run, phase, 50) for run in ("told", "silent") for phase in ("warm_up", "measure")),
    )
    assert losses(engine, "told") == [
        ["area", 20, 18, 2, 3, None, 0],
        ["ingest", 100, 94, 6, 3, 2, 1],
    ]
    assert losses(engine, "silent") == [
        ["area", 20, 18, 2, None, None, None],
        ["ingest", 100, 94, 6, None, None, None],
    ]


def test_a_load_sent_to_kafka_has_no_losses_over_the_network(engine):
    insert_events(engine, catalogue.VERDICTS, verdicts("k", "parse", "measure", exact=5))
    assert losses(engine, "k") == []
