"""Webhooks allowed in settings."""

from pathlib import Path

import pytest
from pydantic import ValidationError

from services.runtime.secret_files import SecretFileError
from services.runtime.webhooks import Webhook, WebhookSettings

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    "url",
    [
        "https://hooks.example.org/services/T1/B2/x?y=1",
        "http://127.0.0.1:8000/hook",
        "http://localhost/",
        "http://[::1]:9/",
    ],
)
def test_https_and_this_machine_are_allowed(url: str) -> None:
    assert Webhook(url=url).address() == url


@pytest.mark.parametrize(
    "url",
    [
        "http://hooks.example.org/",
        "ftp://127.0.0.1/",
        "file:///etc/passwd",
        "https://user:word@example.org/",
        "https://example.org:0/",
        "https://example.org:port/",
        "https://example.org/a b",
        "https://example.org/\r\nX: y",
        "//example.org/",
        "http://127.0.0.1.example.org/",
    ],
)
def test_other_addresses_are_refused_without_repeating_them(url: str) -> None:
    with pytest.raises(ValidationError) as caught:
        Webhook(url=url)
    assert "example.org" not in str(caught.value)


def test_an_address_comes_from_one_place() -> None:
    with pytest.raises(ValidationError, match="needs either url or url_file"):
        Webhook()
    with pytest.raises(ValidationError, match="needs either url or url_file"):
        Webhook(url="https://example.org/", url_file=Path("/x"))


def test_a_secret_address_comes_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "slack"
    file.write_text("https://hooks.example.org/T1\n")
    assert Webhook(url_file=file).address() == "https://hooks.example.org/T1"
    file.write_text("http://hooks.example.org/T1\n")
    with pytest.raises(SecretFileError) as caught:
        Webhook(url_file=file).address()
    assert str(caught.value).startswith(f"the address in {file} must be https://…; http://")
    assert Webhook(url_file=file, allow_http=True).address() == "http://hooks.example.org/T1"


@pytest.mark.parametrize(
    "url", ["http://mattermost.lan:8065/hooks/x", "http://192.168.0.9/x", "http://[fd00::1]/x"]
)
def test_http_elsewhere_needs_the_decision_of_the_owner(url: str) -> None:
    with pytest.raises(ValidationError, match="allow_http = true"):
        Webhook(url=url)
    assert Webhook(url=url, allow_http=True).address() == url


@pytest.mark.parametrize("url", ["ftp://10.0.0.1/", "http://me:word@10.0.0.1/", "10.0.0.1"])
def test_http_elsewhere_allows_nothing_else(url: str) -> None:
    with pytest.raises(ValidationError):
        Webhook(url=url, allow_http=True)


def test_webhooks_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(
        "TIDEGAUGE_WEBHOOKS",
        '{"team": {"shape": "slack", "url_file": "/run/secrets/slack", "on": ["threshold"]}}',
    )
    assert WebhookSettings().webhooks == {
        "team": Webhook(shape="slack", url_file=Path("/run/secrets/slack"), on=("threshold",))
    }
