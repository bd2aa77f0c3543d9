"""docs/schema.md has every table and view with the comments of the DDL."""

import pytest

from services.store.engines.schema_page import COLUMNS, PAGE, TABLES, schema_page

pytestmark = pytest.mark.integration


def test_everything_has_a_comment(module_engine):
    for rows in (module_engine.rows(TABLES), module_engine.rows(COLUMNS)):
        assert [row for row in rows if not row["comment"]] == []


def test_the_page_has_what_the_comments_say(module_engine):
    assert PAGE.read_text() == schema_page(module_engine)
