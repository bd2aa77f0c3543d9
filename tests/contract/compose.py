"""`deploy/compose/compose.yaml` as interpreted without any variable set."""

import re
from typing import Any

import yaml

from services.runtime.settings import ROOT

FOLDER = ROOT / "deploy" / "compose"
COMPOSE: dict[str, Any] = yaml.safe_load((FOLDER / "compose.yaml").read_text())
PARTS: dict[str, dict[str, Any]] = COMPOSE["services"]


OF_KAFKAS_IMAGE = {"CLUSTER_ID", "KAFKA_HEAP_OPTS"}


def kafka_properties() -> dict[str, str]:
    """The broker's properties, as its image derives them from its environment."""
    return {
        _property(name): value_of(text).replace("$$", "$")
        for name, text in PARTS["kafka"]["environment"].items()
        if name not in OF_KAFKAS_IMAGE
    }


def _property(variable: str) -> str:
    """`KAFKA_A_B___C__D` is `a.b-c_d`."""
    signs = {"_": ".", "__": "_", "___": "-"}
    name = variable.removeprefix("KAFKA_").lower()
    return re.sub("_+", lambda found: signs[found[0]], name)


def value_of(text: str) -> str:
    """The value of a text with `${NAME:-default}` if no variable is set."""
    return re.sub(r"\$\{[A-Z_]+:-([^}]*)\}", r"\1", text)
