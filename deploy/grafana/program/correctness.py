"""Correctness: the ledger of every output, and details of outputs that were not exact."""

from grafana_foundation_sdk.builders import dashboard as dash
from grafana_foundation_sdk.builders import stat, table, timeseries

from deploy.grafana.program import panels, recurring, sql
from deploy.grafana.program.frame import asked, frame, placed
from deploy.grafana.program.panels import NONE_IS_GOOD, About, figures, graph, rows

CHOSEN = f"$__timeFilter(second) AND {sql.CHOSEN_PIPELINES}"
UNPLANNED = f"{CHOSEN} AND {sql.unplanned('$__timeFilter(second)')}"
NOT_JUDGED = "No output was checked in this time range. Start a run: ./tidegauge run"
ALL_EXACT = "Every output in this time range was exact."


def build() -> dash.Dashboard:
    """The dashboard."""
    result = frame(
        "correctness",
        "Correctness",
        "The ledger: a verdict on every expected and every unexpected output.",
        (asked("pipelines", "Pipelines", "Pipelines to show", sql.PIPELINE_VALUES, several=True),),
        since="now-1h",
        refresh="30s",
    )
    return placed(
        result,
        _totals(),
        _share(),
        _by_time(),
        _failed_by_time(),
        _ledger(),
        _lost(),
        _offenders(),
        _dead_letters(),
        _sent(),
    )


def _totals() -> stat.Panel:
    return recurring.failed(
        About(
            "Outputs that were not exact",
            "wrong: not the expected value; missing: never published; late: published after the "
            "deadline; duplicate: published again; unexpected: not derived from any input. Runs "
            "that kill a part and pipelines that plant faults are not counted.",
            "short",
            width=16,
            height=5,
            empty=NOT_JUDGED,
        ),
        UNPLANNED,
    )


def _share() -> stat.Panel:
    return figures(
        About(
            "Share of exact outputs",
            "Exact verdicts divided by all verdicts in this time range. Runs that kill a part and "
            "pipelines that plant faults are not counted.",
            "percentunit",
            width=8,
            height=5,
            empty=NOT_JUDGED,
        ),
        f"""
SELECT
    sum(v.exact)
    / sum(v.exact + v.wrong + v.missing + v.late + v.duplicate + v.unexpected) AS exact
FROM results_verdicts AS v
WHERE {UNPLANNED}
HAVING count() > 0
""",
        ((None, panels.BAD), (1, panels.GOOD)),
    )


def _by_time() -> timeseries.Panel:
    return recurring.verdicts_over_time(
        About(
            "Verdicts over time",
            "Verdicts per second, by output time. Missing outputs count at the time of their "
            "latest input.",
            "cps",
            empty=NOT_JUDGED,
        ),
        CHOSEN,
    )


def _failed_by_time() -> timeseries.Panel:
    return recurring.verdicts_over_time(
        About(
            "Outputs that were not exact over time",
            "Verdicts per second without exact, so that even one in a million is visible.",
            "cps",
            empty=NOT_JUDGED,
        ),
        CHOSEN,
        recurring.FAILED,
    )


def _ledger() -> table.Panel:
    return rows(
        About(
            "Ledger by pipeline and stage",
            "Verdicts of all phases in this time range. Only the measured phase counts for a run.",
            "short",
            height=9,
            empty=NOT_JUDGED,
        ),
        f"""
SELECT
    pipeline,
    stage,
    {sql.verdict_sums(panels.VERDICTS)}
FROM results_verdicts AS v
WHERE {CHOSEN}
GROUP BY pipeline, stage
ORDER BY pipeline, {sql.stage_order()}
LIMIT 200
""",
        {"pipeline": "string", "stage": "string"},
        judged=dict.fromkeys(recurring.FAILED, NONE_IS_GOOD),
    )


def _lost() -> table.Panel:
    return rows(
        About(
            "Lost on the whole way",
            "Of whole loads over TCP, UDP or ZeroMQ: results due that did not come and records "
            "that did not arrive, by place. Empty cells: the system did not tell.",
            "short",
            height=8,
            empty="No run of this time range was sent over the network.",
        ),
        f"""
SELECT
    run_id,
    transport,
    pipeline,
    stage,
    due,
    received,
    lost,
    lost_before AS before,
    lost_inside AS inside,
    lost_after AS after
FROM losses
WHERE run_id IN (SELECT run_id FROM results_verdicts WHERE {CHOSEN})
ORDER BY run_id DESC, pipeline, stage
LIMIT 200
""",
        dict.fromkeys(("run_id", "transport", "pipeline", "stage"), "string"),
        judged={"lost": NONE_IS_GOOD},
    )


def _offenders() -> table.Panel:
    return rows(
        About(
            "Samples of outputs that were not exact",
            "The newest samples, with expected and actual values. The evaluator keeps a limited "
            "number of samples per second.",
            "string",
            height=9,
            empty=ALL_EXACT,
        ),
        f"""
SELECT
    second AS time,
    pipeline,
    stage,
    JSONExtractString(sample, 'verdict') AS verdict,
    sample
FROM results_verdicts
ARRAY JOIN samples AS sample
WHERE {CHOSEN}
ORDER BY second DESC
LIMIT 100
""",
        {"time": "dateTimeAsIso"},
    )


def _dead_letters() -> table.Panel:
    return rows(
        About(
            "Records that could not be read",
            "Records of any topic that could not be decoded, by topic and reason. Their bytes are "
            "in the table dead_letter.",
            "string",
            height=7,
            empty="Every record in this time range could be read.",
        ),
        """
SELECT topic, reason, count() AS records, max(d.time) AS last
FROM dead_letter AS d
WHERE $__timeFilter(d.time)
GROUP BY topic, reason
ORDER BY records DESC
LIMIT 100
""",
        {"records": "short", "last": "dateTimeAsIso"},
    )


def _sent() -> timeseries.Panel:
    return graph(
        About(
            "Records intended, acknowledged and failed",
            "Records scheduled by the load shape, acknowledged by the broker, and not sent, per "
            "second of scheduled time. If the lines differ, the load was not as intended.",
            "recps",
            height=7,
        ),
        """
SELECT
    $__timeInterval(second) AS time,
    sum(intended) / $__interval_s AS intended,
    sum(acknowledged) / $__interval_s AS acknowledged,
    sum(failed) / $__interval_s AS failed
FROM results_generator
WHERE $__timeFilter(second)
GROUP BY time
ORDER BY time
""",
        {"intended": panels.GREY, "acknowledged": panels.BLUE, "failed": panels.VERMILION},
    )
