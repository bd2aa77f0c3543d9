"""Every version reads the data folders of all releases before it (docs/versions.md)."""

import json
import shutil
import tarfile
from collections.abc import Iterator
from typing import Any

import pytest

from tests.faults.breakable_stack import FOR_EVER, BreakableStack, eventually
from tests.faults.packed_folder import DATA, Json, answer, answers

pytestmark = pytest.mark.faults

RELEASES = sorted(path.stem for path in DATA.glob("*.json"))


class Packed:
    """A packed folder, unpacked, and what its release answered."""

    def __init__(self, version: str, stack: BreakableStack) -> None:
        self.stack = stack
        self.then: Json = json.loads((DATA / f"{version}.json").read_text())
        self.run_ids = list(self.then["answers"]["reports"])

    def answers(self) -> Json:
        """The same about the same runs now."""
        return answers(self.stack, self.run_ids, self.then["columns"])

    def answers_as_then(self) -> bool:
        """Whether all is as then; a later version may add to it."""
        return _contains(self.answers(), self.then["answers"])


@pytest.fixture(scope="module", params=RELEASES)
def packed(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Packed]:
    folder = tmp_path_factory.mktemp("packed")
    with tarfile.open(DATA / f"{request.param}.tar.xz") as archive:
        archive.extractall(folder, filter="data")
    stack = BreakableStack(folder / "data")
    yield Packed(request.param, stack)
    stack.tidegauge("down")


def _contains(now: Any, then: Any) -> bool:
    if isinstance(then, dict):
        return all(name in now and _contains(now[name], value) for name, value in then.items())
    if isinstance(then, list) and isinstance(now, list):
        return len(now) == len(then) and all(map(_contains, now, then))
    return bool(now == then)


def test_a_folder_is_read_rebuilt_from_its_bus_and_continued(packed: Packed) -> None:
    assert packed.answers_as_then()
    packed.stack.start(**FOR_EVER)
    assert "Every table holds the same rows as before." in answer(packed.stack, "rebuild")
    assert packed.answers_as_then()
    packed.stack.has_clean_run()
    assert packed.answers_as_then()


def test_its_bus_alone_gives_the_same_answers(packed: Packed) -> None:
    packed.stack.tidegauge("down")
    shutil.rmtree(packed.stack.settings.data / "clickhouse")
    packed.stack.start(**FOR_EVER)
    digests = packed.then["answers"]["digests"]
    eventually(lambda: packed.answers()["digests"] == digests, "all is projected from its bus")
    assert packed.answers_as_then()
    assert packed.stack.tidegauge("down").returncode == 0
