"""Settings shared by all services: Kafka, state folders, ports.

Every field can be set in the environment (`TIDEGAUGE_BASE_PORT=18000`) or in a TOML file named by
TIDEGAUGE_CONFIG; the environment wins. A wrong value ends the process at start with one line that
names the field and the allowed values.
"""

import os
import re
import sys
from pathlib import Path
from typing import Any, Self, TypeVar

from pydantic import Field, ValidationError, field_validator, model_validator
from pydantic_settings import (
    BaseSettings,
    InitSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    SettingsError,
)

from schemas.validation_errors import first_mistake
from services.runtime.files import read_toml
from services.runtime.kafka_security import login_properties, security
from services.runtime.ports import DEFAULT_BASE_PORT, PORT_OFFSETS
from services.runtime.secret_files import existing_secret, kept_secret

KAFKA_USER = "tidegauge"  # login of the services at a broker with two listeners
ROOT = Path(__file__).resolve().parents[2]
EXIT_USAGE = 2
_ADDRESS = r"^(https?://[^\s/]+)?$"


class ServiceSettings(BaseSettings):
    """Fields of every service.

    jars: folder of the jars, one subfolder per use.
    installed_engines: folder in which engines are installed at first use, one subfolder each.
    base_port: first of the consecutive ports of a stack; two stacks need different base ports and
    different `data` folders.
    kafka_bootstrap: `host:port[,host:port]`; empty means the local broker at base_port.
    kafka_open_bootstrap: the open listener for pipelines, if services log in at kafka_bootstrap
    with the secret of the data folder; empty if both use one listener. The local broker
    (deploy/local/broker.py) and those of deploy/compose and deploy/kubernetes have two listeners:
    services log in at the internal one. At the open one everybody reads inputs and results and
    writes outputs without a secret.
    kafka_properties: librdkafka properties added to every client; security properties also apply to
    clients of engines and of Faust (services/runtime/kafka_security.py).
    input_partitions: partitions of each input and output topic.
    replication: replication factor of topics created from now on; the brokers with the lowest ids
    hold the replicas, the first of them leads.
    store_url: address of the store if the services run elsewhere (containers, a cluster); the
    console then starts nothing. public_url: its address for people, if different.
    results_days, results_mebibytes: retention of results and dead letters, in days and per topic;
    for topics created from now on.
    instance: name in events and logs; empty means the service's name.
    """

    model_config = SettingsConfigDict(
        env_prefix="TIDEGAUGE_",
        frozen=True,
        extra="ignore",
    )

    data: Path = ROOT / ".tidegauge"
    jars: Path = ROOT / ".jars"
    installed_engines: Path = ROOT / ".engines"
    host: str = "127.0.0.1"
    base_port: int = Field(DEFAULT_BASE_PORT, ge=1024, le=65_000)
    kafka_bootstrap: str = ""
    kafka_open_bootstrap: str = ""
    kafka_properties: dict[str, str] = {}
    input_partitions: int = Field(1, ge=1, le=1024)
    replication: int = Field(1, ge=1, le=100)
    store_url: str = Field("", pattern=_ADDRESS)
    public_url: str = Field("", pattern=_ADDRESS)
    results_days: int = Field(30, ge=1, le=36_500)
    results_mebibytes: int = Field(1024, ge=16, le=1_048_576)
    instance: str = ""
    log_level: str = Field("info", pattern="^(debug|info|warning|error)$")

    @model_validator(mode="before")
    @classmethod
    def _known_file(cls, values: object) -> object:
        path = os.environ.get("TIDEGAUGE_CONFIG")
        if path and not Path(path).is_file():
            raise ValueError(f"TIDEGAUGE_CONFIG names {path}, which is not a file")
        return values

    @field_validator("kafka_properties")
    @classmethod
    def _known_security(cls, properties: dict[str, str]) -> dict[str, str]:
        security(properties)
        return properties

    @model_validator(mode="after")
    def _open_beside_another(self) -> Self:
        if self.kafka_open_bootstrap and not self.kafka_bootstrap:
            raise ValueError("kafka_open_bootstrap needs kafka_bootstrap, where services log in")
        return self

    @property
    def bootstrap(self) -> str:
        """Kafka bootstrap servers for the services' own clients, which log in."""
        return self.kafka_bootstrap or f"{self.host}:{self.port('kafka_internal')}"

    @property
    def child_variables(self) -> dict[str, str]:
        """Variables with which a module of this project, started as a process, finds the project
        and the data folder."""
        return {"TIDEGAUGE_DATA": str(self.data.absolute()), "PYTHONPATH": str(ROOT)}

    @property
    def open_bootstrap(self) -> str:
        """Kafka bootstrap servers for pipelines and users, who need no login."""
        elsewhere = self.kafka_open_bootstrap or self.kafka_bootstrap
        return elsewhere or f"{self.host}:{self.port('kafka')}"

    @property
    def client_properties(self) -> dict[str, str]:
        """librdkafka properties of the services' own clients. Raises SecretFileError."""
        if self.kafka_bootstrap and not self.kafka_open_bootstrap:
            return self.kafka_properties
        # Never generate a secret for an external broker: the broker would not know it.
        secret = existing_secret if self.kafka_bootstrap else kept_secret
        return login_properties(KAFKA_USER, secret(self.kafka_secret)) | self.kafka_properties

    @property
    def secrets_dir(self) -> Path:
        """Folder of the password files."""
        return self.data / "secrets"

    @property
    def kafka_secret(self) -> Path:
        """Path of the services' password for a broker with two listeners."""
        return self.secrets_dir / "kafka"

    def port(self, service: str) -> int:
        """TCP port of a service of this stack. Raises KeyError for an unknown name."""
        return self.base_port + PORT_OFFSETS[service]

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Precedence: arguments, then the environment, then the TOML file."""
        path = os.environ.get("TIDEGAUGE_CONFIG")
        toml = [InitSettingsSource(settings_cls, _config(Path(path)))] if path else []
        return (init_settings, env_settings, *toml)


def _config(path: Path) -> dict[str, Any]:
    """The content of the file of TIDEGAUGE_CONFIG. Raises ValueError with one sentence."""
    try:
        return read_toml(path) if path.is_file() else {}  # the model refuses a missing file
    except OSError as error:
        raise ValueError(f"TIDEGAUGE_CONFIG: {path} cannot be read: {error.strerror}.") from error
    except ValueError as error:
        raise ValueError(f"TIDEGAUGE_CONFIG: {path} is not valid TOML: {error}.") from error


SettingsT = TypeVar("SettingsT", bound=ServiceSettings)


def load_settings(kind: type[SettingsT]) -> SettingsT:
    """Load settings; exits with code 2 and one line if they are wrong."""
    try:
        return kind()
    except ValidationError as error:
        print(f"tidegauge: setting {first_mistake(error, 'settings')}", file=sys.stderr)
    except SettingsError as error:
        named = re.search(r'field "(\w+)"', str(error))
        name = f"TIDEGAUGE_{named[1].upper()}" if named else "a variable TIDEGAUGE_…"
        print(f"tidegauge: settings: {name} is not valid JSON.", file=sys.stderr)
    except (OSError, ValueError) as error:
        print(f"tidegauge: settings: {error}", file=sys.stderr)
    raise SystemExit(EXIT_USAGE)
