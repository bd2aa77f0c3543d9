"""A Kubernetes API server for the tests, with etcd and the controllers that make pods. There is no
scheduler and no node, so pods are admitted and stay pending.

The programs are built from Go modules, whose versions and hashes are in `cluster/`, into `.deploy`,
once. Everything listens on loopback and ends with the context.
"""

import json
import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from secrets import token_hex
from typing import Any, Final

from deploy.local.processes import wait_until
from services.runtime.settings import ROOT
from tests.deploy.container_engine import BUILD_TIMEOUT_S, CACHE, require
from tests.integration.kafka_broker import free_base_port

MODULE: Final = Path(__file__).with_name("cluster")
PROGRAMS: Final = CACHE / "cluster"
COMMANDS: Final = "k8s.io/kubernetes/cmd"
PACKAGES: Final = {
    "etcd": "go.etcd.io/etcd/server/v3",
    "kube-apiserver": f"{COMMANDS}/kube-apiserver",
    "kube-controller-manager": f"{COMMANDS}/kube-controller-manager",
    "kubectl": f"{COMMANDS}/kubectl",
}
CONTROLLERS: Final = (
    "deployment-controller",
    "job-controller",
    "namespace-controller",
    "persistentvolumeclaim-protection-controller",
    "replicaset-controller",
    "serviceaccount-controller",
    "statefulset-controller",
)
COMMAND_TIMEOUT_S: Final = 120
READY_DEADLINE_S: Final = 120
LAST_LINES: Final = 20


class CommandError(Exception):
    """kubectl refused; the text is what it printed."""


@dataclass(frozen=True)
class Cluster:
    """An API server. environ: variables with which kubectl is its administrator."""

    environ: dict[str, str]

    def kubectl(self, *words: str, stdin: str = "", codes: tuple[int, ...] = (0,)) -> str:
        """The output of a command in the root of the repository, warnings included. Raises
        CommandError for another exit code."""
        done = subprocess.run(
            [str(PROGRAMS / "kubectl"), *words],
            cwd=ROOT,
            env=self.environ,
            input=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=COMMAND_TIMEOUT_S,
            check=False,
        )
        if done.returncode not in codes:
            raise CommandError(done.stdout)
        return done.stdout

    def create(self, resource: dict[str, Any], *options: str) -> str:
        """Create a resource with strict validation. Raises CommandError."""
        text = json.dumps(resource)
        return self.kubectl("create", "--validate=strict", *options, "-f", "-", stdin=text)

    def listed(self, kind: str, namespace: str, *options: str) -> list[dict[str, Any]]:
        """The resources of a kind."""
        text = self.kubectl("get", kind, "-n", namespace, "-o", "json", *options)
        items: list[dict[str, Any]] = json.loads(text)["items"]
        return items


def build_programs() -> None:
    """Build what is not built yet. Raises MissingToolError, or AssertionError with the output of a
    build that failed."""
    lock = (MODULE / "go.mod").read_text() + (MODULE / "go.sum").read_text()
    stamp = PROGRAMS / "stamp"
    if stamp.is_file() and stamp.read_text() == lock:
        return
    require("go", "Go 1.24 or newer")
    PROGRAMS.mkdir(parents=True, exist_ok=True)
    (version,) = re.findall(r"\tk8s\.io/kubernetes (v\S+) //", lock)
    major, minor, _patch = version.removeprefix("v").split(".")
    says = {"gitVersion": version, "gitMajor": major, "gitMinor": minor}
    flags = ["-s -w", *(f"-X k8s.io/component-base/version.{name}={says[name]}" for name in says)]
    build = ["go", "build", "-mod=readonly", "-buildvcs=false", "-trimpath", "-ldflags"]
    for name, package in PACKAGES.items():
        done = subprocess.run(
            [*build, " ".join(flags), "-o", str(PROGRAMS / name), package],
            cwd=MODULE,
            capture_output=True,
            text=True,
            timeout=BUILD_TIMEOUT_S,
            check=False,
        )
        assert done.returncode == 0, f"{name} cannot be built: {done.stderr}"
    stamp.write_text(lock)


