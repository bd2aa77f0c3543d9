"""Services do not mention words of a domain or an engine."""

import re
from collections.abc import Iterator

import pytest

from services.definitions.files import names
from services.definitions.pipelines import PIPELINES_DIR
from services.runtime.settings import ROOT

pytestmark = pytest.mark.contract

CODE = ("services", "schemas", "analysis", "deploy", "domains", "pipelines", "suites", "workloads")
READ = {".py", ".toml", ".sql", ".js", ".yaml", ".avsc", ".html", ".css"}
TRAFFIC = ("site", "lane", "flow", "speed", "measurement")
# Words of traffic with another meaning: file, word, reason.
MEANT_OTHERWISE = {
    ("deploy/clickhouse/065_load_views.sql", "speed"): "of a replay",
    ("schemas/load.py", "speed"): "how many times as fast a replay is",
    ("services/generator/dataset_plan.py", "speed"): "of a replay",
    ("services/definitions/engines.py", "site"): "the folder site-packages of an environment",
    ("services/runtime/virtual_environments.py", "site"): "the folder site-packages",
    ("services/store/http_guard.py", "site"): "the header Sec-Fetch-Site",
    ("services/store/http_request.py", "site"): "the header Sec-Fetch-Site",
    ("services/store/http_interface.py", "site"): "a web site",
}
PIPELINE = re.compile(
    "(?<![a-z-])("
    + "|".join(sorted(map(re.escape, names(PIPELINES_DIR)), key=len, reverse=True))
    + ")(?![a-z-])"
)
OF_TRAFFIC = ("domains/traffic/",)
OF_SPARK = (
    "services/spark_pipeline/",
    "domains/traffic/",
    # Files that install it or describe where it runs.
    "deploy/local/ivy",
    "deploy/local/build.lock",
    "deploy/images/",
    "deploy/compose/",
    "deploy/kubernetes/",
    "deploy/dependencies/",
    "deploy/local/jars.py",  # Ivy is bundled with it
    "deploy/local/java.py",
    "pipelines/",
    "services/store/functions.toml",  # names of ClickHouse's functions
)


def files(allowed: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """Path and lower-case text of every file that must not contain the words."""
    for folder in CODE:
        for path in sorted((ROOT / folder).rglob("*")):
            name = path.relative_to(ROOT).as_posix()
            if path.suffix in READ and not name.startswith(
                (*allowed, "services/store/viewer/vendor")
            ):
                yield name, path.read_text().lower()


def says(text: str, word: str) -> bool:
    """Whether a lower-case text contains it as a word, or as a part of a name between
    underscores."""
    return bool(re.search(rf"(?<![a-z]){word}s?(?![a-z])", text))


def lines_with_spark(text: str) -> list[str]:
    """The lines of a lower-case text that contain it, except in the name of a pipeline: pipelines
    are selected by name."""
    left = PIPELINE.sub("", text)
    return [line.strip() for line in left.splitlines() if "spark" in line]


def test_only_traffic_knows_traffic() -> None:
    found = {
        (name, word) for name, text in files(OF_TRAFFIC) for word in TRAFFIC if says(text, word)
    }
    assert found - set(MEANT_OTHERWISE) == set()
    assert set(MEANT_OTHERWISE) - found == set(), "no longer needed"


def test_only_the_spark_engine_knows_spark() -> None:
    found = {name: lines_with_spark(text)[:3] for name, text in files(OF_SPARK)}
    assert {name: lines for name, lines in found.items() if lines} == {}


def test_the_checks_find_what_they_are_for() -> None:
    assert says("num_lanes", "lane")
    assert not says("overflow workflows", "flow")
    assert lines_with_spark("run spark-realtime\n import pyspark\nspark-realtimes") == [
        "import pyspark",
        "spark-realtimes",
    ]
    assert len(list(files(OF_TRAFFIC))) > 100
