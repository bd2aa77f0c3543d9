"""The generator as a process, with domains inside and outside the installation."""

import json
import time

import pytest

from schemas import catalogue
from schemas.catalogue import domain_topics
from schemas.commands import Prepare, Start, Stop
from schemas.events import Failed, LoadFinished, Ready
from services.console.new_domain import new_domain
from services.definitions.domains import load_domain
from services.definitions.trusted import keep_definitions
from services.runtime.events import open_events
from services.runtime.kafka import admin_client, ensure_topics
from tests.integration.runs import BRIEF, next_phases, readers, run_plan
from tests.integration.service_process import has_event, running_service, started

pytestmark = pytest.mark.integration

RATE = 40


@pytest.fixture(scope="module")
def generator(broker):
    with (
        running_service(broker, "generator", TIDEGAUGE_INSTANCE="for-domains"),
        readers(broker, catalogue.LIFECYCLE) as (lifecycle,),
    ):
        lifecycle.until("", started("for-domains"))
        yield broker


def plan_of(run_id, domain):
    return run_plan(run_id, rate=RATE, domain=str(domain.folder), phases=BRIEF)


def records_of_run(settings, domain, run_id):
    """Decoded records of a run at RATE records/s, by input topic."""
    ensure_topics(admin_client(settings, "tests"), domain_topics(domain.spec, 2))
    bus = open_events(settings, "tests")
    with readers(settings, catalogue.LIFECYCLE, *domain.spec.topics) as (lifecycle, *inputs):
        bus.send(Prepare(run_id=run_id, plan=plan_of(run_id, domain)))
        events = lifecycle.until(
            run_id, lambda all_: has_event(Ready.name)(all_) or has_event(Failed.name)(all_)
        )
        assert has_event(Ready.name)(events), events[-1]["detail"]
        bus.send(Start(run_id=run_id, phases=next_phases(BRIEF)))
        (ended,) = lifecycle.until(run_id, has_event(LoadFinished.name))[-1:]
        ends = json.loads(ended["detail"])["end_offsets"]
        found = {}
        for one, reader in zip(domain.spec.inputs, inputs, strict=True):
            deadline = time.monotonic() + 90
            while len(reader.messages) < sum(ends[one.topic]):
                assert time.monotonic() < deadline
                reader.read()
            decoded = [
                (message.key().decode(), domain.spec.codec.decode(message.value())[1])
                for message in reader.messages
            ]
            found[one.name] = [pair for pair in decoded if pair[1]["run_id"] == run_id]
    return found


def test_purchases_and_ads_arrive_whole_and_by_their_gem_pack(generator):
    found = records_of_run(generator, load_domain("gem_packs"), "gems")
    sequences = {name: sorted(record["sequence"] for _, record in found[name]) for name in found}
    count = RATE * BRIEF.total_s
    assert sequences == {
        "purchases": list(range(0, count, 2)),
        "ads": list(range(1, count, 2)),
    }
    for records in found.values():
        assert all(key == record["gem_pack_id"] for key, record in records)


def test_a_recording_of_a_folder_from_elsewhere_is_sent_once_the_command_line_has_read_it(
    generator, tmp_path
):
    domain = load_domain(str(new_domain("elsewhere", tmp_path)))
    bus = open_events(generator, "tests")
    with readers(generator, catalogue.LIFECYCLE) as (lifecycle,):
        bus.send(Prepare(run_id="not-read", plan=plan_of("not-read", domain)))
        failed = lifecycle.until("not-read", has_event(Failed.name))[-1]
    assert "domains/elsewhere on this machine does not exist" in failed["detail"]

    keep_definitions(generator.data, [], [], [domain])
    found = records_of_run(generator, domain, "read")
    rows = (domain.folder / "data" / "orders.csv").read_text().splitlines()[1:]
    amounts = [float(row.split(",")[1]) for row in rows]
    for name in ("orders", "payments"):
        records = sorted((record for _, record in found[name]), key=lambda r: r["sequence"])
        assert [record["amount"] for record in records] == amounts[: len(records)]
        assert len(records) == RATE * BRIEF.total_s / 2

    (domain.folder / "records.py").write_text("raise SystemExit('evil')\n")
    with readers(generator, catalogue.LIFECYCLE) as (lifecycle,):
        bus.send(Prepare(run_id="changed", plan=plan_of("changed", domain)))
        failed = lifecycle.until("changed", has_event(Failed.name))[-1]
        assert "has changed since the command line read it" in failed["detail"]
        bus.send(Stop(run_id="changed"))


def test_code_of_a_domain_that_fails_ends_its_run_and_not_the_process(generator, tmp_path):
    folder = new_domain("broken", tmp_path)
    code = "class Records:\n    def __init__(self, setup):\n        raise SystemExit(0)\n"
    (folder / "records.py").write_text(code)
    domain = load_domain(str(folder))
    keep_definitions(generator.data, [], [], [domain])
    bus = open_events(generator, "tests")
    with readers(generator, catalogue.LIFECYCLE) as (lifecycle,):
        bus.send(Prepare(run_id="broken", plan=plan_of("broken", domain)))
        failed = lifecycle.until("broken", has_event(Failed.name))[-1]
        assert "records.py of broken fails: SystemExit" in failed["detail"]
        bus.send(Prepare(run_id="next", plan=run_plan("next", rate=RATE)))
        lifecycle.until("next", has_event(Ready.name))
        bus.send(Stop(run_id="next"))
