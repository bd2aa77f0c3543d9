"""The verb `engines`."""

import json

import pytest

from services.console.terminal import Terminal
from services.runtime.settings import ServiceSettings
from tests.command_line import carried_out

pytestmark = pytest.mark.unit


@pytest.mark.parametrize("is_quiet", [False, True])
def test_progress_of_an_installation_is_not_in_the_json(
    monkeypatch: pytest.MonkeyPatch, is_quiet: bool
) -> None:
    monkeypatch.setattr(
        "deploy.local.engines.install_engines", lambda _engines, _settings, say: say("…")
    )
    words = ["engines", "calibration", "--install", "--json"]
    done = carried_out(words, ServiceSettings(), Terminal(is_quiet))
    assert json.loads(done.stdout)
    assert done.stderr == ("" if is_quiet else "…\n")
