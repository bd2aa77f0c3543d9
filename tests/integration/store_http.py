"""A store with an empty projection, for queries over HTTP and by a client."""

import urllib.error
import urllib.parse
import urllib.request

import clickhouse_connect
import pytest

from services.runtime.settings import ServiceSettings
from tests.integration.kafka_broker import free_base_port
from tests.integration.service_process import running_service
from tests.integration.store_process import until_ready

SECRET = "tidegauge-never-read"


@pytest.fixture(scope="session")
def empty(tmp_path_factory):
    """Settings of a store with an empty projection."""
    folder = tmp_path_factory.mktemp("store")
    settings = ServiceSettings(base_port=free_base_port(), data=folder)
    (folder / "secret.csv").write_text(SECRET)
    with running_service(settings, "store", TIDEGAUGE_OFFLINE="true") as process:
        until_ready(settings, process)
        yield settings


def password(store, name):
    return (store.data / "secrets" / f"clickhouse-{name}").read_text().strip()


def ask(store, sql, headers=None, method="POST", path="/", **parameters):
    url = f"http://127.0.0.1:{store.port('store')}{path}?{urllib.parse.urlencode(parameters)}"
    body = None if method == "GET" else sql if isinstance(sql, bytes) else sql.encode()
    request = urllib.request.Request(url, body, headers or {}, method=method)
    with urllib.request.urlopen(request, timeout=30) as answer:
        return answer.read(), answer.headers


def refused(store, sql, **options):
    with pytest.raises(urllib.error.HTTPError) as caught:
        ask(store, sql, **options)
    return caught.value.code, caught.value.headers["X-ClickHouse-Exception-Code"]


def client(store, **options):
    return clickhouse_connect.get_client(
        host="127.0.0.1", port=store.port("store"), autogenerate_session_id=False, **options
    )
