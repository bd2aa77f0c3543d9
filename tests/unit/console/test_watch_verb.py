"""Errors of the verb `watch`."""

import json
import os
from argparse import Namespace

import pytest
from rich.console import Console

from schemas.validation_errors import DefinitionError
from schemas.watch import Watch
from services.console.verbs.watching import _cluster, watch
from services.runtime.settings import ServiceSettings
from services.runtime.watches import keep_watch, position_path

pytestmark = pytest.mark.unit


def test_a_login_in_the_address_of_a_registry_is_refused_and_not_repeated():
    registry = "http://me:secret@registry"
    options = Namespace(infer=["a", "b"], file=None, kafka="k:9", registry=registry)
    with pytest.raises(DefinitionError, match=r"^--registry: url: .* login") as raised:
        watch(options, None, None)
    assert "secret" not in str(raised.value)


def test_logins_come_from_a_file_that_others_cannot_read(tmp_path):
    file = tmp_path / "cluster.toml"
    file.write_text('[kafka]\nbootstrap = "k:9"\n[kafka.properties]\n"sasl.password" = "s"\n')
    options = Namespace(infer=["a", "b"], file=file, kafka="", registry="http://registry")
    file.chmod(0o644)
    with pytest.raises(DefinitionError, match="readable by others"):
        watch(options, None, None)
    file.chmod(0o600)
    found = _cluster(options)
    assert found.kafka.properties == {"sasl.password": "s"}
    assert (found.kafka.bootstrap, found.registry.url) == ("k:9", "http://registry")


def test_watches_are_listed_with_their_topics(tmp_path, capsys):
    settings = ServiceSettings(data=tmp_path)
    sides = {"inputs": [{"topic": "in"}], "outputs": [{"topic": "out"}]}
    keep_watch(tmp_path, Watch.model_validate({"name": "orders", **sides}))
    options = Namespace(infer=None, end=None, file=None, json=False)
    watch(options, settings, Console())
    assert capsys.readouterr().out == "orders: in → out, position saved never\n"
    position = position_path(tmp_path, "orders")
    position.parent.mkdir()
    position.touch()
    os.utime(position, (0, 0))
    watch(Namespace(**vars(options) | {"json": True}), settings, Console())
    assert json.loads(capsys.readouterr().out) == [
        {
            "name": "orders",
            "inputs": ["in"],
            "outputs": ["out"],
            "saved_at": "1970-01-01T00:00:00+00:00",
            "problem": "",
        }
    ]


@pytest.mark.parametrize("text", ["", "{", '{"name": "Ü"}'])
def test_a_watch_whose_file_cannot_be_read_is_listed_as_such(tmp_path, capsys, text):
    (tmp_path / "watches").mkdir()
    (tmp_path / "watches" / "orders.json").write_text(text)
    options = Namespace(infer=None, end=None, file=None, json=False)
    watch(options, ServiceSettings(data=tmp_path), Console())
    said = "orders: its file cannot be read; end it with: tidegauge watch --end orders\n"
    assert capsys.readouterr().out == said
