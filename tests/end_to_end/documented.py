"""Rules by which a test runs the commands of the pages: changes to them, and expected results.

A command is passed to a shell as written, including its comment, in a copy of this folder whose
workloads are shorter and more tolerant (`shortened`). CHANGES lists every change to the text of
commands. RULES gives, for every command, the state of the stack in which it is run, and how its
result is judged. A command without a rule fails a test, as does a rule or a change that no command
needs.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

# Reasons why a search on a busy machine finds no rate, one sentence or several.
TOO_SLOW = (
    r"(?: ?(?:\w+: median latency (?:rises by )?\d+ ms(?: a second|, allowed below \d+)\."
    r"|\w+: drained \d+ s after the end, allowed below \d+ s\."
    r"|Mean CPU \d+% of the cores that the pipeline may use, allowed below \d+%\.))+"
)
# Reasons caused by a busy machine; any other reason for INVALID is a failure.
MACHINE = (
    r"The generator could not send \d+ of \d+ records\.",
    r"The generator was late: [^:]*ms\.",
    r"The evaluator did not give every expected output a verdict in time\.",
    r"The evaluation was [^:]*ms\.",
    r"CPU steal was [^:]*%\.",
    r"Processes outside the stack used [^:]*%\.",
    rf"No rate was sustained:{TOO_SLOW}",
    rf"\d+% of the rate found was not sustained:{TOO_SLOW}"
    r"(?: The machine became slower: [^:]*\d+\.)?",
)
# Reasons that one of those above can cause, accepted only beside it in the same run.
FOLLOWS = (r"[\w-]+ published no measured output of [\w, ]+\.",)
# Findings of `doctor` that are acceptable on a shared machine.
BUSY = r"\d+ cores, load [\d.]+|[\d.]+ GB of memory free"


@dataclass(frozen=True)
class Done:
    """Result of a command. text: its whole output."""

    code: int
    text: str


def succeeds(done: Done) -> bool:
    """Exit code 0."""
    return done.code == 0


def speaks(done: Done) -> bool:
    """Exit code 0, with output."""
    return succeeds(done) and bool(done.text.strip())


def measures(done: Done) -> bool:
    """All runs are valid and clean, or INVALID only because of the machine."""
    if done.code == 0:
        return "VALID: every expected output was published once, exact and in time." in done.text
    is_unclean = "VALID, but" in done.text
    return done.code == 1 and not is_unclean and of_the_machine(*told_invalid(done.text))


def gates(done: Done) -> bool:
    """The same, or a threshold of latency failed in a valid run, as on a busy machine."""
    return measures(done) or (done.code == 3 and "\nVALID: " in done.text)


def told_invalid(text: str) -> list[str]:
    """The reasons why runs are INVALID, as printed: the sentences of each run."""
    return re.findall(r"^(?:run \d+ of \d+: )?INVALID: (.+)$", text, re.M)


def of_the_machine(*reasons: str) -> bool:
    """Whether there are sentences of at least one run, and the machine caused those of each."""
    caused, follows = "|".join(MACHINE), "|".join(FOLLOWS)
    pattern = rf"(?:(?:{follows}) ?)*(?:{caused})(?: ?(?:{caused}|{follows}))*"
    return bool(reasons) and all(re.fullmatch(pattern, one) for one in reasons)


def examines(done: Done) -> bool:
    """No findings except that the machine is busy."""
    bad = re.findall(r"^bad +(.*)", done.text, re.M)
    return done.code == (1 if bad else 0) and all(re.fullmatch(BUSY, text) for text in bad)


def writes_a_page(done: Done) -> bool:
    """A study that has written its page. With exit code 1 the page lists the runs without figures
    (`without_figures`)."""
    return done.code in (0, 1) and "Wrote" in done.text


def without_figures(page: str) -> list[str]:
    """Why runs of a study have no figures: the sentences of each, from its page in Markdown."""
    return re.findall(r"^.+, run \S+ (?:is INVALID|gave no figure): (.+)$", page, re.M)


def refuses(done: Done) -> bool:
    """Exit code 1, with output."""
    return done.code == 1 and bool(done.text.strip())


def is_interrupted(done: Done) -> bool:
    """Interrupted by Ctrl-C, as on the page."""
    return done.code in (0, 130)


def audits(done: Done) -> bool:
    """With or without known vulnerabilities: these change independently of this project."""
    return done.code in (0, 1) and bool(done.text.strip())


@dataclass(frozen=True)
class Rule:
    """command: pattern of the whole command as written, without its comment. page: the only page it
    applies to. stack: whether a stack must be running, must not be, or does not matter. leaves:
    what is running afterwards, if it changes: nothing, a bare stack, or a suite. runs: number of
    runs that the results must have. says: pattern that the output must contain. within_s: how long
    a read-only command is repeated until its output contains it. until: output of a long-running
    command at which it is stopped by Ctrl-C. engine: a command that shows that a required external
    program is installed and works."""

    command: str
    judge: Callable[[Done], bool] = speaks
    page: str | None = None
    stack: Literal["up", "down", "any"] = "any"
    leaves: Literal["", "nothing", "bare", "suite"] = ""
    runs: int = 0
    says: str = ""
    until: str = ""
    within_s: float = 0
    engine: str = ""


@dataclass(frozen=True)
class Change:
    """command: pattern that is replaced with `text`, in which {name} is a value of the test."""

    command: str
    text: str


TIDEGAUGE = r"\./tidegauge "
OTHER_PORT = "TIDEGAUGE_BASE_PORT=18000 "
# A cluster on this machine, with the operators: a test must never change any other.
LOCAL_CLUSTER = (
    "kubectl config current-context | grep -Eq '^(kind|k3d|minikube)' && kubectl get crd"
    " kafkas.kafka.strimzi.io clickhouseinstallations.clickhouse.altinity.com"
)

RULES = (
    # Commands that measure: once with nothing running, once on other ports, once on an external
    # Kafka.
    Rule(TIDEGAUGE + r"run     # start everything, .*", measures, stack="down"),
    Rule(OTHER_PORT + TIDEGAUGE + "run", measures, stack="down"),
    Rule(r"TIDEGAUGE_KAFKA_BOOTSTRAP=\S+ " + TIDEGAUGE + "--data own-kafka run", measures),
    Rule("TIDEGAUGE_ENGINES=examples " + TIDEGAUGE + "run .+", measures, stack="down"),
    Rule(TIDEGAUGE + r"run .*--threshold .+", gates, stack="up"),
    Rule(TIDEGAUGE + r"run( .+)?", measures, stack="up"),
    Rule(TIDEGAUGE + r"bench \w+( --json \S+)?"),
    Rule(r"\.venv/bin/python -m tests\.benchmarks\._engines_page \S+", succeeds),
    Rule(TIDEGAUGE + r"study \w+( .+)?", writes_a_page, stack="up"),
    # Commands that start and stop.
    Rule(
        TIDEGAUGE + "up default",
        is_interrupted,
        stack="down",
        says="The suite default runs",
        until=r"Ctrl-C stops it\.",
    ),
    Rule(
        TIDEGAUGE + "up default --detach",
        stack="down",
        leaves="suite",
        says="The suite default runs",
    ),
    Rule(TIDEGAUGE + "up --detach", stack="down", leaves="bare", says="The stack is up"),
    Rule(TIDEGAUGE + "down", stack="up", leaves="nothing", says=r"The stack is down\."),
    Rule(OTHER_PORT + TIDEGAUGE + "--data second up --detach", says="The stack is up"),
    Rule(OTHER_PORT + TIDEGAUGE + "--data second status", says="store +.*ready"),
    Rule(OTHER_PORT + TIDEGAUGE + "--data second down", says=r"The stack is down\."),
    Rule("rm -rf .tidegauge", succeeds, stack="down"),
    # Commands that show status.
    Rule(TIDEGAUGE + "status", page="write-a-suite.md", stack="up", says="default", within_s=30),
    Rule(TIDEGAUGE + "status", stack="up", says="store +.*ready"),
    Rule(TIDEGAUGE + "doctor", examines, stack="up", says="store is ready"),
    Rule(TIDEGAUGE + "doctor --notify", refuses, says="no webhook is set"),
    Rule(TIDEGAUGE + "(workloads|pipelines|suites|domains|engines)( .+)?"),
    Rule(TIDEGAUGE + "study"),
    Rule(TIDEGAUGE + "watch", says="There is no watch"),
    Rule(TIDEGAUGE + "new domain orders( .*)?", says="Wrote .*orders"),
    Rule(TIDEGAUGE + "completion bash"),
    Rule(r'eval "\$\(./tidegauge completion bash\)"', says="-F _tidegauge"),
    Rule(TIDEGAUGE + "sql --examples"),
    # Commands that query results.
    Rule(TIDEGAUGE + r"sql .+ --output \S+", succeeds, stack="up", runs=1),  # the file is checked
    Rule(TIDEGAUGE + "(report|runs|sql)( .+)?", stack="up", runs=1),
    Rule(TIDEGAUGE + "compare RUN RUN", stack="up", runs=2),
    Rule(TIDEGAUGE + "evaluate RUN_ID", stack="up", runs=1),
    Rule(TIDEGAUGE + "changes( --explain)?", stack="up", runs=1),
    Rule(TIDEGAUGE + "rebuild", stack="up", runs=1),
    Rule("curl '.*'", stack="up", runs=1, says="run_id", engine="curl --version"),
    Rule(r"(GRAFANA_TOKEN=… )?" + TIDEGAUGE + r"grafana push --url \S+", stack="up", runs=1),
    # Commands that check the project.
    Rule(TIDEGAUGE + "test( tests/unit/spark_pipeline)?", says=r"\d+ passed|tests/.*: \d+"),
    Rule(TIDEGAUGE + "test faults tests/integration/test_spark_cluster.py", says=": [1-9]"),
    Rule(
        r"TIDEGAUGE_KILLED_ENGINES=\S+ "
        + TIDEGAUGE
        + "test faults tests/faults/test_killed_engines.py",
        says=": [1-9]",
    ),
    Rule(r"\.venv/bin/python -m tests\.faults\.killed_engines", succeeds),
    Rule(TIDEGAUGE + "test clients", says="test_clients.py: [1-9]"),
    Rule(TIDEGAUGE + "test deploy", says="test_kubernetes_api.py: [1-9]"),
    Rule(TIDEGAUGE + "test documented", says="test_documented.py: [1-9]"),
    Rule("sed .* pipelines/spark-microbatch.toml > pipelines/mine.toml", succeeds),
    Rule(r"\.venv/bin/python -m deploy\.dependencies update", succeeds),
    Rule(r"\.venv/bin/python examples/results\.py", stack="up", runs=1, says="p99"),
    Rule(r"\.venv/bin/python -m deploy\.grafana\.program contact-points \S+", succeeds),
    Rule(r"TIDEGAUGE_WEBHOOKS=.* -m deploy\.kubernetes \S+", succeeds),
    Rule(r"\.venv/bin/python -m deploy\.dependencies\.lock", says="pyspark=="),
    # Only if it is installed: a test downloads no programs.
    Rule("uvx pip-audit .*", audits, engine="uvx --offline pip-audit --version"),
    # Containers and clusters.
    Rule("sh deploy/compose/make-secrets.sh", succeeds),
    Rule("docker compose .* console run .*", measures, engine="docker info"),
    # The page has no watch file.
    Rule(r"docker compose .* services\.watcher .*", engine="docker info"),
    Rule("(TIDEGAUGE_ENGINES=.* )?docker compose .*", succeeds, engine="docker info"),
    Rule("docker buildx imagetools inspect .*", says="sha256:", engine="docker buildx version"),
    Rule(
        r"kubectl .* port-forward .*", is_interrupted, until="Forwarding from", engine=LOCAL_CLUSTER
    ),
    Rule("kubectl .*", engine=LOCAL_CLUSTER),
)

CHANGES = (
    # Placeholders.
    Change("workloads NAME", "workloads latency"),
    Change("domains NAME", "domains traffic"),
    Change("bench NAME", "bench generator"),
    Change("engines NAME", "engines bytewax"),
    Change("run --pipeline mine$", "run --pipeline calibration"),
    Change("RUN RUN$", "{before} {newest}"),
    Change("RUN_ID", "{newest}"),
    Change("GRAFANA_TOKEN=…", "GRAFANA_TOKEN={token}"),
    Change("--url (URL|http://grafana:3000)", "--url {grafana}"),
    # Addresses and ports: other stacks may be running on this machine.
    Change("^TIDEGAUGE_BASE_PORT=18000", "TIDEGAUGE_BASE_PORT={second_port}"),
    Change("127.0.0.1:17072", "127.0.0.1:{store_port}"),
    Change(
        "^TIDEGAUGE_KAFKA_BOOTSTRAP=kafka1:9092,kafka2:9092",
        "TIDEGAUGE_KAFKA_BOOTSTRAP={kafka} TIDEGAUGE_BASE_PORT={second_port}",
    ),
    # The program of examples/ instead of Flink: it implements these stages.
    Change("external:my-flink --stages 1,2", "external:my-flink --stages 0,1"),
    # Shortened.
    Change("--workers 1,2,4", "--workers 1,2"),
    Change(
        r"study (ospbench|karimov|stages|recovery|scaling)( --scale \w+)?",
        "study ospbench --scale tiny",
    ),
    Change(r"study skyshark --scale \w+", "study skyshark --scale tiny"),
    Change(r"--duration \d+", "--duration 5"),
    Change(r"--warm-up \d+", "--warm-up 4"),
    Change(r"tidegauge test(?=$|    # )", "tidegauge test --collect-only -q"),
    Change(r"tidegauge test (faults \S+|documented|clients)$", r"\g<0> --collect-only -q"),
    # It prints nothing; check its effect.
    Change("^eval .*", r"\g<0>; complete -p tidegauge"),
)

# The smallest settings of `bench`, which still take some ten minutes.
BENCHES = {
    "TIDEGAUGE_BENCH_RECORDS": "20000",
    "TIDEGAUGE_BENCH_ROWS": "1",
    "TIDEGAUGE_BENCH_PIPELINES": "spark-microbatch",
    "TIDEGAUGE_BENCH_ALONE": "",
    "TIDEGAUGE_BENCH_STAGES": "1",
    "TIDEGAUGE_BENCH_ROUNDS": "1",
    "TIDEGAUGE_BENCH_SECONDS": "5",
    "TIDEGAUGE_BENCH_BACKLOG": "20000",
}

# Changes to every workload that contains these settings.
SHORT = {
    "warm_up_s": "3",
    "measure_s": "5",
    "deadline_ms": "90_000",
    "give_up_ms": "100_000",
    "max_send_delay_p99_ms": "10_000",
    "step_warm_up_s": "3",
    "step_s": "5",
    "confirm_s": "5",
    "max_steps": "2",
}
SHORT_OF = {
    "large-windows": {"measure_s": "24"},  # its first window closes after 15 to 18 s
    "single-burst": {"pipelines_start_s": "2"},
    "sustainable-throughput": {"rate_per_second": "400"},
    "scalability": {"rate_per_second": "400"},
}


def shortened(name: str, text: str) -> str:
    """The text of a workload file with shorter phases and high tolerances, so that a busy machine
    makes nothing late: commands are tested, not speed."""
    for key, value in (SHORT | SHORT_OF.get(name, {})).items():
        text = re.sub(rf"^{key} = .*", f"{key} = {value}", text, flags=re.M)
    if "keep_up_s" not in text:
        text = text.replace("\n[load]", "\nkeep_up_s = 4\n\n[load]", 1)
    return text


def rule_of(page: str, line: str) -> Rule:
    """The first rule for a command of a page. Raises LookupError if there is none."""
    for rule in RULES:
        if rule.page in (None, page) and re.fullmatch(rf"{rule.command}( +# .*)?", line):
            return rule
    raise LookupError(f"{page}: no rule says how a test runs: {line}")


def changed(line: str, values: Mapping[str, str]) -> str:
    """The command after CHANGES. Values are only computed where needed."""
    for change in CHANGES:

        def filled(found: "re.Match[str]", text: str = change.text) -> str:
            return found.expand(text).format_map(values)

        line = re.sub(change.command, filled, line)
    return line
