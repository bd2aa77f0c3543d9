"""Settings come from the environment and a file; an invalid one stops the start with one line."""

from pathlib import Path

import pytest
from pydantic import Field, ValidationError

from services.runtime.ports import PORT_OFFSETS
from services.runtime.secret_files import SecretFileError
from services.runtime.settings import ServiceSettings, load_settings
from services.runtime.webhooks import WebhookSettings

pytestmark = pytest.mark.unit


class ExampleSettings(ServiceSettings):
    """A service's own settings."""

    poll_s: float = Field(0.2, gt=0, le=5)


@pytest.fixture(autouse=True)
def no_settings_from_outside(monkeypatch):
    for name in ("CONFIG", "BASE_PORT", "DATA", "POLL_S", "KAFKA_BOOTSTRAP", "INPUT_PARTITIONS"):
        monkeypatch.delenv(f"TIDEGAUGE_{name}", raising=False)


def a_file(tmp_path, monkeypatch, text):
    path = tmp_path / "settings.toml"
    path.write_text(text)
    monkeypatch.setenv("TIDEGAUGE_CONFIG", str(path))
    return path


def refusal(capsys):
    with pytest.raises(SystemExit) as ended:
        load_settings(ExampleSettings)
    lines = capsys.readouterr().err.splitlines()
    assert ended.value.code == 2
    assert len(lines) == 1
    return lines[0]


def test_the_environment_wins_over_the_file_and_the_file_over_the_default(tmp_path, monkeypatch):
    a_file(tmp_path, monkeypatch, "base_port = 18000\npoll_s = 1.5\n")
    monkeypatch.setenv("TIDEGAUGE_BASE_PORT", "19000")
    found = load_settings(ExampleSettings)
    assert (found.base_port, found.poll_s, found.host) == (19_000, 1.5, "127.0.0.1")


@pytest.mark.parametrize(
    ("name", "value", "line"),
    [
        (
            "BASE_PORT",
            "80",
            "tidegauge: setting base_port: It must be at least 1024",
        ),
        ("BASE_PORT", "many", "tidegauge: setting base_port: It must be a whole number"),
        ("POLL_S", "0", "tidegauge: setting poll_s: It must be greater than 0"),
        (
            "LOG_LEVEL",
            "loud",
            "tidegauge: setting log_level: Allowed: debug, info, warning or error",
        ),
    ],
)
def test_a_wrong_value_is_named_with_its_field_and_what_was_allowed(
    name, value, line, monkeypatch, capsys
):
    monkeypatch.setenv(f"TIDEGAUGE_{name}", value)
    assert refusal(capsys) == line


def test_a_wrong_value_in_the_file_is_named_too(tmp_path, monkeypatch, capsys):
    a_file(tmp_path, monkeypatch, "poll_s = 99\n")
    line = "tidegauge: setting poll_s: It must be at most 5"
    assert refusal(capsys) == line


def test_a_file_that_is_not_there_is_named(monkeypatch, capsys):
    monkeypatch.setenv("TIDEGAUGE_CONFIG", "nowhere.toml")
    assert "TIDEGAUGE_CONFIG names nowhere.toml, which is not a file" in refusal(capsys)


def test_a_file_that_is_not_toml_ends_the_start(tmp_path, monkeypatch, capsys):
    a_file(tmp_path, monkeypatch, "base_port = \n")
    assert refusal(capsys).startswith("tidegauge: settings: ")


def test_every_service_has_a_port_of_its_own():
    settings = ServiceSettings(base_port=18_000)
    ports = [settings.port(service) for service in PORT_OFFSETS]
    assert ports == list(range(18_000, 18_015))
    with pytest.raises(KeyError):
        settings.port("nothing")


def test_the_local_broker_is_used_unless_another_is_named():
    local, other = ServiceSettings(base_port=18_000), ServiceSettings(kafka_bootstrap="a:1,b:2")
    assert (local.open_bootstrap, local.bootstrap) == ("127.0.0.1:18000", "127.0.0.1:18009")
    assert (other.open_bootstrap, other.bootstrap) == ("a:1,b:2", "a:1,b:2")


def test_services_log_in_at_the_local_broker_with_the_secret_of_the_data_folder(tmp_path):
    settings = ServiceSettings(data=tmp_path, kafka_properties={"socket.timeout.ms": "9000"})
    found = settings.client_properties
    assert found["sasl.password"] == (tmp_path / "secrets" / "kafka").read_text().strip()
    assert (found["sasl.mechanism"], found["sasl.username"]) == ("SCRAM-SHA-256", "tidegauge")
    assert found["socket.timeout.ms"] == "9000"
    other = ServiceSettings(kafka_bootstrap="a:1", kafka_properties={"client.rack": "r"})
    assert other.client_properties == {"client.rack": "r"}


def test_services_log_in_at_a_broker_elsewhere_that_has_an_open_listener_too(tmp_path):
    settings = ServiceSettings(
        data=tmp_path, kafka_bootstrap="k:9094", kafka_open_bootstrap="k:9092"
    )
    assert (settings.bootstrap, settings.open_bootstrap) == ("k:9094", "k:9092")
    secret = tmp_path / "secrets" / "kafka"
    with pytest.raises(SecretFileError, match=f"{secret} cannot be used: No such file"):
        settings.client_properties  # noqa: B018
    assert not secret.exists()  # a new one would not match
    secret.parent.mkdir()
    secret.write_text("given to the broker too\n")
    secret.chmod(0o600)
    assert settings.client_properties == {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "SCRAM-SHA-256",
        "sasl.username": "tidegauge",
        "sasl.password": "given to the broker too",
    }


def test_an_open_listener_of_no_broker_is_refused():
    with pytest.raises(ValidationError, match="kafka_open_bootstrap needs kafka_bootstrap"):
        ServiceSettings(kafka_open_bootstrap="k:9092")


def test_settings_cannot_change():
    with pytest.raises(ValidationError, match="frozen"):
        ServiceSettings().data = Path("elsewhere")


def test_a_byte_order_mark_in_the_file_is_no_mistake(tmp_path, monkeypatch):
    a_file(tmp_path, monkeypatch, "\ufeffbase_port = 18000\n")
    assert ServiceSettings().base_port == 18_000


def test_a_variable_that_is_not_json_is_named(monkeypatch, capsys):
    monkeypatch.setenv("TIDEGAUGE_WEBHOOKS", "{team}")
    with pytest.raises(SystemExit):
        load_settings(WebhookSettings)
    assert "TIDEGAUGE_WEBHOOKS is not valid JSON" in capsys.readouterr().err
