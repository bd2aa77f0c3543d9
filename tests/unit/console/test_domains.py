"""The verbs `domains` and `new domain`, and workloads on another domain."""

import io
from pathlib import Path

import pytest
from rich.console import Console

from schemas.content import Content
from schemas.validation_errors import DefinitionError
from services.console.lists import show_domains
from services.console.new_domain import new_domain
from services.definitions.domains import load_domain
from services.definitions.workloads import WORKLOADS_DIR, chosen_workload

pytestmark = pytest.mark.unit


def told(name: str | None) -> str:
    out = io.StringIO()
    show_domains(Console(file=out, width=200), name)
    return out.getvalue()


def test_domains_are_listed_with_what_they_are_about() -> None:
    assert "gem_packs  Purchases of gem packs in a game" in told(None)


def test_a_domain_is_explained_stage_by_stage() -> None:
    lines = told("gem_packs").splitlines()
    assert (
        "  2 revenue: aggregate of purchases by gem_pack_id, 8 s sliding by 4 s. "
        "SUM(price) of purchases by gem pack." in lines
    )


def test_a_new_domain_can_be_loaded_and_has_a_workload_of_its_own(tmp_path: Path) -> None:
    folder = new_domain("orders", tmp_path)
    spec = load_domain(str(folder)).spec
    assert (spec.name, spec.stage_names) == ("orders", ("ingest", "parse", "totals"))
    assert spec.topics == ("orders.orders", "orders.payments")
    found, workload = chosen_workload("latency", str(folder))
    assert (found.spec, workload.domain) == (spec, "orders")
    assert workload.load.rate_per_second == 200


def test_a_new_domain_may_be_in_the_current_folder(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    assert new_domain("orders", Path()) == tmp_path / "orders"


@pytest.mark.parametrize(
    ("name", "cool_down_s"),
    [("skew", 13), ("large-windows", 5), ("crowd", 13)],  # windows of 10 s; event time runs faster
)
def test_a_workload_of_another_domain_keeps_its_load_and_its_format_only(
    name: str, cool_down_s: int
) -> None:
    _domain, workload = chosen_workload(str(WORKLOADS_DIR / f"{name}.toml"), "flights")
    _own_domain, own = chosen_workload(name, None)
    assert (workload.domain, own.domain) == ("flights", "traffic")
    lasting = own.phases.model_copy(update={"cool_down_s": cool_down_s})
    assert (workload.load, workload.phases) == (own.load, lasting)
    assert (workload.stages, workload.pipelines, workload.windows) == ((), (), {})
    kept = {"format": own.content.format, "second_ms": own.content.second_ms}
    assert workload.content == Content(**kept) != own.content


@pytest.mark.parametrize("domain", ["", "orders", "./orders", "ABSOLUTE", "traffic"])
def test_a_workload_given_as_a_file_keeps_its_settings_on_its_domain(
    domain: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = new_domain("orders", tmp_path)
    named = domain.replace("ABSOLUTE", str(folder))
    line = f'domain = "{named}"' if named else ""
    file = folder / "workloads" / "latency.toml"
    text = file.read_text().replace('domain = "orders"', f'stages = ["totals"]\n{line}')
    file.write_text(f"{text}\n[windows]\ntotals_s = 4\n")
    _domain, workload = chosen_workload("orders/workloads/latency.toml", "./orders")
    used = (("totals",), ("spark-microbatch-builtin",), {"totals_s": 4})
    expected = ((), (), {}) if domain == "traffic" else used
    assert (workload.stages, workload.pipelines, workload.windows) == expected
    assert workload.domain == "orders"


def test_a_copy_of_an_installed_workload_runs_on_any_domain(tmp_path: Path) -> None:
    copy = tmp_path / "mine.toml"
    copy.write_bytes((WORKLOADS_DIR / "latency.toml").read_bytes())
    _domain, workload = chosen_workload(str(copy), "flights")
    assert (workload.domain, workload.stages, workload.content.source) == ("flights", (), "domain")


@pytest.mark.parametrize("name", ["Orders", "9lives", "a-b", "../x", ""])
def test_a_name_that_no_topic_could_have_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(DefinitionError, match="is not a valid domain name"):
        new_domain(name, tmp_path)


def test_a_folder_that_is_there_is_not_written_over(tmp_path: Path) -> None:
    new_domain("orders", tmp_path)
    with pytest.raises(DefinitionError, match="exists already"):
        new_domain("orders", tmp_path)
