"""The finished runs of a study are stored; an unreadable file gives one sentence."""

import pytest

from schemas.validation_errors import DefinitionError
from services.console.studies.carry_out import Note, open_notebook

pytestmark = pytest.mark.unit


def test_what_was_noted_is_there_after_an_interruption(tmp_path):
    open_notebook(tmp_path, "s", "small").add("a", Note("run-1", valid=True))
    again = open_notebook(tmp_path, "s", "small")
    assert again.of("a") == [Note("run-1", valid=True)]
    assert not again.is_open("a", tries=2)
    assert open_notebook(tmp_path, "s", "full").notes == {}


def test_an_invalid_run_is_done_again_until_its_tries_are_used_up(tmp_path):
    notebook = open_notebook(tmp_path, "s", "small")
    assert notebook.is_open("a", tries=2)
    notebook.add("a", Note("run-1", valid=False))
    assert notebook.is_open("a", tries=2)
    notebook.add("a", Note("run-2", valid=False))
    assert not notebook.is_open("a", tries=2)
    assert notebook.chosen("a") == Note("run-2", valid=False)


def test_the_valid_run_counts(tmp_path):
    notebook = open_notebook(tmp_path, "s", "small")
    notebook.add("a", Note("run-1", valid=False))
    notebook.add("a", Note("run-2", valid=True))
    assert notebook.chosen("a") == Note("run-2", valid=True)
    assert notebook.chosen("b") is None


@pytest.mark.parametrize("text", ["", "{", '{"a": 1}', '{"a": [{"run": 1}]}', "[]"])
def test_a_damaged_file_says_what_to_do(tmp_path, text):
    path = tmp_path / "studies" / "s-small.json"
    path.parent.mkdir()
    path.write_text(text)
    with pytest.raises(DefinitionError, match="remove it to restart the study"):
        open_notebook(tmp_path, "s", "small")
