"""Grafana's own checks while provisioning alert rules and data sources, applied to our files.

A file that fails one of these prevents Grafana from starting. Each check names its origin in
Grafana's source (10, 11 and 13 agree), and is tested with a broken file that it must reject.
"""

import copy
import json
import re
from collections.abc import Callable
from typing import Any

import pytest
import yaml

from deploy.grafana.program import alerts
from deploy.grafana.program.__main__ import ALERTS, DASHBOARDS, FOLDER, GRAFANA
from services.runtime.settings import ROOT
from tests.contract.compose import PARTS

pytestmark = pytest.mark.contract

Part = dict[str, Any]
Check = Callable[[Part], bool]
FILE: Part = json.loads(ALERTS.read_text())
(GROUP,) = FILE["groups"]
RULES: list[Part] = GROUP["rules"]
KUBERNETES = list(
    yaml.safe_load_all((ROOT / "deploy" / "kubernetes" / "base" / "grafana.yaml").read_text())
)
DURATION = r"0|(?=\d)(\d+y)?(\d+w)?(\d+d)?(\d+h)?(\d+m)?(\d+s)?(\d+ms)?"


def is_uid(text: str) -> bool:
    """pkg/util/shortid_generator.go, ValidateUID."""
    return re.fullmatch(r"[a-zA-Z0-9_-]{1,40}", text) is not None


def is_linked_to_a_panel(rule: Part) -> bool:
    """pkg/services/ngalert/models/alert_rule.go, SetDashboardAndPanelFromAnnotations: both
    annotations or neither, and the panel's is an integer."""
    link = {name for name in rule["annotations"] if name.startswith("__")}
    panel = rule["annotations"].get("__panelId__", "")
    return link == {"__dashboardUid__", "__panelId__"} and panel.isdecimal()


def has_a_valid_uid(rule: Part) -> bool:
    """pkg/services/ngalert/models/alert_rule.go, ValidateAlertRule."""
    return is_uid(rule["uid"])


def has_a_title_of_190_bytes_at_most(rule: Part) -> bool:
    """pkg/services/ngalert/store/alert_rule.go, AlertRuleMaxTitleLength."""
    return 0 < len(rule["title"].encode()) <= 190


def waits_for_a_duration(rule: Part) -> bool:
    """pkg/services/provisioning/alerting/rules_types.go, mapToModel: Prometheus durations."""
    return re.fullmatch(DURATION, rule["for"]) is not None


def has_known_states(rule: Part) -> bool:
    """pkg/services/ngalert/models/alert_rule.go, NoDataStateFromString and ErrStateFromString."""
    states = {"Alerting", "OK", "KeepLast"}
    return rule["noDataState"] in states | {"NoData"} and rule["execErrState"] in states | {"Error"}


def looks_back(rule: Part) -> bool:
    """pkg/services/ngalert/models/alert_query.go, PreSave: `from` before `to`, except in
    expressions."""
    asked = [part for part in rule["data"] if part["datasourceUid"] != "__expr__"]
    ranges = [
        (part["relativeTimeRange"]["from"], part["relativeTimeRange"]["to"]) for part in asked
    ]
    return ranges != [] and all(type(start) is int and start > end for start, end in ranges)


def asks_of_parts_that_are_there(rule: Part) -> bool:
    """pkg/expr/graph.go and pkg/services/ngalert/eval: each part has a unique name, and the
    condition and the expressions refer to existing parts."""
    names = [part["refId"] for part in rule["data"]]
    named = {part["model"].get("expression", names[0]) for part in rule["data"]}
    same = all(part["refId"] == part["model"]["refId"] for part in rule["data"])
    return same and len(set(names)) == len(names) and named | {rule["condition"]} <= set(names)


def holds_texts_only(rule: Part) -> bool:
    """pkg/services/provisioning/values/values.go, StringMapValue."""
    texts = [*rule["labels"].values(), *rule["annotations"].values()]
    return all(type(text) is str for text in texts)


def leaves_the_reserved_labels_alone(rule: Part) -> bool:
    """pkg/services/ngalert/models/alert_rule.go, LabelsUserCannotSpecify."""
    return not any(name.startswith(("__", "grafana_")) for name in rule["labels"])


