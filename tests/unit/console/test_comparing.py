"""The verb `compare`."""

import io
from typing import Any

import pytest
from rich.console import Console

from analysis.comparability import Facts
from services.console import comparing

pytestmark = pytest.mark.unit


def test_the_pipelines_of_a_run_in_turns_are_compared_as_its_report_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = {
        "said": "b is faster than a in join p50.",
        "pairs": [{}] * 20,
        "block_s": 10,
        "edge_s": 1,
        "confidence": 0.95,
    }
    report: dict[str, Any] = {"run_id": "r", "domain": "traffic", "environment": {}}
    report |= {"valid": True, "interleaved": found}
    request = {"workload": {"name": "latency", "load": {}}}

    def facts(_url: str, _run_id: str) -> Facts:
        return Facts(report, request, {})

    monkeypatch.setattr(comparing, "read_facts", facts)
    console = Console(file=io.StringIO(), width=200)
    comparing.show_comparison(console, "nowhere", ["r"], None)
    assert console.file.getvalue() == (  # type: ignore[attr-defined]
        "Interleaved: b is faster than a in join p50.\n"
        "From 20 pairs of blocks of 10 s, using the middle 8 s of each; all intervals hold "
        "together with 95% confidence.\n"
    )
