"""The attacks of sql_attacks.toml through every place of a request where a query may stand.

A real server in this process; `Watched` records what its judge accepts, so that no later defence
takes part.
"""

import http.client
import re
import urllib.parse
from http import HTTPStatus

import pytest

from services.store.api.http_interface import serve_sql
from services.store.api.http_server import HttpServer
from services.store.api.native import framed
from services.store.policy.reader_views import NOTHING, PREFIX
from services.store.settings import StoreSettings
from services.store.users import Users
from tests.integration.kafka_broker import free_base_port
from tests.security.test_sql_attacks import CANARY, GROUPS, Site

pytestmark = pytest.mark.security

BOUNDARY = "tidegauge-boundary"
CHOICE = re.compile(r"USE system\b")
# Texts that are attacks by their settings or formats alone.
OF_A_SETTING = {"SELECT 1", "SELECT * FROM system.one"}
FORM = {"Content-Type": f"multipart/form-data; boundary={BOUNDARY}"}


class Served(Site):
    """An engine behind a server, and a connection to it."""

    def __init__(self, folder):
        super().__init__(folder)
        settings = StoreSettings(data=folder / "data", base_port=free_base_port())
        self.server: HttpServer = serve_sql(settings, Users(*self.secrets), self.engine, bool)
        self.connection = http.client.HTTPConnection("127.0.0.1", settings.port("store"), 60)

    def close(self):
        self.connection.close()
        self.server.shutdown()
        self.engine.close()

    def answer(self, parameters, body=b"", headers=None):
        """(status, body) of a POST."""
        target = f"/query?{urllib.parse.urlencode(parameters)}"
        self.connection.request("POST", target, body, headers or {})
        with self.connection.getresponse() as response:
            return response.status, response.read().decode(errors="replace")


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    started = Served(tmp_path_factory.mktemp("attacked"))
    yield started
    started.close()


def form(fields):
    """A multipart/form-data body."""
    parts = (
        f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'
        for name, value in fields.items()
    )
    return ("".join(parts) + f"--{BOUNDARY}--\r\n").encode()


def in_the_url(text, others):
    return others | {"query": text}, b"", {}


def in_two_halves(text, others):
    return others | {"query": text.partition(" ")[0]}, text.partition(" ")[2].encode(), {}


def in_the_body(text, others):
    return others, text.encode(), {}


def in_a_form(text, others):
    return {}, form(others | {"query": text}), FORM


def in_a_block(text, others):
    return others | {"decompress": "1"}, b"".join(framed(text.encode())), {}


def in_a_session(text, others):
    return others | {"session_id": "attacker"}, text.encode(), {}


def with_headers(text, others):
    headers = {
        "X-ClickHouse-Format": others.pop("default_format"),
        "X-ClickHouse-Database": "system",
    }
    return others, text.encode(), headers


PLACES = (
    *(in_the_url, in_two_halves, in_the_body, in_a_form, in_a_block, in_a_session, with_headers),
)


@pytest.mark.parametrize("place", PLACES, ids=lambda place: place.__name__)
def test_an_attack_is_refused_wherever_it_stands(served, place):
    for group in GROUPS:
        user = group["users"][-1]  # the admin, where both are refused
        password = served.secrets[user == "admin"]
        login = {"X-ClickHouse-User": user, "X-ClickHouse-Key": password}
        asked = {"default_format": group.get("format", "TabSeparated")}
        asked |= {name: served.filled(value) for name, value in group.get("settings", {}).items()}
        for name, value in group.get("parameters", {}).items():
            asked[f"param_{name}"] = served.filled(value)
        for text in group["texts"]:
            served.judge.passed.clear()
            parameters, body, headers = place(served.filled(text), dict(asked))
            status, answer = served.answer(parameters, body, headers | login)
            if CHOICE.match(text) and status == HTTPStatus.OK:
                # The choice of a session: the engine gets a query without a result in its place.
                assert served.judge.passed == [NOTHING], text
                continue
            assert status >= HTTPStatus.BAD_REQUEST, (text, answer)
            assert not served.judge.passed, text
            assert not any(secret in answer for secret in (CANARY, *served.secrets)), text
    assert served.files(served.folder) == served.before


def test_an_attack_in_the_view_of_a_query_is_refused(served):
    login = {"X-ClickHouse-User": "reader", "X-ClickHouse-Key": served.secrets[0]}
    texts = {served.filled(text) for group in GROUPS for text in group["texts"]}
    for text in texts - OF_A_SETTING:
        for statement in (f"CREATE VIEW {PREFIX}_x AS {text}", f"DESCRIBE {PREFIX}_x"):
            served.judge.passed.clear()
            status, answer = served.answer({}, statement.encode(), login)
            assert status >= HTTPStatus.BAD_REQUEST, (text, answer)
            # Of a query that is not remembered, the name alone is looked up.
            assert served.judge.passed in ([], [f"DESCRIBE TABLE `{PREFIX}_x`"]), text
            assert not any(secret in answer for secret in (CANARY, *served.secrets)), text
    assert served.files(served.folder) == served.before
