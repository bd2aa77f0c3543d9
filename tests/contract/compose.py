"""`deploy/compose/compose.yaml` as it is read without a variable set."""

import re
from typing import Any

import yaml

from services.runtime.settings import ROOT

FOLDER = ROOT / "deploy" / "compose"
COMPOSE: dict[str, Any] = yaml.safe_load((FOLDER / "compose.yaml").read_text())
PARTS: dict[str, dict[str, Any]] = COMPOSE["services"]


def value_of(text: str) -> str:
    """What a text with `${NAME:-default}` in it is when nothing is set."""
    return re.sub(r"\$\{[A-Z_]+:-([^}]*)\}", r"\1", text)
