"""Errors of the verb `watch`."""

from argparse import Namespace

import pytest

from schemas.validation_errors import DefinitionError
from services.console.verbs.watching import watch

pytestmark = pytest.mark.unit


def test_a_login_in_the_address_of_a_registry_is_refused_and_not_repeated():
    options = Namespace(infer=["a", "b"], kafka="k:9", registry="http://me:secret@registry")
    with pytest.raises(DefinitionError, match=r"^--registry: url: .* login") as raised:
        watch(options, None, None)
    assert "secret" not in str(raised.value)
