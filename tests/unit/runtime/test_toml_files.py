"""Files of TOML from any editor."""

import pytest

from services.runtime.files import parse_toml, read_toml


def test_a_byte_order_mark_is_no_part_of_the_content(tmp_path):
    path = tmp_path / "watch.toml"
    path.write_bytes(b"\xef\xbb\xbf" + 'name = "größe"\r\n'.encode())

    assert read_toml(path) == {"name": "größe"}


@pytest.mark.parametrize(
    ("data", "why"),
    [
        ('name = "a"'.encode("utf-16"), "it is in UTF-16; save it as UTF-8"),
        ('name = "a"\nwhat = "größe"'.encode("latin-1"), "line 2 is not in UTF-8"),
        (b"name = [", "Invalid value"),
        (b"a = " + b"[" * 100_000, "it is nested too deeply"),
    ],
)
def test_other_content_is_refused_with_the_reason(data, why):
    with pytest.raises(ValueError, match=why):
        parse_toml(data)
