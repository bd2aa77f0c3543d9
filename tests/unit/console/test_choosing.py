"""Options of the command line applied to a workload."""

from pathlib import Path

import click
import pytest

from schemas.load import Constant, PeriodicBurst, Sequence
from schemas.protocol import Phases, Workload
from schemas.search import Search
from schemas.validation_errors import DefinitionError
from schemas.workload import Kill
from services.console.choosing import (
    Overrides,
    chosen_pipelines,
    settings_of,
    swept,
    with_overrides,
)
from services.definitions.pipelines import for_purpose, load_pipeline, names, with_settings
from services.definitions.workloads import chosen_workload, load_workload
from services.runtime.settings import ROOT
from tests.command_line import parsed

pytestmark = pytest.mark.unit


def a_workload(**fields: object) -> Workload:
    phases = Phases(warm_up_s=10, measure_s=60, cool_down_s=5)
    load = fields.pop("load", Constant(rate_per_second=400))
    return Workload(name="w", summary="-", load=load, phases=phases, **fields)


def test_a_shorter_duration_shortens_what_lies_within_it() -> None:
    parts = (
        Constant(rate_per_second=3000, for_s=20),
        Constant(rate_per_second=400),
    )
    given = a_workload(
        load=Sequence(parts=parts),
        kills=(Kill(target="driver", at_s=30),),
        pipelines_start_s=20,
    )
    short = with_overrides(given, Overrides(duration=15))
    assert short.phases.measure_s == 15
    assert short.kills[0].at_s == 7
    assert short.pipelines_start_s == 5
    assert [part.for_s for part in short.load.parts] == [5, 0]


def test_a_scale_makes_bursts_smaller_and_a_backlog_shorter() -> None:
    burst = PeriodicBurst(rate_per_second=400, burst_records=38_000, period_s=10)
    small = with_overrides(a_workload(load=burst), Overrides(scale=0.25))
    assert (small.load.burst_records, small.phases.measure_s) == (9_500, 60)
    parts = (Constant(rate_per_second=6000, for_s=30), Constant(rate_per_second=400))
    backlog = a_workload(load=Sequence(parts=parts), pipelines_start_s=30)
    shorter = with_overrides(backlog, Overrides(scale=0.1))
    assert [part.for_s for part in shorter.load.parts] == [3, 0]
    assert (shorter.pipelines_start_s, shorter.phases.measure_s) == (3, 33)


@pytest.mark.parametrize("scale", [0, 1.5, float("nan")])
def test_a_scale_is_a_share_of_something(scale: float) -> None:
    with pytest.raises(DefinitionError, match="above 0 and at most 1"):
        with_overrides(a_workload(), Overrides(scale=scale))
    with pytest.raises(DefinitionError, match="w has no burst and no backlog to scale"):
        with_overrides(a_workload(), Overrides(scale=0.5))


def test_a_longer_duration_leaves_the_rest_as_it_is() -> None:
    given = a_workload(kills=(Kill(target="driver", at_s=30),))
    assert with_overrides(given, Overrides(duration=600)).kills[0].at_s == 30


def test_a_shorter_search_has_shorter_steps_and_less_time() -> None:
    given = a_workload(search=Search(step_s=15, confirm_s=30, budget_s=400))
    short = with_overrides(given, Overrides(duration=30)).search
    assert short is not None
    assert (short.step_s, short.confirm_s, short.budget_s) == (7, 15, 200)
    least = with_overrides(given, Overrides(duration=1)).search
    assert least is not None
    assert (least.step_s, least.confirm_s) == (3, 3)


def test_a_kill_replaces_those_of_the_workload_at_the_same_time() -> None:
    given = a_workload(kills=(Kill(target="driver", at_s=30),))
    assert with_overrides(given, Overrides(kill="broker")).kills == (
        Kill(target="broker", at_s=30),
    )
    assert with_overrides(a_workload(), Overrides(kill="worker")).kills[0].at_s == 20
    (kill,) = with_overrides(given, Overrides(kill="disk")).kills
    assert (kill.signal, kill.at_s) == ("fill", 30)


def test_a_floor_lasts_as_long_as_the_workload_says_or_ten_seconds() -> None:
    assert with_overrides(a_workload(), Overrides()).floor_s == 0
    assert with_overrides(a_workload(), Overrides(floor=True)).floor_s == 10
    assert with_overrides(a_workload(floor_s=4), Overrides(floor=True)).floor_s == 4


def test_one_rate_is_refused_for_a_load_of_several_parts() -> None:
    parts = [{"rate_per_second": 10, "for_s": 5}, {"rate_per_second": 20}]
    given = a_workload(load={"shape": "sequence", "parts": parts})
    with pytest.raises(DefinitionError, match=r"--rate: the load of .* has no single rate"):
        with_overrides(given, Overrides(rate=100))


def test_a_threshold_on_the_rate_found_needs_a_search() -> None:
    line = "pipeline.sustainable_rate_per_second >= 50000"
    searching = a_workload(search=Search())
    found = with_overrides(searching, Overrides(thresholds=[line]))
    assert found.thresholds == (line,)
    with pytest.raises(DefinitionError) as refused:
        with_overrides(a_workload(), Overrides(thresholds=["join.late == 0", line]))
    assert str(refused.value) == (
        f"workload {a_workload().name}: the threshold '{line}' needs a search, as in the workload "
        "sustainable-throughput."
    )


