"""The tokens of a query and the limits checked before parsing."""

import time

import pytest

from services.store.policy.sql_statements import NotAllowedError, data_begins, plain, substituted
from services.store.policy.sql_tokens import Kind, TextError, scan, tokens

pytestmark = pytest.mark.unit


def kinds(text):
    return [(token.kind.value, token.text) for token in tokens(text)]


def test_a_text_falls_into_words_names_numbers_literals_and_signs():
    assert kinds("SELECT a.1, `b c`, \"d\", 'it''s \\' x', 0x1F, 1.5e-3 -> -- end") == [
        ("word", "SELECT"),
        ("word", "a"),
        ("sign", "."),
        ("number", "1"),
        ("sign", ","),
        ("name", "b c"),
        ("sign", ","),
        ("name", "d"),
        ("sign", ","),
        ("string", "'it''s \\' x'"),
        ("sign", ","),
        ("number", "0x1F"),
        ("sign", ","),
        ("number", "1.5e-3"),
        ("sign", "->"),
    ]


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("1 -- x ' \r 2\n3", ["1", "3"]),
        ("1 /* a /* ' */ b */ 2", ["1", "2"]),
        ("1 # x '\n2", ["1", "2"]),
        ("1 #! x '\n2", ["1", "2"]),
        ("$a$ ' $b$ $a$", ["$a$ ' $b$ $a$"]),
        ("$$ ' $$", ["$$ ' $$"]),
        ("''''", ["''''"]),
        ("'\\\\' 1", ["'\\\\'", "1"]),
    ],
)
def test_comments_are_left_out_and_heredocs_are_literals(text, left):
    assert [token.text for token in tokens(text)] == left


@pytest.mark.parametrize(
    "text",
    [
        "SELECT 1 AS `'`",
        'SELECT 1 AS `"`',
        'SELECT 1 AS "`"',
        "SELECT 1 AS `a\\`",
        "SELECT 1 AS `a\nb`",
        "SELECT 1 AS `a``b`",
        'SELECT 1 AS "a""b"',
        "SELECT 1 AS ``",
        "SELECT '",
        "SELECT `a",
        "SELECT /* /* */",
        "SELECT $a$ x",
        "SELECT a$b$c",
        "SELECT 1 #x",
        "SELECT \u2018x\u2019",
        "SELECT\u00a01",
        "SELECT \x00",
        "SELECT 1)",
        "SELECT (1]",
        "SELECT '\ud800'",
    ],
)
def test_what_two_readers_could_read_in_two_ways_is_refused(text):
    with pytest.raises(TextError):
        scan(text)


N = 100_000


@pytest.mark.parametrize(
    "text",
    [
        "(" * N,
        "[" * N + "]" * N,
        "{" * N,
        "NOT " * N + "1",
        "- " * N + "1",
        "CASE WHEN 1 THEN " * 10_000,
        "CASE WHEN 1 AND " * 10_000,
        "x -> 1 AND " * 10_000,
        "1 ? 1 AND " * 10_000,
        "1" + "::UInt8" * 10_000,
        "a" + "[1]" * 10_000,
        "a" + ".1" * 10_000,
        "1 + " * 10_000 + "1",
        "INTERVAL " * 10_000,
        "EXPLAIN " * 10_000,
        "1 BETWEEN 1 AND " * 30 + "1",
        "('" + "a" * 100_000 + "' BETWEEN 1 AND 1) BETWEEN 1 AND " + "1 BETWEEN 1 AND " * 12 + "1",
        "1 BETWEEN when AND " * 30 + "1",
        "1 BETWEEN 1 BETWEEN 1 AND 1 AND " * 20 + "1",
        "(" * 25 + "1" + " BETWEEN 1 AND 2)" * 25,
        "1," * N,
        "'" + "a" * 300_000 + "'",
    ],
)
def test_what_nests_grows_or_is_too_long_is_refused_at_once(text):
    started = time.process_time()
    with pytest.raises(TextError):
        scan(f"SELECT {text}")
    assert time.process_time() - started < 2  # at most 0.2 s


@pytest.mark.parametrize(
    "text",
    [
        "(" * 90 + "1" + ")" * 90,
        "a = 1 AND b BETWEEN 1 AND 2 OR " * 3000 + "1",
        "sum(x) / count() AS y, " * 3000 + "1",
        "CASE " + "WHEN a BETWEEN 1 AND 2 THEN 3 " * 12 + "END",
        "x IN (" + "1, " * 20_000 + "1)",
        "a, end, `case`, " * 100 + "1",
    ],
)
def test_what_is_long_but_flat_is_not(text):
    assert scan(f"SELECT {text}")


def test_a_name_is_put_where_a_parameter_is_one():
    text = "SELECT {c:Identifier}, {n:UInt8}, '{c:Identifier}' FROM { t : Identifier }"
    assert substituted(text, {"c": "p99 ms", "t": "runs"}) == (
        "SELECT `p99 ms`, {n:UInt8}, '{c:Identifier}' FROM `runs`"
    )
    for name in ("a`b", "a'b", "", "a\\b", "a\nb"):
        with pytest.raises(NotAllowedError, match="c must be a name"):
            substituted(text, {"c": name, "t": "runs"})


def test_statements_without_a_tree_are_written_anew():
    def written(text):
        found = plain(text, scan(text))
        return found and found.text

    assert written("EXISTS /* x */ runs;") == "EXISTS TABLE `runs`"
    assert written("desc runs FORMAT JSON") == "DESCRIBE TABLE `runs` FORMAT JSON"
    assert written("show create view tidegauge.runs") == "SHOW CREATE VIEW `tidegauge`.`runs`"
    assert written("SELECT 1") is None
    for text in ("EXISTS '/etc/passwd'", "DESCRIBE '/x'", "SHOW ACCESS", "EXISTS `/x`", "DESC"):
        with pytest.raises(NotAllowedError):
            written(text)


def test_the_data_of_an_insert_begin_behind_values_or_its_format():
    assert data_begins("INSERT INTO t (values) VALUES (1)") == 29
    assert data_begins("INSERT INTO t FORMAT CSV\n1") == 24
    assert data_begins("INSERT INTO t SELECT 1 FORMAT CSV") is None
    assert data_begins("INSERT INTO t (a) VALUES " + "('" * 100_000) == 24


def test_where_a_token_stands_is_told():
    (first, second) = tokens("SELECT  `a`")
    assert (first.begin, first.end, second.begin, second.end) == (0, 6, 8, 11)
    assert second.kind is Kind.NAME