@contextmanager
def cluster(folder: Path) -> Iterator[Cluster]:
    """A new cluster with its files in a folder. Raises MissingToolError."""
    require("openssl", "OpenSSL")
    build_programs()
    first = free_base_port()
    store, peers, api, controllers = range(first, first + 4)
    token, key = token_hex(), folder / "service-accounts.key"
    (folder / "tokens").write_text(f"{token},admin,admin,system:masters\n")
    (folder / "tokens").chmod(0o600)
    subprocess.run(["openssl", "genrsa", "-out", str(key), "2048"], capture_output=True, check=True)
    made = Cluster(_kubeconfig(folder, f"https://127.0.0.1:{api}", token))
    with ExitStack() as processes:
        processes.enter_context(
            _process(
                folder,
                "etcd",
                f"--data-dir={folder / 'etcd'}",
                "--unsafe-no-fsync",
                f"--listen-client-urls=http://127.0.0.1:{store}",
                f"--advertise-client-urls=http://127.0.0.1:{store}",
                f"--listen-peer-urls=http://127.0.0.1:{peers}",
                f"--initial-advertise-peer-urls=http://127.0.0.1:{peers}",
                f"--initial-cluster=default=http://127.0.0.1:{peers}",
            )
        )
        server = processes.enter_context(
            _process(
                folder,
                "kube-apiserver",
                f"--etcd-servers=http://127.0.0.1:{store}",
                "--bind-address=127.0.0.1",
                "--advertise-address=127.0.0.1",
                "--endpoint-reconciler-type=none",
                f"--secure-port={api}",
                f"--cert-dir={folder}",
                "--authorization-mode=RBAC",
                "--allow-privileged=true",  # as clusters do: only Pod Security refuses it
                f"--token-auth-file={folder / 'tokens'}",
                "--service-account-issuer=https://kubernetes.default.svc",
                f"--service-account-key-file={key}",
                f"--service-account-signing-key-file={key}",
                "--service-cluster-ip-range=10.96.0.0/16",
            )
        )

        def is_ready() -> bool:
            assert server.poll() is None, _log(folder, "kube-apiserver")
            with_errors = made.kubectl("get", "--raw", "/readyz", codes=(0, 1))
            return with_errors.strip() == "ok"

        assert wait_until(is_ready, READY_DEADLINE_S), _log(folder, "kube-apiserver")
        processes.enter_context(
            _process(
                folder,
                "kube-controller-manager",
                f"--kubeconfig={made.environ['KUBECONFIG']}",
                "--bind-address=127.0.0.1",
                f"--secure-port={controllers}",
                f"--cert-dir={folder / 'controllers'}",
                "--leader-elect=false",
                f"--controllers={','.join(CONTROLLERS)}",
                f"--service-account-private-key-file={key}",
            )
        )
        yield made


def _kubeconfig(folder: Path, url: str, token: str) -> dict[str, str]:
    """Variables for kubectl. The API server writes its certificate when it starts."""
    path = folder / "kubeconfig"
    server = {"server": url, "certificate-authority": str(folder / "apiserver.crt")}
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "tests", "cluster": server}],
        "users": [{"name": "admin", "user": {"token": token}}],
        "contexts": [{"name": "tests", "context": {"cluster": "tests", "user": "admin"}}],
        "current-context": "tests",
    }
    path.touch(mode=0o600)
    path.write_text(json.dumps(config))
    return {"PATH": os.environ["PATH"], "HOME": str(folder), "KUBECONFIG": str(path)}


@contextmanager
def _process(folder: Path, name: str, *options: str) -> Iterator[subprocess.Popen[bytes]]:
    with (folder / f"{name}.log").open("wb") as log:
        process = subprocess.Popen(
            [str(PROGRAMS / name), *options], cwd=folder, stdout=log, stderr=subprocess.STDOUT
        )
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(READY_DEADLINE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _log(folder: Path, name: str) -> str:
    lines = (folder / f"{name}.log").read_text().splitlines()
    return f"{name} is not ready: " + "\n".join(lines[-LAST_LINES:])