def has_nothing_to_expand(rule: Part) -> bool:
    """pkg/services/provisioning/values/values.go, interpolateValue: ${…} and $__file{…} are
    expanded immediately, in queries too; elsewhere a bare $name is an environment variable."""
    texts = json.dumps([rule["title"], rule["uid"], rule["labels"], rule["annotations"]])
    return "$" not in texts and not re.search(r"\$(__\w+)?\{", json.dumps(rule["data"]))


def has_known_fields(rule: Part) -> bool:
    """pkg/services/provisioning/alerting/rules_types.go, AlertRuleV1: others are silently
    ignored."""
    known = "uid title condition data noDataState execErrState for annotations labels isPaused"
    return set(rule) <= set(known.split())


BROKEN_RULES: dict[Check, dict[str, Any]] = {
    is_linked_to_a_panel: {"annotations": {"summary": "…", "__dashboardUid__": "tidegauge-live"}},
    has_a_valid_uid: {"uid": "tidegauge-a-name-that-is-over-forty-letters"},
    has_a_title_of_190_bytes_at_most: {"title": "é" * 96},
    waits_for_a_duration: {"for": "one minute"},
    has_known_states: {"execErrState": "Keep"},
    looks_back: {"data": [{"datasourceUid": "a", "relativeTimeRange": {"from": 0, "to": 0}}]},
    asks_of_parts_that_are_there: {"condition": "B"},
    holds_texts_only: {"annotations": {"__panelId__": 5}},
    leaves_the_reserved_labels_alone: {"labels": {"__grafana_receiver__": "me"}},
    has_nothing_to_expand: {"data": [{"model": {"rawSql": "SELECT '${HOME}'"}}]},
    has_known_fields: {"pause": True},
}


@pytest.mark.parametrize("check", BROKEN_RULES, ids=lambda check: check.__name__)
def test_every_alert_rule(check: Check) -> None:
    assert [rule["title"] for rule in RULES if not check(rule)] == []
    assert not check(copy.deepcopy(RULES[0]) | BROKEN_RULES[check])


def test_an_alert_rule_leads_to_the_panel_that_shows_its_number() -> None:
    panels = {
        (found["uid"], str(panel["id"])): panel["title"]
        for found in (json.loads(path.read_text()) for path in DASHBOARDS.rglob("*.json"))
        for panel in found["panels"]
    }
    for rule, written in zip(alerts.RULES, RULES, strict=True):
        link = written["annotations"]
        assert panels[link["__dashboardUid__"], link["__panelId__"]] == rule.panel, rule.name


def test_alert_rules_of_a_folder_have_titles_and_uids_of_their_own() -> None:
    """pkg/services/ngalert/models/alert_rule.go, ErrAlertRuleUniqueConstraintViolation."""
    assert len({rule["title"] for rule in RULES}) == len({rule["uid"] for rule in RULES}) == 8


def test_the_group_has_a_name_a_folder_and_an_interval_of_whole_ten_seconds() -> None:
    """pkg/services/provisioning/alerting/rules_types.go, MapToModel; ValidateRuleGroupInterval in
    pkg/services/ngalert/models/alert_rule.go."""
    assert 0 < len(GROUP["name"]) <= 190
    assert GROUP["interval"] == "1m"  # 60 s
    assert (FILE["apiVersion"], GROUP["orgId"]) == (1, 1)


def test_the_alert_rules_have_a_folder_that_no_dashboard_is_in() -> None:
    """pkg/services/provisioning/provisioning.go, starting: Grafana 13 provisions alert rules and
    dashboards concurrently, and each creates a folder that it does not find by title."""
    assert GROUP["folder"].strip("/ ")
    assert "/" not in GROUP["folder"]
    assert {path.name for path in DASHBOARDS.iterdir()} == {FOLDER}
    assert GROUP["folder"] != FOLDER


def test_the_alerting_folder_holds_nothing_else() -> None:
    """pkg/services/provisioning/alerting/config_reader.go: up to Grafana 9 another suffix prevents
    the start; every .yaml, .yml and .json is read."""
    assert [path.name for path in ALERTS.parent.iterdir()] == ["tidegauge.json"]


def named(kind: str, name: str) -> Part:
    return next(
        each for each in KUBERNETES if (each["kind"], each["metadata"]["name"]) == (kind, name)
    )


