"""The dashboards in deploy/grafana are what their program writes."""

import pytest

from deploy.grafana.program.__main__ import DASHBOARDS, files

pytestmark = pytest.mark.unit


def test_the_committed_dashboards_are_current():
    """Else: python -m deploy.grafana.program"""
    written = dict(files())
    assert set(DASHBOARDS.rglob("*.json")) == set(written)
    for path, text in written.items():
        assert path.read_text() == text, path.name
