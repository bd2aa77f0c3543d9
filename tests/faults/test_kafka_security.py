"""A broker that requires a login over TLS: with credentials everything works, without them
nothing."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from schemas import catalogue
from services.runtime.kafka import admin_client, ensure_topics
from services.runtime.settings import ROOT, ServiceSettings
from tests.end_to_end.command import CommandLine
from tests.end_to_end.workload_files import patient_workload
from tests.integration.kafka_broker import PROPERTIES, Broker, free_base_port

pytestmark = pytest.mark.faults

PASSWORD = "only for this test"
LOGIN = (
    "org.apache.kafka.common.security.plain.PlainLoginModule required"
    f' username="tidegauge" password="{PASSWORD}" user_tidegauge="{PASSWORD}";'
)
SECURE = (
    PROPERTIES.replace("PLAINTEXT://", "SASL_SSL://").replace(
        "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT", "CONTROLLER:PLAINTEXT,SASL_SSL:SASL_SSL"
    )
    + f"""
inter.broker.listener.name=SASL_SSL
sasl.enabled.mechanisms=PLAIN
sasl.mechanism.inter.broker.protocol=PLAIN
listener.name.sasl_ssl.plain.sasl.jaas.config={LOGIN}
ssl.keystore.type=PEM
ssl.keystore.location={{directory}}/broker.pem
ssl.truststore.type=PEM
ssl.truststore.location={{directory}}/certificate.pem
"""
)


def certify(folder: Path) -> Path:
    """A self-signed certificate for this host; returns the file that clients must trust."""
    key, certificate = folder / "key.pem", folder / "certificate.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"]
    command += ["-keyout", str(key), "-out", str(certificate), "-subj", "/CN=127.0.0.1"]
    subprocess.run([*command, "-addext", "subjectAltName=IP:127.0.0.1"], check=True)
    (folder / "broker.pem").write_text(key.read_text() + certificate.read_text())
    return certificate


@pytest.fixture
def secure_broker(tmp_path):
    properties = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "tidegauge",
        "sasl.password": PASSWORD,
        "ssl.ca.location": str(certify(tmp_path)),
    }
    base_port = free_base_port()
    settings = ServiceSettings(
        base_port=base_port,
        kafka_bootstrap=f"127.0.0.1:{base_port}",
        data=tmp_path,
        kafka_properties=properties,
    )
    broker = Broker(settings, SECURE)
    try:
        broker.await_answer()
        ensure_topics(admin_client(settings, "tests"), catalogue.fixed_topics())
        yield settings
    finally:
        broker.close()


def test_with_credentials_a_run_has_a_clean_ledger(secure_broker, tmp_path):
    tidegauge = CommandLine(tmp_path / "stack", secure_broker.base_port)
    with tidegauge.watched() as seen:
        done = tidegauge(
            *("run", str(patient_workload(tmp_path))),
            *("--rate", "100", "--duration", "5", "--warm-up", "3"),
            *("--pipeline", "spark-realtime", "--report", str(tmp_path / "report.json")),
            TIDEGAUGE_KAFKA_BOOTSTRAP=secure_broker.bootstrap,
            TIDEGAUGE_KAFKA_PROPERTIES=json.dumps(secure_broker.kafka_properties),
        )
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads((tmp_path / "report.json").read_text())
    assert report["conclusion"]["clean"]
    assert PASSWORD not in json.dumps(report)
    for log in (tmp_path / "stack" / "logs").iterdir():
        assert PASSWORD not in log.read_text(errors="replace"), log
    assert any("SparkSubmit" in process.line for process in seen)
    assert not [process.line for process in seen if PASSWORD in process.line]


@pytest.mark.parametrize("name", ["store", "collector", "generator", "conductor"])
def test_without_credentials_a_service_ends_with_a_sentence(secure_broker, tmp_path, name):
    environment = os.environ | {
        "TIDEGAUGE_BASE_PORT": str(secure_broker.base_port),
        "TIDEGAUGE_DATA": str(tmp_path / "stack"),
        "TIDEGAUGE_KAFKA_BOOTSTRAP": secure_broker.bootstrap,
    }
    done = subprocess.run(
        [sys.executable, "-m", f"services.{name}"],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode not in (0, None)
    assert re.search(rf"^(tidegauge: )?{name}: .*\w", done.stderr, re.M), done.stderr
    assert "Traceback" not in done.stderr, done.stderr
