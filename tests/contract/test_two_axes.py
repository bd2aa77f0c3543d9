"""Services do not mention an engine."""

import re
from collections.abc import Iterator

import pytest

from services.definitions.pipelines import PIPELINES_DIR, names
from services.runtime.settings import ROOT

pytestmark = pytest.mark.contract

CODE = ("services", "schemas", "analysis", "deploy", "domains", "pipelines", "suites", "workloads")
READ = {".py", ".toml", ".sql", ".js", ".yaml", ".avsc", ".html", ".css"}
PIPELINE = re.compile(
    "(?<![a-z-])("
    + "|".join(sorted(map(re.escape, names(PIPELINES_DIR)), key=len, reverse=True))
    + ")(?![a-z-])"
)
OF_SPARK = (
    "services/spark_pipeline/",
    "domains/traffic/",
    # Files that install it or describe where it runs.
    "deploy/local/build.lock",
    "deploy/images/",
    "deploy/compose/",
    "deploy/kubernetes/",
    "deploy/dependencies/",
    "deploy/local/java.py",
    "pipelines/",
    "services/store/policy/functions.toml",  # names of ClickHouse's functions
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


def lines_with_spark(text: str) -> list[str]:
    """The lines of a lower-case text that contain it, except in the name of a pipeline: pipelines
    are selected by name."""
    left = PIPELINE.sub("", text)
    return [line.strip() for line in left.splitlines() if "spark" in line]


def test_only_the_spark_engine_knows_spark() -> None:
    found = {name: lines_with_spark(text)[:3] for name, text in files(OF_SPARK)}
    assert {name: lines for name, lines in found.items() if lines} == {}


def test_the_checks_find_what_they_are_for() -> None:
    assert lines_with_spark("run spark-realtime\n import pyspark\nspark-realtimes") == [
        "import pyspark",
        "spark-realtimes",
    ]
    assert len(list(files(OF_SPARK))) > 100
