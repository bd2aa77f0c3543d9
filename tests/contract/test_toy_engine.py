"""The example engine imports nothing of this project, as if it were written in another language."""

import ast
import tomllib
from pathlib import Path

import pytest

from schemas.engine import NEEDS, EngineSpec
from services.runtime.settings import ROOT

pytestmark = pytest.mark.contract

TOY = ROOT / "examples" / "toy_engine"
STAGES = ROOT / "engines" / "python" / "stages"


def imported(path: Path) -> set[str]:
    """Names of the packages that a module imports."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {each.name.split(".")[0] for each in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add(str(node.module).split(".")[0])
    return found


def test_its_program_and_the_kinds_it_shares_import_nothing_of_ours() -> None:
    found = {name for path in (TOY / "engine.py", *STAGES.glob("*.py")) for name in imported(path)}
    assert {"confluent_kafka", "fastavro", "stages"} <= found
    assert found & {"schemas", "services", "deploy", "analysis", "tests"} == set()


def test_it_can_do_everything() -> None:
    spec = EngineSpec.model_validate(tomllib.loads((TOY / "engine.toml").read_text()))
    assert [set(one.can) for one in spec.abilities] == [set(NEEDS)]
