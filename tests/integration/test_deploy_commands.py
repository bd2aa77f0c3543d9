"""Starts the contents of `deploy/compose` as processes."""

import subprocess
import sys
import time
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from schemas import catalogue
from services.runtime.kafka import client_properties, open_client_properties
from tests.contract.compose import PARTS
from tests.integration.container_stack import Containers, kafka_of_compose, kafka_of_kubernetes
from tests.integration.kafka_access import CLOSED_TOPICS, TIMEOUT_S, login_error, outcome
from tests.integration.kafka_broker import free_base_port

pytestmark = pytest.mark.integration

# In the order in which they wait for each other.
STARTED = ("conductor", "generator", "gateway", "runner", "evaluator", "collector", "store")
READY_DEADLINE_S = 400
SET_UP = PARTS["access"]["command"]


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Containers]:
    """Kafka of compose.yaml, after `access`."""
    with kafka_of_compose(tmp_path_factory.mktemp("compose")) as containers:
        early = containers.run("conductor", PARTS["conductor"]["command"])
        assert early.returncode == 1, "the conductor logged in before anybody let it"
        for _start in range(2):  # the whole; the second start changes nothing
            done = containers.run("access", SET_UP)
            assert done.returncode == 0, done.stderr
        yield containers


@pytest.fixture(scope="module")
def stack(kafka: Containers) -> Iterator[Containers]:
    """All services, ready according to their own health checks."""
    processes = {}
    try:
        for name in STARTED:
            check = PARTS[name]["healthcheck"]["test"]
            assert kafka.run(name, check).returncode == 1  # nothing is running yet
            processes[name] = kafka.start(name)
        deadline = time.monotonic() + READY_DEADLINE_S
        waiting = list(STARTED)
        while waiting:
            name = waiting[0]
            assert time.monotonic() < deadline, f"{name} does not become ready"
            assert processes[name].poll() is None, f"{name} ended"
            if kafka.run(name, PARTS[name]["healthcheck"]["test"]).returncode == 0:
                waiting.pop(0)
        yield kafka
    finally:
        for process in processes.values():
            process.terminate()
        for process in processes.values():
            process.wait(60)


def test_the_console_finds_the_store(stack: Containers) -> None:
    asked = stack.console("sql", "SELECT 40 + 2 AS answer")
    assert "42" in asked.stdout, asked.stderr
    status = stack.console(*PARTS["console"]["command"])
    assert status.returncode == 0, status.stderr
    assert "SQL http://127.0.0.1:17072" in status.stdout  # as published by compose.yaml
    refused = stack.console("down")
    assert refused.returncode == 2
    assert "the services run elsewhere" in refused.stderr


def test_a_run_is_measured_whose_pipeline_has_no_login_and_whose_records_come_by_the_gateway(
    stack: Containers,
) -> None:
    given = ("--pipeline", "external-python", "--stages", "parse", "--transport", "tcp")
    done = stack.console("run", "smoke", *given)
    assert done.returncode == 0, done.stdout + done.stderr
    told = stack.console(
        "sql", "SELECT transport, sent, appended, lost, refused FROM ways_in FORMAT TSV"
    )
    # 100/s for 2 s of warm-up, 5 s of measure and 3 s of cool-down.
    assert told.stdout.split() == ["tcp", "1000", "1000", "0", "0"], told.stdout + told.stderr
    judged = stack.console(
        "sql",
        "SELECT sum(exact) AS exact, sum(wrong + missing + duplicate + unexpected) AS bad"
        " FROM verdict_totals WHERE phase = 'measure' FORMAT TSV",
    )
    assert judged.stdout.split() == ["500", "0"], judged.stdout + judged.stderr


@pytest.mark.parametrize("topic", CLOSED_TOPICS)
def test_without_the_secret_nobody_commands_a_service_or_forges_a_result(
    stack: Containers, topic: str
) -> None:
    anonymous = open_client_properties(stack.kafka, "tests")
    assert outcome(anonymous, topic) == KafkaError.TOPIC_AUTHORIZATION_FAILED
    assert anonymous["bootstrap.servers"] != stack.kafka.bootstrap


