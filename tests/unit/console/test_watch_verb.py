"""Errors of the verb `watch`."""

from argparse import Namespace

import pytest

from schemas.validation_errors import DefinitionError
from services.console.verbs.watching import _cluster, watch

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
