"""Every form of one report, byte for byte: five searches of a series, compared with a baseline.

`data/report.json` is what `--report` wrote. After a wanted change of a form:

    python -m tests.unit.console.test_forms
"""

import io
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.console import Console

from schemas.report import Report
from services.console.report.ci import benchmark, junit, markdown
from services.console.report.html import page
from services.console.report.terminal import show_report
from tests.unit.requests import a_request

pytestmark = pytest.mark.unit

DATA = Path(__file__).with_name("data")
WRITTEN = (DATA / "report.json").read_text()
REPORT = Report.model_validate_json(WRITTEN)


def terminal(report: Report) -> bytes:
    console = Console(file=io.StringIO(), width=160, markup=False, highlight=False)
    show_report(console, report)
    return console.file.getvalue().encode()  # type: ignore[attr-defined,no-any-return]


FORMS: dict[str, Callable[[Report], bytes]] = {
    "txt": terminal,
    "md": lambda report: markdown(report).encode(),
    "html": lambda report: page(report, a_request().model_dump(mode="json"), None).encode(),
    "xml": junit,
    "benchmark": benchmark,
}


def test_a_report_is_written_as_it_was_read() -> None:
    assert json.dumps(REPORT.as_json(), indent=2) + "\n" == WRITTEN


@pytest.mark.parametrize("form", FORMS)
def test_a_form_is_as_before(form: str) -> None:
    assert FORMS[form](REPORT).decode() == (DATA / f"report.{form}").read_text()


if __name__ == "__main__":
    for name, render in FORMS.items():
        (DATA / f"report.{name}").write_bytes(render(REPORT))
