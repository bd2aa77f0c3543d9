"""The allow-lists compared with the engine: new features of a later version are rejected until
somebody has reviewed them."""

import pytest

from services.store.policy.permissions import (
    ADMIN_SETTINGS,
    AGGREGATES,
    BY_TEXT,
    COMBINATORS,
    FREE_SETTINGS,
    FUNCTIONS,
    REFUSED_FUNCTIONS,
    TABLE_FUNCTIONS,
)
from services.store.policy.sql_tokens import Kind, TextError, tokens
from services.store.settings import PARSING
from tests.integration.store_engine import engine_folder, module_engine
from tests.security.test_sql_attacks import GROUPS, HARMLESS

__all__ = ["engine_folder", "module_engine"]
pytestmark = pytest.mark.security

OF_THE_ENGINE = {
    Kind.WORD: {"BareWord"},
    Kind.NAME: {"QuotedIdentifier"},
    Kind.NUMBER: {"Number"},
    Kind.STRING: {"StringLiteral", "HereDoc"},
}


def names(engine, sql):
    return {row["name"] for row in engine.rows(sql)}


def test_every_function_of_the_engine_has_been_looked_at(module_engine):
    known = {name.lower() for name in names(module_engine, "SELECT name FROM system.functions")}
    assert known - FUNCTIONS == REFUSED_FUNCTIONS & known
    assert not FUNCTIONS & REFUSED_FUNCTIONS
    assert FUNCTIONS - known == {"exists", "grouping", "lambda", "untuple"}


def test_an_alias_of_a_function_is_treated_as_the_function(module_engine):
    sql = "SELECT name, alias_to FROM system.functions WHERE alias_to != ''"
    rows = list(module_engine.rows(sql))
    assert len(rows) > 100
    for row in rows:
        name, meant = row["name"].lower(), row["alias_to"].lower()
        assert (name in REFUSED_FUNCTIONS) == (meant in REFUSED_FUNCTIONS), row
        assert BY_TEXT.get(name) == BY_TEXT.get(meant), row


def test_aggregate_functions_and_combinators_are_those_of_the_engine(module_engine):
    found = names(module_engine, "SELECT name FROM system.functions WHERE is_aggregate")
    assert {name.lower() for name in found} - REFUSED_FUNCTIONS == AGGREGATES
    found = names(module_engine, "SELECT name FROM system.aggregate_function_combinators")
    assert {name.lower() for name in found} == COMBINATORS


def test_table_functions_and_settings_that_are_let_through_are_the_engines(module_engine):
    found = names(module_engine, "SELECT name FROM system.table_functions")
    assert (
        TABLE_FUNCTIONS - found
        == {"VALUES", "one", "generate_series", "primes", "SQLStandardValues"} - found
    )
    found = names(module_engine, "SELECT name FROM system.settings")
    assert (FREE_SETTINGS | ADMIN_SETTINGS | PARSING.keys()) - found == set()
    reaching = ("path", "url", "schema_registry", "format_schema", "template", "disk", "dialect")
    let_through = FREE_SETTINGS | ADMIN_SETTINGS
    assert not [name for name in let_through if any(word in name for word in reaching)]
    assert not PARSING.keys() & let_through


def test_tokens_are_those_of_the_engine(module_engine):
    """Words, names, numbers and literals match the engine's own lexer."""
    texts = [text for group in GROUPS for text in group["texts"]]
    for text in [*texts, *HARMLESS["texts"], *HARMLESS["admin"]]:
        try:
            ours = [token for token in tokens(text) if token.kind is not Kind.SIGN]
        except TextError:
            continue
        if not text.isascii():
            continue  # the engine counts bytes
        literal = text.replace("\\", "\\\\").replace("'", "\\'")
        (row,) = module_engine.rows(f"SELECT tokenizeQuery('{literal}') AS found")
        found = [
            (int(token["begin"]), int(token["end"]), token["type"])
            for token in row["found"]
            if any(token["type"] in kinds for kinds in OF_THE_ENGINE.values())
        ]
        assert [(token.begin, token.end) for token in ours] == [each[:2] for each in found], text
        for token, each in zip(ours, found, strict=True):
            assert each[2] in OF_THE_ENGINE[token.kind], (text, token)
