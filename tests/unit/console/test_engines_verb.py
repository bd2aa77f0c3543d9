"""The verb `engines`."""

import json
from argparse import Namespace

import pytest

from services.console.terminal import Terminal
from services.console.verbs import definitions
from services.runtime.settings import ServiceSettings

pytestmark = pytest.mark.unit


@pytest.mark.parametrize("is_quiet", [False, True])
def test_progress_of_an_installation_is_not_in_the_json(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], is_quiet: bool
) -> None:
    monkeypatch.setattr(definitions, "install_engines", lambda _engines, _settings, say: say("…"))
    options = Namespace(name="calibration", install=True, json=True)
    assert definitions.engines(options, ServiceSettings(), Terminal(is_quiet)) == 0
    shown = capsys.readouterr()
    assert json.loads(shown.out)
    assert shown.err == ("" if is_quiet else "…\n")
