"""A reader's views, which only DESCRIBE reads."""

import pytest

from services.store.policy.reader_views import MOST_BYTES, MOST_VIEWS, NOTHING, PREFIX, ViewQueries

V = f"{PREFIX}_x"


@pytest.fixture
def views():
    created = ViewQueries()
    created.in_place_of("reader", f"CREATE VIEW {V} AS SELECT 1 AS x;")
    return created


def test_creating_a_view_describes_its_query():
    text = ViewQueries().in_place_of("reader", f"create view `{V}` as\nselect 1 as x ;")
    assert text == "DESCRIBE TABLE (select 1 as x) FORMAT Null"


@pytest.mark.parametrize(
    ("text", "run"),
    [
        (f"DESCRIBE {V}", "DESCRIBE TABLE (SELECT 1 AS x)"),
        (f"DESC TABLE tidegauge.`{V}`", "DESCRIBE TABLE (SELECT 1 AS x)"),
        (f"DESCRIBE TABLE {V} FORMAT Native;", "DESCRIBE TABLE (SELECT 1 AS x) FORMAT Native;"),
        (f"DROP VIEW {V}", NOTHING),
    ],
)
def test_a_view_is_described_and_dropped(views, text, run):
    assert views.in_place_of("reader", text) == run


@pytest.mark.parametrize(
    "text",
    [
        *("DESCRIBE w", "DROP VIEW w", "DROP VIEW v SYNC", "DROP TABLE v", "DESCRIBE system.v"),
        *(
            "CREATE VIEW v",
            "CREATE VIEW v AS",
            "CREATE TABLE v AS SELECT 1",
            "CREATE VIEW 'v' AS x",
        ),
        *("SELECT 1", "CREATE VIEW `v", "DESCRIBE", "DESCRIBE (SELECT 1)", ""),
    ],
)
def test_everything_else_is_left_as_it_is(views, text):
    assert views.in_place_of("reader", text) == text


def test_a_dropped_view_and_that_of_another_user_are_not_known(views):
    assert views.in_place_of("default", f"DESCRIBE {V}") == f"DESCRIBE {V}"
    views.in_place_of("reader", f"DROP VIEW {V}")
    assert views.in_place_of("reader", f"DESCRIBE {V}") == f"DESCRIBE {V}"


def test_the_oldest_views_are_forgotten(views):
    for number in range(MOST_VIEWS):
        views.in_place_of("reader", f"CREATE VIEW {V}{number} AS SELECT {number}")
    assert views.in_place_of("reader", f"DESCRIBE {V}") == f"DESCRIBE {V}"
    assert views.in_place_of("reader", f"DESCRIBE {V}0") == "DESCRIBE TABLE (SELECT 0)"
    for number in range(MOST_BYTES // 100_000 + 1):
        views.in_place_of("reader", f"CREATE VIEW {V}_long{number} AS SELECT '{'x' * 100_000}'")
    assert views.in_place_of("reader", f"DESCRIBE {V}0") == f"DESCRIBE {V}0"
