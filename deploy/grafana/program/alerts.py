"""Alert rules and contact points in Grafana's file provisioning format.

A rule runs one query, whose text columns become labels and whose numeric column is compared with a
limit. No rows means no alert. Grafana leaves `$` in these files unchanged only in queries and
annotations. A rule links to the panel with its data; Grafana rejects a dashboard link without a
panel.

Contact points are made from the settings of the conductor's webhooks, and the rules use them
directly, so that existing notification policies in Grafana are not changed.

Grafana reads an address in a file itself (`$__file{…}`, as in grafana.ini), so the file written
here does not contain the secret of a `url_file`.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from deploy.grafana.program import sql
from deploy.grafana.program.panels import PLUGIN
from schemas.protocol import FAILED_VERDICTS
from schemas.suite import NoticeKind
from services.conductor.notices import notice
from services.runtime.webhooks import Webhook

# Not the dashboards' folder: Grafana provisions both concurrently, and each creates its folder.
FOLDER: Final = "Tidegauge alerts"
DATASOURCE_UID: Final = "tidegauge"  # as in provisioning/datasources/tidegauge.yaml
REPORTED: Final = ", ".join(f"'{kind}'" for kind in notice.REPORTED)
UID_DIGITS: Final = 16
TYPES: Final = {"json": "webhook", "slack": "slack", "teams": "teams"}


def _of_no_step(table: str) -> str:
    """Leaves out the steps of searches, which overload pipelines, and floors. table: of the rows in
    the time range."""
    return f"""
run_id NOT IN (
    SELECT run_id FROM results_lifecycle
    WHERE event = 'run_requested' AND JSONExtractString(detail, 'step_of') != ''
        AND run_id IN (SELECT run_id FROM {table} AS w WHERE $__timeFilter(w.time))
)
""".strip()


@dataclass(frozen=True)
class Rule:
    """One rule: fires for every row whose number exceeds `limit`, after `pending_s`.

    looks_back_s: time range of the query's macros. dashboard, panel: uid of the dashboard and title
    of the panel that shows the number. kinds: of the notifications of the conductor that report the
    same, or its consequence (docs/notifications.md). without_answer: state if the query fails.
    """

    name: str
    title: str
    summary: str
    dashboard: str
    panel: str
    kinds: tuple[NoticeKind, ...]
    sql: str
    limit: float
    looks_back_s: int = 300
    pending_s: int = 0
    without_answer: str = "KeepLast"


RULES: Final = (
    Rule(
        "ledger-not-clean",
        "The ledger is not clean",
        "Outputs of a pipeline were wrong, missing, late, duplicate or unexpected. Steps of "
        "searches, runs that kill a part, pipelines that plant faults, and verdicts that a watch "
        "limits by a threshold are not counted.",
        "tidegauge-correctness",
        "Ledger by pipeline and stage",
        ("unclean",),
        f"""
SELECT pipeline, stage, toFloat64(sum(counted)) AS outputs
FROM
(
    SELECT run_id, pipeline, stage, one.1 AS verdict, sum(one.2) AS counted
    FROM results_verdicts AS v
    ARRAY JOIN [{", ".join(f"('{name}', {name})" for name in FAILED_VERDICTS)}] AS one
    WHERE $__timeFilter(v.time) AND phase = 'measure' AND {_of_no_step("results_verdicts")}
        AND {sql.unplanned("$__timeFilter(w.time)")}
    GROUP BY run_id, pipeline, stage, verdict
)
WHERE (run_id, verdict) NOT IN (
    {sql.limited("$__timeFilter(w.time)")}
)
GROUP BY pipeline, stage
""",
        limit=0,
    ),
    Rule(
        "threshold-failed",
        "A threshold failed",
        "A figure of a run, or of an hour of a watch, is over its limit. Steps of searches are not "
        "counted.",
        "tidegauge-overview",
        "Problems",
        ("threshold",),
        f"""
SELECT pipeline, stage, threshold, toFloat64(countIf(NOT passed)) AS runs
FROM threshold_results AS t
WHERE $__timeFilter(t.time) AND {_of_no_step("results_conclusions")}
GROUP BY pipeline, stage, threshold
""",
        limit=0,
    ),
    Rule(
        "watch-problem",
        "A watch has a problem",
        "A watch lost records, so its hour is invalid; or it cannot read or decode records, does "
        "not know the lag of a group, or its process died.",
        "tidegauge-watch",
        "Events",
        ("invalid", "watch_trouble"),
        f"""
