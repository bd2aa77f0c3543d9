"""Valid JSON with replaced values."""

import json

from hypothesis import strategies as st

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=6,
)


def paths(value, path=()):
    """The path of every value in a JSON value."""
    yield path
    if isinstance(value, dict | list):
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
            yield from paths(inner, (*path, key))


@st.composite
def changed(draw, valid):
    """JSON text of a valid value with up to two values replaced."""
    body = json.loads(json.dumps(valid))
    places = [path for path in paths(valid) if path]
    for path in draw(st.lists(st.sampled_from(places), max_size=2)):
        place = body
        try:
            for key in path[:-1]:
                place = place[key]
            place[path[-1]] = draw(JSON)
        except (KeyError, IndexError, TypeError):
            pass  # the first change removed this path
    return json.dumps(body)
