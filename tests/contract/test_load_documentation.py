"""The pages about loads and domains are accurate."""

import re
import tomllib

import pytest

from schemas.load import SHAPES
from schemas.protocol import Workload
from services.definitions.domains import checked, load_domain
from services.runtime.settings import ROOT

pytestmark = pytest.mark.contract

TEXT = (ROOT / "docs" / "loads.md").read_text()
PAGES = ("loads", "traffic", "gem-packs", "flights")
BLOCKS = [
    block
    for page in PAGES
    for block in re.findall(
        r"```toml\n(.*?)```", (ROOT / "docs" / f"{page}.md").read_text(), re.DOTALL
    )
]


@pytest.mark.parametrize("block", BLOCKS)
def test_every_example_is_a_part_of_a_workload(block):
    part = tomllib.loads(block)
    rest = {"name": "w", "summary": "-", "load": {"rate_per_second": 1}}
    workload = Workload.model_validate(rest | part)
    assert Workload.model_validate_json(workload.model_dump_json()) == workload
    checked(workload, load_domain(workload.domain))


def test_every_shape_has_an_example():
    assert set(re.findall(r'shape = "(\w+)"', TEXT)) == {
        one.model_fields["shape"].default for one in SHAPES
    }