SELECT
    JSONExtractString(detail, 'watch') AS watch,
    JSONExtractString(detail, 'kind') AS what,
    JSONExtractString(detail, 'topic') AS topic,
    toFloat64(countIf(
        JSONExtractString(detail, 'invalid') != ''
        OR what IN ({REPORTED})
    )) AS problems
FROM results_lifecycle AS e
WHERE $__timeFilter(e.time) AND event = 'watch_trouble'
GROUP BY watch, what, topic
""",
        limit=0,
    ),
    Rule(
        "latency-change-point",
        "A figure got worse",
        "A change point was found in the history of a suite or a watch: since a run of the last "
        "day, a latency is higher or a sustainable rate lower than before.",
        "tidegauge-history",
        "Change points",
        ("change_point",),
        """
SELECT
    JSONExtractString(detail, 'workload') AS workload,
    JSONExtractString(detail, 'pipeline') AS pipeline,
    JSONExtractString(detail, 'stage') AS stage,
    JSONExtractString(detail, 'metric') AS metric,
    toFloat64(count()) AS change_points
FROM results_conclusions AS c
WHERE $__timeFilter(c.time) AND kind = 'change_point' AND JSONExtractBool(detail, 'worse')
GROUP BY workload, pipeline, stage, metric
""",
        limit=0,
        looks_back_s=86_400,
    ),
    Rule(
        "evaluator-lag",
        "The evaluator is behind",
        "The evaluator reads records that are over 30 s old. Results are delayed but correct.",
        "tidegauge-live",
        "Evaluator lag",
        ("no_results",),
        """
SELECT toFloat64(argMax(JSONExtractInt(detail, 'lag_ms'), (e.time, e._offset))) AS lag_ms
FROM results_lifecycle AS e
WHERE $__timeFilter(e.time) AND event = 'evaluating'
HAVING count() > 0
""",
        limit=30_000,
        pending_s=60,
    ),
    Rule(
        "generator-late",
        "The generator sends late",
        "The p99 of the send delay is over the limit of the workload (max_send_delay_p99_ms). The "
        "current run may be invalid. Steps of searches are not counted.",
        "tidegauge-live",
        "Send delay of the generator",
        ("invalid",),
        """
SELECT s.run_id AS run_id, max(s.p99_ms / q.limit_ms) AS share_of_limit
FROM
(
    SELECT run_id, quantileExactWeighted(0.99)(send_delay_us, count) / 1000 AS p99_ms
    FROM generator_send_delays
    WHERE $__timeFilter(second) AND phase = 'measure'
    GROUP BY run_id
) AS s
INNER JOIN
(
    SELECT
        run_id,
        JSONExtractFloat(detail, 'workload', 'validity', 'max_send_delay_p99_ms') AS limit_ms
    FROM results_lifecycle
    WHERE event = 'run_requested' AND JSONExtractString(detail, 'step_of') = '' AND limit_ms > 0
        AND run_id IN (SELECT run_id FROM results_generator WHERE $__timeFilter(second))
) AS q ON q.run_id = s.run_id
GROUP BY run_id
""",
        limit=1,
    ),
    Rule(
        "store-behind",
        "The store is behind",
        "The newest sample that can be queried is over a minute old. The collector samples every "
        "second while a stack is running, so the store is behind or the stack is down.",
        "tidegauge-live",
        "Data age",
        ("part_down", "no_results"),
        """
SELECT toFloat64(dateDiff('second', max(r.time), now64(3))) AS age_s
FROM results_resources AS r
HAVING count() > 0
""",
        limit=60,
        pending_s=60,
        without_answer="Error",
    ),
    Rule(
        "service-silent",
        "A service is silent",
        "A service of the last hour has had no process for over a minute, while others had one.",
        "tidegauge-resources",
        "CPU cores by service",
        ("part_down",),
        """
SELECT
    service,
    toFloat64(dateDiff('second', max(r.time), max(max(r.time)) OVER ())) AS silent_s
