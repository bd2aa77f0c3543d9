"""Positions saved by released versions are read by all later ones (docs/versions.md).

`data/VERSION.position` is what `saved_by_this_version` left in that version.
"""

import shutil
from pathlib import Path

import pytest

from services.definitions.watches import keep_watch, position_path
from services.watcher import position
from tests.unit.watcher.test_watching import answered, resumed
from tests.unit.watcher.watches import shop

pytestmark = pytest.mark.unit

DATA = Path(__file__).with_name("data")
RELEASES = sorted(path.stem for path in DATA.glob("*.position"))
OUTPUTS_MS = {5_000: 5_003, 5_001: 5_012}  # by input


def saved_by_this_version(context) -> Path:
    """The position of a watch with three inputs, two of which have an output."""
    watching = answered(shop(run_s=5), context, OUTPUTS_MS)
    watching.save()
    return watching.path


@pytest.mark.parametrize("release", RELEASES)
def test_a_watch_continues_from_the_position_of_a_release(bus, context, release):
    watch, path = shop(run_s=5), position_path(context.settings.data, "w")
    path.parent.mkdir(parents=True)
    shutil.copy(DATA / f"{release}.position", path)
    keep_watch(context.settings.data, watch)
    again = resumed(watch, context)
    (totals,) = again.watched.counting.totals.values()
    assert (totals.inputs, totals.outputs) == (3, 2)
    assert (totals.verdicts["exact"], totals.verdicts["late"]) == (1, 1)
    assert totals.latencies.counts() == {3: 1, 11: 1}


@pytest.mark.parametrize("release", RELEASES)
def test_what_a_release_has_saved_is_still_saved(bus, context, release):
    _, now = position.load(saved_by_this_version(context))
    _, then = position.load(DATA / f"{release}.position")
    assert then.keys() <= now.keys()
    assert then["watch"] == now["watch"]
