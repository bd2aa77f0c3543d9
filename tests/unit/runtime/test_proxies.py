"""Which proxy the environment names for an address."""

import pytest

from services.runtime.hosts import Proxy, ProxyError, proxy_for

pytestmark = pytest.mark.unit
HOOK = "https://hooks.example.org/T1"
NAMES = ("http_proxy", "https_proxy", "all_proxy", "no_proxy")


@pytest.fixture(autouse=True)
def no_proxy_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*NAMES, *map(str.upper, NAMES)):
        monkeypatch.delenv(name, raising=False)


def test_without_a_variable_there_is_no_proxy() -> None:
    assert proxy_for(HOOK) is None


@pytest.mark.parametrize("name", ["HTTPS_PROXY", "https_proxy", "ALL_PROXY"])
@pytest.mark.parametrize(
    "value", ["http://proxy.lan:3128", "proxy.lan:3128", "http://proxy.lan:3128/"]
)
def test_the_variable_of_the_scheme_names_it(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv(name, value)
    assert proxy_for(HOOK) == Proxy("proxy.lan", 3128, {})


def test_http_has_a_variable_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://plain.lan")
    assert proxy_for(HOOK) is None
    assert proxy_for("http://mattermost.lan/x") == Proxy("plain.lan", 80, {})


@pytest.mark.parametrize(
    "no_proxy", ["example.org", ".example.org", "*", "a.lan,hooks.example.org"]
)
def test_no_proxy_names_what_is_reached_directly(
    monkeypatch: pytest.MonkeyPatch, no_proxy: str
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy.lan:3128")
    monkeypatch.setenv("NO_PROXY", no_proxy)
    assert proxy_for(HOOK) is None


@pytest.mark.parametrize("host", ["127.0.0.1:8000", "localhost", "[::1]:9"])
def test_this_machine_is_never_asked_through_a_proxy(
    monkeypatch: pytest.MonkeyPatch, host: str
) -> None:
    monkeypatch.setenv("http_proxy", "http://proxy.lan:3128")
    assert proxy_for(f"http://{host}/hook") is None


def test_a_login_is_sent_to_the_proxy_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://me:p%40ss@proxy.lan:3128")
    found = proxy_for(HOOK)
    assert found is not None
    assert found.headers == {"Proxy-Authorization": "Basic bWU6cEBzcw=="}


@pytest.mark.parametrize(
    "value", ["socks5://proxy.lan:1080", "https://me:word@proxy.lan", "http://", "http://a:port"]
)
def test_what_cannot_be_used_is_told_without_its_value(
    monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", value)
    with pytest.raises(ProxyError, match="HTTPS_PROXY") as raised:
        proxy_for(HOOK)
    assert "word" not in str(raised.value)
