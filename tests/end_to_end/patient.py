"""A workload for tests of what is right, on a machine that may be busy."""

from pathlib import Path

from services.runtime.settings import ROOT


def patient_workload(folder: Path) -> Path:
    """`latency`, but a busy machine makes nothing late: what is right is tested, not speed."""
    text = (ROOT / "workloads" / "latency.toml").read_text()
    for fast, patient in (
        ("deadline_ms = 10_000", "deadline_ms = 90_000"),
        ("give_up_ms = 20_000", "give_up_ms = 100_000"),
        ("max_send_delay_p99_ms = 50", "max_send_delay_p99_ms = 10_000"),
    ):
        assert fast in text
        text = text.replace(fast, patient)
    path = folder / "patient.toml"
    path.write_text(text)
    return path