def test_without_the_secret_one_reads_and_makes_topics_of_engines_only(stack: Containers) -> None:
    anonymous = open_client_properties(stack.kafka, "tests")
    admin = AdminClient(anonymous)
    names = ("engine.mine.log", "output.mine.parse")
    made = admin.create_topics([NewTopic(name, 1, 1) for name in names])
    made["engine.mine.log"].result(TIMEOUT_S)
    with pytest.raises(KafkaException) as refused:
        made["output.mine.parse"].result(TIMEOUT_S)
    assert refused.value.args[0].code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    reader = Consumer(anonymous | {"group.id": "theirs", "auto.offset.reset": "earliest"})
    reader.subscribe([catalogue.LIFECYCLE])
    (found,) = reader.consume(1, TIMEOUT_S)
    assert found.error() is None
    reader.close()


@pytest.mark.parametrize(
    ("user", "password"),
    [("tidegauge", "not the secret"), ("broker", "not the secret"), ("tidegauge", None)],
)
def test_a_wrong_login_is_no_login(kafka: Containers, user: str, password: str | None) -> None:
    """Neither can PLAIN log in with the services' secret, which it would send."""
    secret = (kafka.secrets / "kafka").read_text()
    containers = kafka.kafka.model_copy(update={"data": kafka.data("generator")})
    properties = client_properties(containers, "tests")
    assert properties["sasl.password"] == secret
    mechanism = "PLAIN" if password is None else "SCRAM-SHA-256"
    wrong = {"sasl.mechanism": mechanism, "sasl.username": user}
    wrong["sasl.password"] = password or secret
    assert login_error(properties | wrong) == KafkaError._AUTHENTICATION
    AdminClient(properties).list_topics(timeout=TIMEOUT_S)


@pytest.mark.parametrize("port", ["kafka_controller", "kafka_internal"])
def test_the_other_listeners_answer_nobody_without_a_login(kafka: Containers, port: str) -> None:
    anonymous = open_client_properties(kafka.kafka, "tests") | {
        "bootstrap.servers": f"127.0.0.1:{kafka.kafka.port(port)}",
    }
    with pytest.raises(KafkaException):
        AdminClient(anonymous).list_topics(timeout=2)


def test_a_service_whose_secret_is_not_mounted_says_so_and_makes_none(
    kafka: Containers,
) -> None:
    elsewhere = Containers(kafka.kafka, kafka.folder / "unmounted", kafka.secrets)
    missing = elsewhere.data("generator") / "secrets" / "kafka"
    environment = elsewhere.environment("generator")
    missing.unlink()
    done = subprocess.run(
        [sys.executable, "-m", "services.generator"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1
    assert f"the secret {missing} cannot be used: No such file or directory" in done.stderr
    assert not missing.exists()


def test_the_listeners_of_kubernetes_keep_the_same_rules(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    with kafka_of_kubernetes(tmp_path_factory.mktemp("kubernetes")) as containers:
        assert containers.run("access", SET_UP).returncode == 0
        owner = containers.kafka.model_copy(update={"data": containers.data("conductor")})
        services = client_properties(owner, "tests")
        topics = (catalogue.CONTROL, "output.mine.parse")
        admin = AdminClient(services)
        for future in admin.create_topics([NewTopic(name, 1, 1) for name in topics]).values():
            future.result(TIMEOUT_S)
        anonymous = open_client_properties(containers.kafka, "tests")
        refused = KafkaError.TOPIC_AUTHORIZATION_FAILED
        assert [outcome(anonymous, topic) for topic in topics] == [refused, None]
        assert [outcome(services, topic) for topic in topics] == [None, None]


def test_the_health_check_of_kafka_finds_a_broker_and_where_there_is_none(
    kafka: Containers,
) -> None:
    program, *words = PARTS["kafka"]["healthcheck"]["test"][1:]
    for port, code in ((kafka.kafka.port("kafka"), 0), (free_base_port(), 1)):
        here = [word.replace("9092", str(port)) for word in words]
        done = subprocess.run([program, *here], capture_output=True, timeout=60, check=False)
        assert done.returncode == code, done.stderr
