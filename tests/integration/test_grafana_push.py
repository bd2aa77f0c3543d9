"""`tidegauge grafana` with a double of Grafana's HTTP API."""

import json
from io import StringIO

import pytest
from rich.console import Console

from schemas.validation_errors import DefinitionError
from services.console.grafana import dashboard_files, grafana
from tests.integration.grafana_double import GrafanaDouble, serving

pytestmark = pytest.mark.integration
STORE = "http://127.0.0.1:17072"
UIDS = sorted(model["uid"] for _folder, model in dashboard_files())


@pytest.fixture
def double(monkeypatch):
    found = GrafanaDouble()
    monkeypatch.setenv("GRAFANA_TOKEN", found.token)
    monkeypatch.delenv("TIDEGAUGE_CLICKHOUSE_PASSWORD", raising=False)
    with serving(found):
        yield found


def asked(double, action, **more):
    """(exit code, output)."""
    text = StringIO()
    options = {"url": double.url} | more
    code = grafana(Console(file=text, width=200), STORE, action, **options)
    return code, text.getvalue()


def test_a_push_creates_data_source_folder_and_dashboards(double):
    code, said = asked(double, "push")
    assert code == 0, said
    assert sorted(double.dashboards) == UIDS
    assert list(double.folders) == ["tidegauge"]
    assert double.datasources["tidegauge"]["type"] == "grafana-clickhouse-datasource"
    options = double.datasources["tidegauge"]["jsonData"]
    assert (options["host"], options["port"], options["protocol"]) == ("127.0.0.1", 17072, "http")
    assert "data source Tidegauge: created" in said
    assert "dashboard Live: created" in said


def test_a_second_push_changes_nothing(double):
    asked(double, "push")
    double.writes.clear()
    code, said = asked(double, "push")
    assert code == 0
    assert double.writes == []
    assert "dashboard Live: unchanged" in said


def test_what_somebody_changed_is_put_right_and_nothing_else(double):
    asked(double, "push")
    double.writes.clear()
    double.dashboards["tidegauge-live"]["dashboard"]["title"] = "Mine"
    double.datasources["tidegauge"]["jsonData"]["port"] = 1
    code, said = asked(double, "push")
    assert code == 0
    assert double.writes == ["PUT /api/datasources/uid/tidegauge", "POST /api/dashboards/db"]
    assert double.dashboards["tidegauge-live"]["dashboard"]["title"] == "Live"
    assert "dashboard Live: updated" in said


def test_a_provisioned_data_source_is_left_alone(double):
    asked(double, "push")
    double.datasources["tidegauge"] |= {"readOnly": True, "jsonData": {"port": 1}}
    code, said = asked(double, "push")
    assert code == 0
    assert "provisioned by a file and was not changed" in said
    assert double.datasources["tidegauge"]["jsonData"] == {"port": 1}


def test_every_query_is_asked_with_values_and_left_its_macros(double):
    asked(double, "push")
    wanted = sum(
        len(model["panels"])
        + len(model["annotations"]["list"])
        + sum(variable["type"] == "query" for variable in model["templating"]["list"])
        for _folder, model in dashboard_files()
    )
    assert len(double.queries) == wanted
    asked_for = [query["queries"][0]["rawSql"] for query in double.queries]
    assert any("$__timeFilter(second)" in sql for sql in asked_for)
    assert any("run_id = 'chosen'" in sql for sql in asked_for)
    assert not any("sqlstring" in sql or "conditionalAll" in sql for sql in asked_for)
    assert all(int(query["to"]) - int(query["from"]) == 3_600_000 for query in double.queries)


def test_verify_writes_nothing_and_says_how_many_queries_answer(double):
    asked(double, "push")
    double.writes.clear()
    code, said = asked(double, "verify")
    assert (code, double.writes) == (0, [])
    assert f"{len(double.queries) // 2} of {len(double.queries) // 2} queries answer" in said


def test_a_panel_whose_query_fails_is_named_with_the_reason(double):
    double.failing = "generator_send_delays"
    code, said = asked(double, "push")
    assert code == 1
    assert "not done: Live, Send delay of the generator: Code: 47. Unknown identifier" in said
    assert "not done: Run, Send delay of the generator: Code: 47. Unknown identifier" in said
    assert said.count("not done") == 2


def test_what_may_not_be_done_is_named_each_for_itself(double):
    double.read_only = True
    code, said = asked(double, "push")
    assert code == 1
    assert "not done: data source Tidegauge: You'll need additional permissions" in said
    assert "not done: folder Tidegauge: You'll need additional permissions" in said
    assert "not done: dashboard Live: You'll need additional permissions" in said
    assert double.dashboards == {}


def test_a_missing_plugin_and_an_old_grafana_are_named(double):
    double.plugin, double.version = False, "11.5.2"
    code, said = asked(double, "push")
    assert code == 1
    assert "The plugin grafana-clickhouse-datasource is not installed" in said
    assert "Grafana 11.5.2 is older than 11.6" in said
    assert sorted(double.dashboards) == UIDS


def test_verify_before_a_push_says_what_is_missing(double):
    code, said = asked(double, "verify")
    assert code == 1
    assert "not done: There is no data source Tidegauge: ./tidegauge grafana push" in said
    assert "not done: dashboard Live: is not there" in said


def test_secrets_are_neither_printed_nor_read_back(double, monkeypatch):
    monkeypatch.setenv("TIDEGAUGE_CLICKHOUSE_PASSWORD", "hunter2-of-clickhouse")
    _code, said = asked(double, "push", user="reader", clickhouse="https://click.example:8443")
    there = double.datasources["tidegauge"]
    assert there["secureJsonFields"] == {"password": True}
    assert there["jsonData"]["secure"] is True
    assert "hunter2" not in said + json.dumps(there)
    assert double.token not in said


def test_a_wrong_token_ends_with_one_sentence(double, monkeypatch):
    monkeypatch.setenv("GRAFANA_TOKEN", "wrong-token")
    with pytest.raises(DefinitionError, match="Invalid API key") as error:
        asked(double, "push")
    assert "wrong-token" not in str(error.value)


def test_without_a_token_it_is_said_where_to_put_one(double, monkeypatch):
    monkeypatch.delenv("GRAFANA_TOKEN")
    with pytest.raises(DefinitionError, match="Set GRAFANA_TOKEN"):
        asked(double, "verify")


def test_a_grafana_that_is_not_there_ends_with_one_sentence(monkeypatch):
    monkeypatch.setenv("GRAFANA_TOKEN", "t")
    with serving(GrafanaDouble()) as gone:
        pass
    with pytest.raises(DefinitionError, match="cannot be reached"):
        asked(gone, "verify")


def test_an_address_that_is_none_is_refused(monkeypatch):
    monkeypatch.setenv("GRAFANA_TOKEN", "t")
    with pytest.raises(DefinitionError, match="is not a URL"):
        asked(GrafanaDouble(url="grafana:3000"), "push")
