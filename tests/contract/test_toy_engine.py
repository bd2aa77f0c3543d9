"""The example of an engine imports nothing of this project, as if it were another language."""

import ast
import tomllib

import pytest

from schemas.engine import NEEDS, EngineSpec
from services.runtime.settings import ROOT

pytestmark = pytest.mark.contract

TOY = ROOT / "examples" / "toy_engine"


def test_its_program_imports_nothing_of_ours() -> None:
    found = set()
    for node in ast.walk(ast.parse((TOY / "engine.py").read_text())):
        if isinstance(node, ast.Import):
            found |= {each.name.split(".")[0] for each in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add(str(node.module).split(".")[0])
    assert {"confluent_kafka", "fastavro"} <= found
    assert found & {"schemas", "services", "deploy", "analysis", "tests"} == set()


def test_it_can_do_everything() -> None:
    spec = EngineSpec.model_validate(tomllib.loads((TOY / "engine.toml").read_text()))
    assert [set(one.can) for one in spec.abilities] == [set(NEEDS)]
