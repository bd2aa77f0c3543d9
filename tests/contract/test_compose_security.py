"""The permissions and the network access of every container of `deploy/compose`."""

import re
from ipaddress import ip_network
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from deploy.local.broker import access_properties
from services.runtime.settings import ServiceSettings
from tests.contract.compose import COMPOSE, FOLDER, PARTS, kafka_properties, value_of
from tests.contract.test_compose import ours

pytestmark = pytest.mark.contract


@pytest.mark.parametrize("part", PARTS.values(), ids=PARTS)
def test_every_container_is_bounded_and_locked_down(part: dict[str, Any]) -> None:
    limits = part["deploy"]["resources"]["limits"]
    assert set(limits) == {"cpus", "memory", "pids"}
    # An engine refuses to start a container with more CPUs than the machine has.
    assert float(value_of(limits["cpus"])) <= 2
    assert limits["pids"] <= 4096
    assert part["logging"]["options"]["max-size"]
    assert part["read_only"] is True
    assert part["cap_drop"] == ["ALL"]
    assert part["security_opt"] == ["no-new-privileges:true"]
    assert re.fullmatch(r"[1-9]\d*:\d+", part["user"])
    assert {each.split(":")[0] for each in part["tmpfs"]} >= {"/tmp"}
    assert not LOOSENING & set(part)
    assert not [volume for volume in part.get("volumes", []) if volume.startswith("/")]


LOOSENING = {"cap_add", "cgroup", "device_cgroup_rules", "devices", "ipc", "pid", "privileged"}


def test_our_containers_run_as_the_user_of_the_image() -> None:
    assert {part["user"] for part in ours().values()} == {"10001:10001"}


def test_a_container_reaches_only_those_that_it_asks() -> None:
    """Publishing a port requires a network that is not internal; only Grafana's also leads
    outside."""
    networks = COMPOSE["networks"]
    members = {
        network: {name for name, part in PARTS.items() if network in part["networks"]}
        for network in networks
    }
    assert members.pop("bus") == set(PARTS) - {"clickhouse", "grafana"}
    assert members == {
        "tables": {"clickhouse", "store", "grafana"},
        "published": {"store"},
        "outside": {"grafana", "watcher"},
    }
    inside = {network for network, given in networks.items() if given == {"internal": True}}
    assert inside == {"bus", "tables"}
    masquerading = "com.docker.network.bridge.enable_ip_masquerade"
    assert networks["published"]["driver_opts"] == {masquerading: "false"}
    assert {name for name, part in PARTS.items() if "ports" in part} == {"store", "grafana"}


def test_the_broker_lets_in_whom_the_local_one_does(tmp_path: Path) -> None:
    local = access_properties(ServiceSettings(data=tmp_path))
    password = (tmp_path / "secrets" / "kafka-broker").read_text().strip()
    read = "${files:/run/secrets:kafka_broker}"
    expected = {name: str(value).replace(password, read) for name, value in local.items()}
    given = kafka_properties()
    assert {name: given.get(name) for name in expected} == expected
    assert given["config.providers.files.param.allowed.paths"] == "/run/secrets"
    listeners = dict(each.split("://") for each in given["listeners"].split(","))
    ports = {name: address.split(":")[1] for name, address in listeners.items()}
    assert ports == {"OPEN": "9092", "INTERNAL": "9094", "CONTROLLER": "9093"}
    advertised = given["advertised.listeners"].split(",")
    assert advertised == ["OPEN://kafka:9092", "INTERNAL://kafka:9094"]


def test_services_have_their_secret_of_kafka_and_nobody_else_that_of_the_broker() -> None:
    mounted = {
        name: {each if isinstance(each, str) else (each["source"], each["target"])}
        for name, part in PARTS.items()
        for each in part.get("secrets", [])
        if "kafka" in str(each)
    }
    folder = "/var/lib/tidegauge/secrets"
    assert {name for name, found in mounted.items() if found == {("kafka", f"{folder}/kafka")}} == {
        *ours()
    }
    access = [(each["source"], each["target"]) for each in PARTS["access"]["secrets"]]
    assert access == [("kafka", f"{folder}/kafka"), ("kafka_broker", f"{folder}/kafka-broker")]
    assert PARTS["kafka"]["secrets"] == ["kafka_broker"]
    assert {*mounted} == {*ours(), "access", "kafka"}  # no Spark executor


def test_nobody_speaks_to_kafka_before_it_knows_who_may_do_what() -> None:
    assert PARTS["access"]["command"] == ["python", "-m", "deploy.kafka"]
    assert PARTS["access"]["restart"] == "no"
    assert PARTS["access"]["environment"] == PARTS["evaluator"]["environment"]
    assert PARTS["access"]["image"] == PARTS["conductor"]["image"]
    assert PARTS["access"]["depends_on"] == {"kafka": {"condition": "service_healthy"}}
    waits = {"access": {"condition": "service_completed_successfully"}}
    assert PARTS["conductor"]["depends_on"] == waits
    after_the_conductor = {
        *("generator", "gateway", "runner", "evaluator", "collector", "store", "watcher")
    }
    assert {name for name, part in PARTS.items() if "conductor" in part.get("depends_on", {})} == (
        after_the_conductor
    )


def test_the_owner_of_the_tables_does_not_come_from_anywhere() -> None:
    part = PARTS["clickhouse"]
    (mounted,) = [volume for volume in part["volumes"] if "users.d" in volume]
    users = ElementTree.parse(FOLDER / mounted.split(":")[0]).find("users")
    assert users is not None
    default, owner = list(users)
    assert (default.tag, default.attrib) == ("default", {"remove": "remove"})
    assert owner.tag == PARTS["store"]["environment"]["TIDEGAUGE_CLICKHOUSE_USER"]
    password = owner.find("password")
    assert password is not None
    assert (password.text, password.attrib) == (None, {"from_env": "CLICKHOUSE_PASSWORD"})
    assert "CLICKHOUSE_PASSWORD=" in part["entrypoint"][-1]
    # Otherwise the image creates its own user, from ::/0.
    assert part["environment"] == {"CLICKHOUSE_SKIP_USER_SETUP": "1"}
    ranges = [ip_network(each.text or "") for each in owner.findall("networks/ip")]
    assert ranges
    assert all(each.is_private for each in ranges)
