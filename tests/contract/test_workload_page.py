"""The page on workloads names every setting, with its default."""

import re

import pytest
from pydantic_core import PydanticUndefined

from schemas.search import QueueThresholds, Scaling, Search, SteadyLatency
from schemas.workload import Judgement, Kill, Phases, Validity, Workload
from services.runtime.settings import ROOT

pytestmark = pytest.mark.contract

PAGE = (ROOT / "docs" / "write-a-workload.md").read_text().partition("## All settings")[2]
# Tables of a workload that have one of their own on the page, or another page.
TABLES = ("load", "content", "faults", "phases", "judgement", "validity", "search")
INSIDE = {SteadyLatency: "steady_latency.", QueueThresholds: "queue."}
AUTO = ("step_warm_up_s",)  # told as "auto"


def settings() -> list[tuple[str, object]]:
    """Name and default of every setting, as on the page."""
    models = (Workload, Phases, Judgement, Validity, Search, SteadyLatency, QueueThresholds)
    return [
        (f"{INSIDE.get(model, '')}{name}", field.get_default(call_default_factory=True))
        for model in (*models, Scaling, Kill)
        for name, field in model.model_fields.items()
        if not (model is Workload and name in TABLES)
        and not (model is Search and name in ("steady_latency", "queue"))
    ]


@pytest.mark.parametrize(("name", "default"), settings())
def test_a_setting_is_on_the_page_with_its_default(name: str, default: object) -> None:
    lines = [
        line for line in PAGE.splitlines() if re.search(rf"[`({{ ]{re.escape(name)}[` ]", line)
    ]
    assert lines, name
    if default is PydanticUndefined or name in AUTO:
        return
    if isinstance(default, bool | str):
        written = f"`{str(default).lower()}`" if default != "" else "empty"
        assert written in lines[0].split("|")[2], lines[0]
    elif isinstance(default, int | float):
        numbers = re.findall(r"\b\d[\d_]*(?:\.\d+)?(?:e-?\d+)?\b", lines[0])
        assert default in map(float, numbers), lines[0]
