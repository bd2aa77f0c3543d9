"""Suites on the command line."""

from pathlib import Path

import pytest

from schemas.validation_errors import DefinitionError
from services.console.lists import position_sentence, skipped_sentences
from services.console.new_domain import new_domain
from services.definitions.pipelines import names
from services.definitions.workloads import SUITES_DIR, load_suite

pytestmark = pytest.mark.unit

POSITION = {
    "name": "nightly",
    "state": "running",
    "round": 2,
    "step": 3,
    "steps": 4,
    "label": "latency at 400/s",
    "runs": 6,
    "run_id": "r-1",
    "reason": "",
    "next_at_ms": None,
}


@pytest.mark.parametrize(
    ("changes", "doing"),
    [
        ({}, "running r-1"),
        ({"state": "pausing", "next_at_ms": 50_000}, "pausing, next in 40 s"),
        ({"state": "pausing", "next_at_ms": 5_000}, "pausing, next in 0 s"),
        (
            {"state": "waiting", "reason": "other processes use 1.5 of 2 cores"},
            "waiting, other processes use 1.5 of 2 cores",
        ),
        ({"state": "skipping", "reason": "No rate is known."}, "skipped, No rate is known"),
    ],
)
def test_the_position_is_one_sentence(changes: dict[str, object], doing: str) -> None:
    assert position_sentence({**POSITION, **changes}, 10_000) == (
        f"Suite nightly, round 2, step 3 of 4 (latency at 400/s): {doing}. 6 runs so far."
    )


def test_what_was_skipped_is_told_as_long_as_it_is_so() -> None:
    assert skipped_sentences(POSITION) == []
    skipped = POSITION | {"skipped": ["at-90-percent on x: No rate is known."]}
    assert skipped_sentences(skipped) == ["Skipped: at-90-percent on x: No rate is known."]


@pytest.mark.parametrize("name", names(SUITES_DIR))
def test_every_suite_that_comes_along_can_be_loaded(name: str) -> None:
    suite = load_suite(name)
    assert suite.name == name
    assert len({step.label for step in suite.steps}) == len(suite.steps)


def test_a_step_is_made_for_every_rate(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(
        'name = "mine"\nsummary = "x"\n[[steps]]\nworkload = "latency"\nrates = [100, 2000]\n'
        'pipelines = ["calibration"]\nstages = ["parse"]\nduration_s = 7\n'
    )
    steps = load_suite(str(path)).steps
    assert [step.workload.load.rate_per_second for step in steps] == [100, 2000]
    assert {step.workload.phases.measure_s for step in steps} == {7}


def test_a_step_may_be_on_a_domain_of_ones_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, orders = tmp_path / "mine.toml", new_domain("orders", tmp_path)
    own = orders / "workloads" / "latency.toml"
    (tmp_path / "evening.toml").write_text(own.read_text().replace('"orders"', '"./orders"'))
    path.write_text(
        'name = "mine"\nsummary = "x"\n'
        '[[steps]]\nworkload = "latency"\ndomain = "./orders"\n'
        '[[steps]]\nworkload = "evening.toml"\n'
        '[[steps]]\nworkload = "queries"\n'
        '[[steps]]\nworkload = "smoke"\ndomain = "gem_packs"\n'
    )
    monkeypatch.chdir(tmp_path)
    steps = load_suite("mine.toml").steps
    domains = [str(orders), str(orders), "gem_packs", "gem_packs"]
    assert [step.workload.domain for step in steps] == domains
    assert [step.workload.load.rate_per_second for step in steps[:2]] == [200, 200]


@pytest.mark.parametrize(
    ("lines", "sentence"),
    [
        ("", "steps: It is missing"),
        ('[[steps]]\nworkload = "nosuch"\n', "There is no workload 'nosuch'"),
        ('[[steps]]\nworkload = "latency"\npipelines = ["nosuch"]\n', "There is no pipeline"),
        ('[[steps]]\nworkload = "latency"\nrates = [-1]\n', "rate_per_second"),
        (
            '[[steps]]\nworkload = "latency"\nstages = ["join"]\n'
            'pipelines = ["spark-continuous"]\n',
            "mine.toml: latency: spark-continuous runs none of its stages.",
        ),
        (
            '[[steps]]\nworkload = "latency"\nstages = ["joins"]\n',
            "mine.toml: latency: The domain traffic has no stage 'joins'; it has: ingest, ",
        ),
        (
            '[[steps]]\nworkload = "sustainable-throughput"\n'
            'pipelines = ["spark-realtime", "spark-microbatch"]\n',
            "a search for the sustainable rate needs exactly one pipeline",
        ),
        (
            '[[steps]]\nworkload = "latency"\n'
            'thresholds = ["pipeline.sustainable_rate_per_second >= baseline"]\n',
            "the threshold .* needs a search, as in the workload sustainable-throughput",
        ),
    ],
)
def test_a_mistake_in_a_suite_is_named(tmp_path: Path, lines: str, sentence: str) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(f'name = "mine"\nsummary = "x"\n{lines}')
    with pytest.raises(DefinitionError, match=sentence):
        load_suite(str(path))
