"""Runs every command of README and docs, in the order of the pages, and checks its result.

The commands are run as written, in a copy of this folder and on one stack. documented.py defines
changes to them and the expected results.
"""

import itertools
import re
import shlex
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.documentation import COMMANDS
from tests.end_to_end.documented import (
    gates,
    measures,
    of_the_machine,
    rule_of,
    told_invalid,
    without_figures,
    writes_a_page,
)
from tests.end_to_end.reader import Reader

pytestmark = pytest.mark.documented

WRITTEN = ("--html", "--junit", "--output", "--report")


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reader]:
    with ExitStack() as held:
        found = Reader(tmp_path_factory.mktemp("reader"), held)
        try:
            yield found
        finally:
            found.close()


@pytest.mark.parametrize(
    ("page", "line"),
    COMMANDS,
    ids=[
        f"{number:03}-{page}-{line.partition('  #')[0]}"
        for number, (page, line) in enumerate(COMMANDS)
    ],
)
def test_a_command_does_what_its_page_says(reader: Reader, page: str, line: str) -> None:
    rule = rule_of(page, line)
    if rule.engine and reader.shell(rule.engine).code != 0:
        pytest.skip(f"{line.split(maxsplit=1)[0]}, or what it needs, is not on this machine")
    reader.prepare(page, rule)
    deadline_s = time.monotonic() + rule.within_s
    done = reader.follow(page, line, rule)
    while not re.search(rule.says, done.text) and time.monotonic() < deadline_s:
        done = reader.follow(page, line, rule)
    assert rule.judge(done), f"exit code {done.code}\n{done.text}"
    if rule.judge in (measures, gates) and done.code == 1:
        pytest.skip("INVALID: " + " ".join(told_invalid(done.text)))
    if rule.judge is writes_a_page and done.code:
        (written_page,) = re.findall(r"^Wrote (.+\.md)$", done.text, re.M)
        reasons = without_figures((reader.copy / written_page).read_text())
        assert of_the_machine(*reasons), done.text
        pytest.skip("INVALID: " + " ".join(reasons))
    assert re.search(rule.says, done.text), f"it does not say {rule.says!r}\n{done.text}"
    for path in written(line):
        assert (reader.copy / path).stat().st_size > 0, path


def test_nothing_is_left_running(reader: Reader) -> None:
    reader.close()
    assert reader.left() == []


def written(line: str) -> list[Path]:
    """Files named by a command's options."""
    words = shlex.split(line, comments=True)
    return [Path(word) for option, word in itertools.pairwise(words) if option in WRITTEN]
