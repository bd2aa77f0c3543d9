"""Watches that are started and ended where the watcher runs."""

import pytest

from services.runtime.settings import EXIT_USAGE
from services.runtime.watches import kept_watch, kept_watches
from services.watcher.__main__ import main

pytestmark = pytest.mark.unit
WATCH = """
name = "orders"
[[inputs]]
topic = "in"
[[outputs]]
topic = "out"
"""


@pytest.fixture(autouse=True)
def data(tmp_path, monkeypatch):
    monkeypatch.setenv("TIDEGAUGE_DATA", str(tmp_path / "data"))
    return tmp_path / "data"


def test_a_watch_is_kept_updated_and_ended(data, tmp_path, capsys):
    file = tmp_path / "orders.toml"
    file.write_text(WATCH)
    main(["keep", str(file)])
    main(["keep", str(file)])
    assert kept_watch(data, "orders").topics() == ("in", "out")
    main(["end", "orders"])
    assert kept_watches(data) == {}
    assert capsys.readouterr().out.splitlines() == [
        "The watch orders starts.",
        "The watch orders is unchanged.",
        "The watch orders is ended.",
    ]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["keep", "/nowhere.toml"], "/nowhere.toml cannot be read"),
        (["end", "orders"], "no watch 'orders'"),
        (["start"], "usage: "),
    ],
)
def test_a_mistake_is_one_sentence(arguments, said, capsys):
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == EXIT_USAGE
    assert said in capsys.readouterr().err
