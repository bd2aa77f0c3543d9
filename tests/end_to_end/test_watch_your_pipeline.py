"""Follows docs/watch-your-pipeline.md as a reader would type it."""

import os
import re
import signal
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import pytest

from schemas.watch import Watch
from services.definitions.watches import read_watch
from services.runtime.settings import ROOT
from tests.documentation import blocks
from tests.end_to_end.workload_files import changed_text
from tests.integration.kafka_broker import free_base_port, running_broker

pytestmark = pytest.mark.documented

PAGE = ROOT / "docs" / "watch-your-pipeline.md"
SHOP, INFER, WATCH, AROUND, GATE = blocks(PAGE, "sh")


class Reader:
    """Types the commands of the page, with another Kafka address."""

    def __init__(self, folder: Path, kafka: str) -> None:
        self.folder, self._kafka = folder, kafka
        (folder / "tidegauge").symlink_to(ROOT / "tidegauge")
        (folder / "examples").symlink_to(ROOT / "examples")
        self._environment = os.environ | {
            "TIDEGAUGE_BASE_PORT": str(free_base_port()),
            "TIDEGAUGE_DATA": str(folder / "data"),
            "COLUMNS": "200",
        }

    def begin(self, text: str) -> "subprocess.Popen[str]":
        """Start a command that runs until it is interrupted."""
        text = text.replace("kafka:9092", self._kafka).replace(".venv/bin/python", sys.executable)
        return subprocess.Popen(
            ["sh", "-e", "-c", text],
            cwd=self.folder,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def type(self, text: str) -> str:
        """Run a command to its end; it must succeed."""
        process = self.begin(text)
        said, _ = process.communicate(timeout=200)
        assert process.returncode == 0, f"{text}\n{said}"
        return said

    def until(self, text: str, pattern: str) -> str:
        """Run a command until its output matches, then press Ctrl-C."""
        process, lines = self.begin(text), []
        assert process.stdout is not None
        for line in process.stdout:
            lines.append(line)
            if re.search(pattern, line):
                break
        os.killpg(process.pid, signal.SIGINT)
        rest, _ = process.communicate(timeout=100)
        assert re.search(pattern, "".join(lines), re.M), "".join(lines) + rest
        return "".join(lines) + rest


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[Reader]:
    (tmp_path / "kafka").mkdir()
    with running_broker(tmp_path / "kafka") as kafka:
        found = Reader(tmp_path, kafka.bootstrap)
        shop = found.begin(SHOP)
        try:
            yield found
        finally:
            found.type("./tidegauge down")
            os.killpg(shop.pid, signal.SIGKILL)
            shop.wait()


def test_the_page_leads_to_reports_of_ones_own_topics(reader: Reader) -> None:
    reader.until(
        "until ./tidegauge watch --infer orders shipped --kafka kafka:9092; do :; done",
        "\\[relation\\]",
    )
    reader.type(INFER)
    guessed = read_watch(reader.folder / "orders.toml")
    login, shown, windows, path, limits = (tomllib.loads(text) for text in blocks(PAGE, "toml"))
    assert Watch.model_validate(shown | login).registry.user == "watcher"
    assert Watch.model_validate(shown | windows).relation.kind == "window"
    assert Watch.model_validate(path).stages == ("whole", "price", "pack")
    assert len(Watch.model_validate(shown | limits).limits) == 3
    assert [one.identity for one in guessed.inputs] == [tuple(shown["inputs"][0]["identity"])]
    assert [one.identity for one in guessed.outputs] == [tuple(shown["outputs"][0]["identity"])]
    said = reader.until(WATCH, r"^\d[\d.]* pairs/s, p50 \d+")
    assert "The watch orders is ended" in said
    said = reader.type(AROUND)
    assert re.search(r"watch-orders-\d{8}-\d{6}", said)
    assert "All timestamps are LogAppendTime from one broker." in said
    assert "The watch orders is ended." in said
    said = reader.type(changed_text(GATE, {"120": "10", "p99_ms <= 500": "p99_ms <= 50000"}))
    assert re.search(r"^VALID", said, re.M), said
    failed = reader.begin(changed_text(GATE, {"120": "10", "p99_ms <= 500": "p99_ms <= 0"}))
    said, _ = failed.communicate(timeout=100)
    assert failed.returncode == 3, said
    assert "failed: output.p99_ms <= 0; orders output has" in said
    cases = ElementTree.parse(reader.folder / "watch.xml").iter("testcase")
    assert [case.get("name") for case in cases if case.find("failure") is not None] == [
        "output.p99_ms <= 0"
    ]
