"""Details of a search's conclusions, as the conductor publishes them, with literal values."""

A_STEP = {
    "step": 1,
    "step_run_id": "r1-step-01",
    "rate_per_second": 8000.0,
    "long": False,
    "measured_s": 15,
    "sustained": False,
    "reasons": ["parse: median latency rises by 120 ms a second."],
    "steady": False,
    "moving": ["spark-microbatch parse: p50 rose by 1800 ms in 10 s, from 500 to 2300 ms"],
    "warm_up_s": 12,
    "intended": 184_000,
    "failed_sends": 0,
    "cpu_share": 0.5,
    "stages": {
        "parse": {
            "medians_ms": [500.0, 2300.0],
            "highest_median_ms": 2300.0,
            "rise_ms_per_s": 120.0,
            "drained_s": 3.0,
            "missing": 0,
            "longest_queue_records": 16_000,
            "last_queue_records": 16_000,
        }
    },
}
A_SILENT_STEP = {
    "step": 2,
    "step_run_id": "r1-step-02",
    "rate_per_second": 4000.0,
    "long": False,
    "measured_s": 15,
    "sustained": False,
    "reasons": ["The generator was late.", "Nothing was observed."],
    "intended": 0,
    "failed_sends": 0,
    "cpu_share": None,
    "stages": {},
}
A_RESULT = {
    "pipeline": "spark-microbatch",
    "stages": ["parse"],
    "policy": "steady-latency",
    "rate_per_second": 5820.0,
    "interval_per_second": [5820.0, 6600.0],
    "confirmed": True,
    "limit": ["parse: median latency rises by 40 ms a second."],
    "steps": [],
    "verified_at_per_second": 5238.0,
    "verified": True,
    "ended_by": "precision",
}