def source_files() -> dict[str, Part]:
    """Every file of data sources, by its deployment."""
    texts = {
        "local": (GRAFANA / "provisioning" / "datasources" / "tidegauge.yaml").read_text(),
        "compose": (ROOT / "deploy/compose/grafana/datasources.yaml").read_text(),
        "kubernetes": named("ConfigMap", "grafana-datasources")["data"]["tidegauge.yaml"],
    }
    return {place: yaml.safe_load(text) for place, text in texts.items()}


SOURCES = source_files()


@pytest.mark.parametrize("place", SOURCES)
def test_a_data_source_is_one_that_grafana_takes(place: str) -> None:
    """pkg/services/datasources/service (name, uid), pkg/services/provisioning/datasources
    (fields, access, one default)."""
    assert SOURCES[place]["apiVersion"] == 1
    (source,) = SOURCES[place]["datasources"]
    known = {"name", "uid", "type", "access", "isDefault", "jsonData", "secureJsonData"}
    assert set(source) <= known
    assert 0 < len(source["name"]) <= 190
    assert is_uid(source["uid"])
    assert not is_uid("tide gauge")
    assert source["uid"] == alerts.DATASOURCE_UID
    assert source["access"] == "proxy"
    assert all(type(text) is str for text in source["secureJsonData"].values())


def test_a_password_file_of_a_data_source_is_mounted() -> None:
    """pkg/setting/expanders.go, fileExpander: a missing file prevents the start."""
    secrets = PARTS["grafana"]["secrets"]
    assert password("compose") in [f"$__file{{/run/secrets/{name}}}" for name in secrets]
    (pod,) = [named("Deployment", "grafana")["spec"]["template"]["spec"]]
    (folder,) = [
        mount["mountPath"]
        for mount in pod["containers"][0]["volumeMounts"]
        if mount["name"] == "passwords"
    ]
    assert password("kubernetes") == f"$__file{{{folder}/clickhouse_reader}}"


def password(place: str) -> str:
    text = SOURCES[place]["datasources"][0]["secureJsonData"]["password"]
    assert isinstance(text, str)
    return text


def test_the_provider_of_dashboards_is_one_that_grafana_takes() -> None:
    """pkg/services/provisioning/dashboards, config_reader.go and file_reader.go."""
    path = GRAFANA / "provisioning" / "dashboards" / "tidegauge.yaml"
    assert [each.name for each in path.parent.iterdir()] == [path.name]
    found = yaml.safe_load(path.read_text())
    (provider,) = found["providers"]
    assert found["apiVersion"] == 1
    assert provider["type"] == "file"
    assert provider["updateIntervalSeconds"] > 0
    assert provider["options"]["foldersFromFilesStructure"] is True
    assert not {"folder", "folderUid"} & set(provider)  # not allowed with foldersFromFilesStructure
    place = provider["options"]["path"]
    assert f"../grafana/dashboards:{place}:ro" in PARTS["grafana"]["volumes"]


def is_a_dashboard(found: Part) -> bool:
    """pkg/services/dashboards/service/dashboard_service.go, BuildSaveDashboardCommand: uid, title,
    and a refresh interval of at least five seconds."""
    refresh = re.fullmatch(r"(\d+)([sm])", found["refresh"])
    seconds = int(refresh[1]) * {"s": 1, "m": 60}[refresh[2]] if refresh else 0
    titled = 0 < len(found["title"].strip()) <= 5000 and found["title"] != FOLDER
    return is_uid(found["uid"]) and titled and seconds >= 5 and "id" not in found


BROKEN_DASHBOARDS = [
    {"uid": "a b"},
    {"title": " "},
    {"title": FOLDER},
    {"refresh": "1s"},
    {"id": 1},
]


def test_every_dashboard_is_one_that_grafana_saves() -> None:
    files = [json.loads(path.read_text()) for path in sorted(DASHBOARDS.rglob("*.json"))]
    assert [found["title"] for found in files if not is_a_dashboard(found)] == []
    assert not any(is_a_dashboard(files[0] | broken) for broken in BROKEN_DASHBOARDS)
    for name in ("uid", "title"):  # duplicates make the provider read-only
        assert len({found[name] for found in files}) == len(files) == 10
