"""docs/sql.md lists every view."""

import re

import pytest

from services.runtime.settings import ROOT

pytestmark = pytest.mark.contract


def test_every_view_has_a_row_on_the_page_about_sql() -> None:
    text = "".join(path.read_text() for path in (ROOT / "deploy" / "clickhouse").glob("*.sql"))
    views = set(re.findall(r"CREATE OR REPLACE VIEW tidegauge\.(\w+)", text))
    page = (ROOT / "docs" / "sql.md").read_text()
    section = page.partition("## All views")[2].partition("\n## ")[0]
    rows = [line.split("|")[1] for line in section.splitlines() if line.startswith("| `")]
    assert sorted(re.findall(r"`(\w+)`", "".join(rows))) == sorted(views)
