"""Java's properties files: Java reads back the written values."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.runtime.files import properties_text

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("value", "line"),
    [
        ("/home/jörg/data", "k=/home/j\\u00f6rg/data\n"),
        ("C:\\new folder", "k=C:\\\\new folder\n"),
        ("  two blanks", "k=\\ \\ two blanks\n"),
        ("a=b:c#d!e", "k=a=b:c#d!e\n"),
        ("one\ntwo\ttabs", "k=one\\ntwo\\ttabs\n"),
        ("🌊", "k=\\ud83c\\udf0a\n"),
        (1024, "k=1024\n"),
        ("", "k=\n"),
    ],
)
def test_a_value_is_one_line_of_ascii(value, line):
    assert properties_text({"k": value}) == line


def test_a_key_cannot_end_early_or_become_a_comment():
    assert properties_text({"#a b:c=d": "1"}) == "\\#a\\ b\\:c\\=d=1\n"


def java_reads(text):
    """As specified for java.util.Properties.load, for text without continuation lines."""
    found = {}
    for line in text.splitlines():
        if not line.lstrip(" \t\f") or line.lstrip(" \t\f")[0] in "#!":
            continue
        key = re.match(r"(?:\\.|[^\\ \t\f:=])*", line)[0]
        rest = re.sub(r"^[ \t\f]*[:=]?[ \t\f]*", "", line[len(key) :])
        found[unescaped(key)] = unescaped(rest)
    return found


def unescaped(text):
    letters = {"n": "\n", "r": "\r", "t": "\t", "f": "\f"}

    def one(match):
        escape = match[0][1:]
        return chr(int(escape[1:], 16)) if len(escape) == 5 else letters.get(escape, escape)

    units = re.sub(r"\\u[0-9a-f]{4}|\\.", one, text)
    return units.encode("utf-16-be", "surrogatepass").decode("utf-16-be", "surrogatepass")


@given(st.dictionaries(st.text(min_size=1), st.text()))
def test_every_key_and_value_is_read_back(values):
    text = properties_text(values)
    assert text.isascii()
    assert java_reads(text) == values
