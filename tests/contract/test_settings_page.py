"""docs/settings.md has every setting with its default, and every port."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr
from pydantic.fields import FieldInfo

from deploy.local.broker import BrokerSettings
from deploy.local.supervisor import SupervisionSettings
from services.runtime.ports import DEFAULT_BASE_PORT, PORT_OFFSETS
from services.runtime.settings import ROOT
from tests.contract.service_settings import PREFIX, SETTINGS
from tests.contract.test_documentation import of_tests

pytestmark = pytest.mark.contract

PAGE = (ROOT / "docs" / "settings.md").read_text()
ROWS = dict(re.findall(rf"^\| `({PREFIX}[A-Z_]+)` \| (.+?) \|", PAGE, re.M))
FIELDS: dict[str, FieldInfo] = {
    name: field
    for settings in (*SETTINGS.values(), BrokerSettings, SupervisionSettings)
    for name, field in settings.model_fields.items()
}
# Set by the local deployment, for its own processes.
OURS = {"stack_id"}


def shown(default: Any) -> str:
    """A default as the page shows it; empty for defaults described in words."""
    if isinstance(default, SecretStr) or default is None or default == "":
        return ""
    if isinstance(default, Path):
        return f"`{default.relative_to(ROOT)}`"
    if isinstance(default, (bool, dict, tuple)):
        return f"`{json.dumps(default)}`"
    return f"`{default}`"


@pytest.mark.parametrize("name", sorted(set(FIELDS) - OURS))
def test_every_setting_stands_on_the_page_with_its_default(name: str) -> None:
    default = FIELDS[name].get_default(call_default_factory=True, validated_data={})
    cell = ROWS[f"{PREFIX}{name.upper()}"]
    assert cell == shown(default) if shown(default) else "`" not in cell


def test_every_variable_of_benchmarks_and_tests_stands_on_the_page() -> None:
    inner = {f"{PREFIX}BENCH_MESSAGES", f"{PREFIX}DATA", f"{PREFIX}WAITS"}
    assert of_tests() - inner - set(ROWS) == set()


def test_every_port_of_a_stack_has_a_row() -> None:
    rows = re.findall(r"^\| (\d{5}) \| (\d+) \|", PAGE, re.M)
    ports = sorted(PORT_OFFSETS.values())
    assert rows == [(str(DEFAULT_BASE_PORT + offset), str(offset)) for offset in ports]