def test_a_workload_of_one_domain_needs_no_domain(monkeypatch: pytest.MonkeyPatch) -> None:
    domain, workload = chosen_workload("queries", None)
    assert (domain.spec.name, workload.name) == ("gem_packs", "queries")
    assert chosen_workload("latency", None)[0].spec.name == "traffic"
    with pytest.raises(DefinitionError, match="There is no workload 'nope'"):
        chosen_workload("nope", None)
    monkeypatch.setattr("services.definitions.workloads.domain_names", lambda: ("gem_packs",) * 2)
    with pytest.raises(DefinitionError, match="choose with --domain"):
        chosen_workload("queries", None)


def test_an_installed_workload_lasts_until_the_windows_of_another_domain_close() -> None:
    _domain, workload = chosen_workload("failure", "gem_packs")
    assert workload.phases.cool_down_s == 11  # windows of 8 s
    assert chosen_workload("failure", None)[1].phases.cool_down_s == 5
    assert chosen_workload("latency", "gem_packs")[1].phases.cool_down_s == 20  # of the domain


def test_pipelines_are_those_given_then_the_workloads_then_the_default() -> None:
    given = a_workload(pipelines=("one", "two"))
    assert chosen_pipelines("three,four,three", given) == ("three", "four")
    assert chosen_pipelines(None, given) == ("one", "two")
    assert chosen_pipelines(None, a_workload()) == ("spark-realtime",)


def test_a_setting_is_written_as_in_toml_or_is_plain_text() -> None:
    given = ("state=rocksdb", "linger_ms = 5", "alike=true", 'mode="a=b"', "conf={a = 1}", "x=")
    assert settings_of(given) == [
        {
            **{"state": "rocksdb", "linger_ms": 5, "alike": True, "mode": "a=b"},
            **{"conf": {"a": 1}, "x": ""},
        }
    ]


def test_several_values_are_separated_by_commas_and_give_every_choice() -> None:
    assert settings_of(()) == [{}]
    assert settings_of(("linger_ms=1,5", "state=hashmap, rocksdb", "options=['a', 'b']")) == [
        {"linger_ms": linger_ms, "state": state, "options": ["a", "b"]}
        for linger_ms in (1, 5)
        for state in ("hashmap", "rocksdb")
    ]
    assert settings_of(('mode="a,b"',)) == [{"mode": "a,b"}]


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (("state",), "--set: 'state' is not NAME=VALUE."),
        (("=1",), "--set: '=1' is not NAME=VALUE."),
        (("state=a", "state=b"), "--set: state is set twice."),
        (("state=a,,b",), "--set: a value of state is missing in 'a,,b'."),
        (
            (f"linger_ms={','.join(map(str, range(50)))}", "state=hashmap,rocksdb", "x=1,2,3"),
            "--set: 300 choices of settings; at most 100 are run.",
        ),
        (("stat=rocksdb",), "flink: There is no setting of flink 'stat'; .* Did you mean state?"),
        (("name=other",), "flink: There is no setting of flink 'name'"),
        (("state=rockdb",), "flink: state: must be one of hashmap, rocksdb."),
        (("parallelism=1.5",), "flink: parallelism: must be an integer."),
    ],
)
def test_a_setting_that_cannot_be_is_refused(given: tuple[str, ...], reason: str) -> None:
    with pytest.raises(DefinitionError, match=reason.replace("?", r"\?")):
        swept(load_workload("smoke"), (load_pipeline("flink"),), settings_of(given))


def test_a_setting_that_is_given_counts_for_every_purpose() -> None:
    flink = load_pipeline("flink")
    changed = with_settings(flink, {"linger_ms": 7, "state": "rocksdb"})
    assert (changed.name, changed.settings["state"]) == ("flink", "rocksdb")
    assert [for_purpose(one, "throughput").settings["linger_ms"] for one in (flink, changed)] == [
        *(5, 7)
    ]
    assert for_purpose(changed, "throughput").settings["heap_mb"] == 4096


def test_a_rate_that_is_given_needs_no_rate_that_was_found() -> None:
    assert (
        with_overrides(a_workload(sustainable_share=0.9), Overrides(rate=100)).sustainable_share
        is None
    )


@pytest.mark.parametrize("name", names(ROOT / "workloads"))
def test_every_ready_workload_can_be_shortened(name: str) -> None:
    assert (
        with_overrides(load_workload(name), Overrides(duration=10, warm_up=2)).phases.measure_s
        == 10
    )


def test_a_file_that_is_not_there_is_named() -> None:
    with pytest.raises(DefinitionError, match="--input: /nowhere is not a file or folder"):
        with_overrides(a_workload(), Overrides(input=Path("/nowhere")))


def test_records_may_be_a_file_or_a_folder(tmp_path: Path) -> None:
    (tmp_path / "mine.json").touch()
    for path in (tmp_path, tmp_path / "mine.json"):
        content = with_overrides(a_workload(), Overrides(input=path)).content
        assert (content.source, content.path) == ("file", str(path))


def test_a_warm_up_is_seconds_or_auto() -> None:
    assert parsed(["run", "--warm-up", "30"])[1]["warm_up"] == 30
    given = parsed(["run", "--warm-up", "auto"])[1]["warm_up"]
    phases = with_overrides(a_workload(), Overrides(warm_up=given)).phases
    assert (phases.warm_up_s, phases.until_steady) == (180, True)
    fixed = with_overrides(
        a_workload().model_copy(update={"phases": phases}), Overrides(warm_up=20)
    ).phases
    assert (fixed.warm_up_s, fixed.until_steady) == (20, False)
    with pytest.raises(click.UsageError, match="must be seconds or auto, not 'soon'"):
        parsed(["run", "--warm-up", "soon"])


def test_set_changes_the_cores_of_any_engine():
    flink = load_pipeline("flink")
    assert flink.cores is None
    assert with_settings(flink, {"cores": 0.5}).cores == 0.5
    with pytest.raises(DefinitionError, match="flink: cores: "):
        with_settings(flink, {"cores": 0})
