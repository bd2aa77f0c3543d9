"""Storm: exact in every domain, also with several tasks. After a kill it fails the run and reports
why."""

from collections.abc import Iterator

import pytest

from services.definitions.domains import domain_names, load_domain
from tests.engines.runs import Runs, runs_of

pytestmark = pytest.mark.engines

# So many executors that look for tuples 5,000 times a second would use two slow cores alone.
SEVERAL = 'name = "several"\nsummary = "-"\nengine = "storm"\ntasks = 3\nwait_us = 2000\n'


@pytest.fixture(scope="module")
def storm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runs]:
    with runs_of("storm", tmp_path_factory.mktemp("storm"), 21_970) as found:
        yield found


@pytest.mark.parametrize("domain", domain_names())
def test_it_publishes_every_stage(storm: Runs, domain: str) -> None:
    assert storm.exact(domain) == list(load_domain(domain).spec.stage_names)


def test_several_tasks_of_a_stage_publish_what_one_does(storm: Runs) -> None:
    file = storm.command.data / "several.toml"
    file.write_text(SEVERAL)
    several = Runs(storm.command, "several", str(file))
    assert several.exact("gem_packs") == list(load_domain("gem_packs").spec.stage_names)


def test_killed_it_fails_the_run(storm: Runs) -> None:
    lengths = ("--warm-up", "3", "--duration", "20", "--stages", "1,2", "--rate", "100")
    done = storm.command("run", "latency", "--pipeline", "storm", "--kill", "driver", *lengths)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "pipeline:storm failed" in done.stdout


def test_a_value_that_is_no_record_becomes_a_dead_letter(storm: Runs) -> None:
    told, planted = storm.dead_letters()
    assert planted.total() > 5
    assert told == planted