FROM results_resources AS r
WHERE $__timeFilter(r.time) AND pipeline = ''
GROUP BY service
""",
        limit=60,
        looks_back_s=3600,
    ),
)


def uid(rule: Rule) -> str:
    """Its uid in Grafana."""
    return f"tidegauge-{rule.name}"


def provisioning(panels: Mapping[tuple[str, str], int]) -> dict[str, Any]:
    """The file's content.

    panels: id of every panel by uid of its dashboard and its title. KeyError if one is missing.
    """
    group = {"orgId": 1, "name": "tidegauge", "folder": FOLDER, "interval": "1m"}
    rules = [_rule(rule, panels[rule.dashboard, rule.panel]) for rule in RULES]
    return {"apiVersion": 1, "groups": [group | {"rules": rules}]}


def _rule(rule: Rule, panel_id: int) -> dict[str, Any]:
    return {
        "uid": uid(rule),
        "title": rule.title,
        "condition": "C",
        "for": f"{rule.pending_s}s",
        "noDataState": "OK",
        "execErrState": rule.without_answer,
        "isPaused": False,
        "labels": {"suite": "tidegauge"},
        "annotations": {
            "summary": rule.summary,
            "__dashboardUid__": rule.dashboard,
            "__panelId__": str(panel_id),
        },
        "data": [_query(rule), _threshold(rule.limit)],
    }


def _query(rule: Rule) -> dict[str, Any]:
    return {
        "refId": "A",
        "relativeTimeRange": {"from": rule.looks_back_s, "to": 0},
        "datasourceUid": DATASOURCE_UID,
        "model": {
            "refId": "A",
            "datasource": {"type": PLUGIN, "uid": DATASOURCE_UID},
            "editorType": "sql",
            "queryType": "table",
            "format": 1,
            "rawSql": rule.sql.strip(),
        },
    }


def _threshold(limit: float) -> dict[str, Any]:
    return {
        "refId": "C",
        "relativeTimeRange": {"from": 0, "to": 0},
        "datasourceUid": "__expr__",
        "model": {
            "refId": "C",
            "type": "threshold",
            "datasource": {"type": "__expr__", "uid": "__expr__"},
            "expression": "A",
            "conditions": [{"evaluator": {"type": "gt", "params": [limit]}}],
        },
    }


KINDS: Final = {uid(rule): set(rule.kinds) for rule in RULES}


def with_contact_points(
    provisioned: Mapping[str, Any], webhooks: Mapping[str, Webhook]
) -> dict[str, Any]:
    """The alerting file with a contact point for every set of webhooks that a rule notifies.
    Without webhooks it is unchanged. A rule that no webhook selects is deleted."""
    if not webhooks:
        return dict(provisioned)
    selected = {
        uid: tuple(name for name, each in webhooks.items() if not each.on or kinds & set(each.on))
        for uid, kinds in KINDS.items()
    }
    receivers = {uid: names for uid, names in selected.items() if names}
    groups = []
    for group in provisioned["groups"]:
        rules = [rule for rule in group["rules"] if rule["uid"] in receivers]
        groups.append(group | {"rules": [_sent(rule, receivers[rule["uid"]]) for rule in rules]})
    return {
        **provisioned,
        "contactPoints": [_point(names, webhooks) for names in dict.fromkeys(receivers.values())],
        "groups": groups,
        # Grafana keeps a rule that is only absent from the file.
        "deleteRules": [{"orgId": 1, "uid": uid} for uid in KINDS if uid not in receivers],
    }


def _sent(rule: dict[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    return rule | {"notification_settings": {"receiver": _name(names)}}


def _name(names: tuple[str, ...]) -> str:
    return f"Tidegauge: {', '.join(names)}"


def _point(names: tuple[str, ...], webhooks: Mapping[str, Webhook]) -> dict[str, Any]:
    name = _name(names)
    receivers = [_receiver(f"{name}/{each}", webhooks[each]) for each in names]
    return {"orgId": 1, "name": name, "receivers": receivers}


def _receiver(place: str, webhook: Webhook) -> dict[str, Any]:
    """place: what identifies it. Grafana requires a distinct uid in every contact point."""
    settings = {"url": _value(webhook.url, webhook.url_file)}
    if webhook.token_file:
        settings["authorization_scheme"] = "Bearer"
        settings["authorization_credentials"] = _value("", webhook.token_file)
    uid = f"tidegauge-{hashlib.sha256(place.encode()).hexdigest()[:UID_DIGITS]}"
    return {"uid": uid, "type": TYPES[webhook.shape], "settings": settings}


def _value(text: str, file: Path | None) -> str:
    """Grafana looks for a relative path in a folder of its own."""
    return f"$__file{{{file.absolute()}}}" if file else text.replace("$", "$$")
