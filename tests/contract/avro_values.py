"""Hypothesis strategies for values of an Avro schema; logical types stay numbers."""

import json
from typing import Any

from hypothesis import strategies as st

from schemas.codec import JSON_FIELDS

PRIMITIVES: dict[str, st.SearchStrategy[Any]] = {
    "null": st.none(),
    "boolean": st.booleans(),
    "int": st.integers(-(2**31), 2**31 - 1),
    "long": st.integers(-(2**63), 2**63 - 1),
    "double": st.floats(allow_nan=False),
    "string": st.text(max_size=20),
    "bytes": st.binary(max_size=20),
}


def values_of(schema: Any) -> st.SearchStrategy[Any]:
    """Values of a schema parsed from JSON. KeyError for a type without a strategy."""
    if isinstance(schema, str):
        return PRIMITIVES[schema]
    if isinstance(schema, list):
        return st.one_of(*(values_of(branch) for branch in schema))
    if schema["type"] == "record":
        fields = {f["name"]: values_of(f["type"]) for f in schema["fields"]}
        if schema["name"] in JSON_FIELDS:
            text = PRIMITIVES["string"]
            objects = st.dictionaries(text, text, max_size=2)
            fields[JSON_FIELDS[schema["name"]]] = objects.map(json.dumps)
        return st.fixed_dictionaries(fields)
    if schema["type"] == "array":
        return st.lists(values_of(schema["items"]), max_size=4)
    if schema["type"] == "map":
        return st.dictionaries(PRIMITIVES["string"], values_of(schema["values"]), max_size=4)
    if schema["type"] == "enum":
        return st.sampled_from(schema["symbols"])
    return values_of(schema["type"])
