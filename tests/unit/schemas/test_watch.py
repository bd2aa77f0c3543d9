"""Invalid watch files."""

import pytest
from pydantic import ValidationError

from tests.unit.watcher.records import a_watch

pytestmark = pytest.mark.unit

WINDOW = {"kind": "window"}
TIMED = [{"topic": "in", "time": "header.at"}]
SPANNED = [{"topic": "out", "start": "header.from", "end": "header.to"}]


def test_windows_are_by_times_of_inputs_and_outputs():
    watch = a_watch(inputs=TIMED, outputs=SPANNED, relation=WINDOW)
    assert [one.times for one in (*watch.inputs, *watch.outputs)] == [
        ("header.at",),
        ("header.from", "header.to"),
    ]


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"relation": WINDOW}, "in needs time"),
        ({"relation": WINDOW, "inputs": TIMED}, "out needs start and end"),
        (
            {"relation": WINDOW, "inputs": TIMED, "outputs": [SPANNED[0] | {"end": ""}]},
            "out needs start and end",
        ),
        (
            {"relation": WINDOW, "inputs": TIMED, "outputs": [SPANNED[0] | {"time": "key"}]},
            "out needs start and end",
        ),
        ({"relation": WINDOW, "inputs": [TIMED[0] | {"end": "key"}]}, "in needs time"),
        ({"inputs": TIMED}, "in needs time if and only if kind = 'window'"),
        ({"outputs": SPANNED}, "out needs start and end if and only if kind = 'window'"),
        ({"relation": {"windows": 2}}, "windows requires kind = 'window'"),
        ({"inputs": [{"topic": "in", "time": "value.at"}]}, "a format other than bytes"),
    ],
)
def test_times_are_for_windows_and_all_there(fields, why):
    with pytest.raises(ValidationError, match=why):
        a_watch(**fields)


@pytest.mark.parametrize(
    "url", ["https://me:secret@registry:8081", "http://me@registry", "https://:1", "http://[::1"]
)
def test_a_login_is_not_in_the_address_of_a_registry(url):
    with pytest.raises(ValidationError, match="login in user and password") as raised:
        a_watch(registry={"url": url})
    assert "secret" not in str(raised.value)


def test_an_address_of_a_registry_has_a_host_and_may_have_a_path():
    url = "https://registry:8081/apis/ccompat@v7"
    assert a_watch(registry={"url": url}).public()["registry"] == {"url": url}


@pytest.mark.parametrize(
    ("name", "value", "is_secret"),
    [
        ("ssl.key.pem", "x", True),
        ("ssl.keystore.key", "x", True),
        ("any", "-----BEGIN PRIVATE KEY-----\nx", True),
        ("any", "-----BEGIN EC PRIVATE KEY-----", True),
        ("ssl.key.location", "/key.pem", False),
        ("ssl.certificate.pem", "-----BEGIN CERTIFICATE-----", False),
    ],
)
def test_a_private_key_is_a_secret(name, value, is_secret):
    watch = a_watch(kafka={"bootstrap": "k:9", "properties": {name: value}})
    assert watch.cluster.has_secrets == is_secret
