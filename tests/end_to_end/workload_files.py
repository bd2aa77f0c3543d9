"""Workloads of this project with some lines changed, written as files of a test."""

from collections.abc import Mapping
from pathlib import Path

from services.runtime.settings import ROOT

NEVER_LATE = {"max_send_delay_p99_ms = 50": "max_send_delay_p99_ms = 10_000"}


def changed_workload(name: str, path: Path, changes: Mapping[str, str]) -> Path:
    """The workload with these pieces of its text replaced; each must occur in it."""
    path.write_text(changed_text((ROOT / "workloads" / f"{name}.toml").read_text(), changes))
    return path


def changed_text(text: str, changes: Mapping[str, str]) -> str:
    """The text with these pieces replaced; each must occur in it."""
    for piece, other in changes.items():
        assert piece in text, piece
        text = text.replace(piece, other)
    return text


def patient_workload(folder: Path) -> Path:
    """`latency` with tolerances so high that a busy machine makes nothing late: correctness is
    tested, not speed."""
    patient = {
        "deadline_ms = 10_000": "deadline_ms = 90_000",
        "give_up_ms = 20_000": "give_up_ms = 100_000",
        'name = "latency"': 'name = "latency"\nkeep_up_s = 4',
    }
    return changed_workload("latency", folder / "patient.toml", NEVER_LATE | patient)
