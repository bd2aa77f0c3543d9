"""Reports and studies for tests."""

from typing import Any

from schemas.report import Report
from schemas.study import Study
from tests.unit.reports import report_of


def report(valid: bool = True, clean: bool = True, **stages: Any) -> Report:
    """Report of a run of the pipeline `p`; stages: their cells."""
    found = {
        "valid": valid,
        "invalid_reasons": [] if valid else ["The generator was late."],
        "conclusion": {"clean": clean, "search": {"rate_per_second": 4200.0}},
        "environment": {"processor": "Z80", "cores": 2, "memory_bytes": 8e9, "packages": {"a": 1}},
        "pipelines": {
            "p": {
                "stages": stages,
                "resources": {
                    "memory_bytes_max": 250_000_000,
                    "heap_used_bytes_mean": 70_000_000,
                    "core_seconds_per_million_records": 31.5,
                },
            }
        },
    }
    return report_of(found)


def cell(p50: float | None = None, p99: float | None = None, **more: Any) -> dict[str, Any]:
    """A stage's cell."""
    latest = {} if p50 is None else {"p50": p50, "p99": p99}
    return {"latency_ms": {"latest": latest, "event_time": {"p99": 77}}} | more


def study(**changes: Any) -> Study:
    """Two systems, one of which is in the paper, and one experiment."""
    fields = {
        "name": "s",
        "title": "A study",
        "question": "Which?",
        "source": "A paper",
        "method": "By runs.",
        "differs": ["Everything."],
        "scores_paper": "Table 2",
        "limits": {"small": {}, "full": {"minutes": 600}},
        "systems": [
            {"name": "Fast", "pipeline": "spark-realtime", "paper": "Quick"},
            {"name": "Slow", "pipeline": "spark-microbatch"},
        ],
        "experiments": [experiment()],
        "scores": [
            {
                "workload": "Latency",
                "factor": "all",
                "experiment": "latency",
                "figure": "p99_ms",
                "stages": ["parse"],
                "paper": {"Quick": 4},
            }
        ],
    }
    return Study.model_validate(fields | changes)


def experiment(**changes: Any) -> dict[str, Any]:
    """An experiment with two stages."""
    return {
        "name": "latency",
        "title": "Latency",
        "asks": "How long?",
        "paper": "Fig. 2",
        "workload": "latency",
        "stages": ["parse", "join"],
        "figures": ["p50_ms", "p99_ms"],
        "scales": {"small": {"workload": {"phases": {"measure_s": 7}}}, "full": {"apart": True}},
        "paper_values": [
            {"system": "Quick", "stage": "parse", "where": "§5", "values": {"p50_ms": 1}}
        ],
    } | changes
