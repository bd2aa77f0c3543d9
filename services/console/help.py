"""The long help of every verb: what it does, and commands to copy.

A test parses every example with the real parser.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Help:
    """text: one paragraph or two. examples: whole commands, each with its purpose."""

    text: str
    examples: tuple[tuple[str, str], ...]

    def epilog(self) -> str:
        """The text printed after the options."""
        lines = [f"  # {why}\n  {command}" for command, why in self.examples]
        return "\n".join(["examples:", *lines])


NONE = Help("", (("./tidegauge --help", "all verbs"),))
HELP: dict[str, Help] = {
    "run": Help(
        "Starts the stack if it is not running. Prepares the pipelines until every stage publishes."
        " Sends the load: warm-up until all stages are steady, measured phase, cool-down. Waits"
        " until every expected output has a verdict, and prints the report. Stops what it started."
        " Ctrl-C ends the run; its results are kept and marked INVALID."
        "\n\nWORKLOAD is a name from `./tidegauge workloads` or the path of a TOML file. A pipeline"
        " is a name from `./tidegauge pipelines`, a path, or external:NAME for a program that is"
        " already running and writes to output.NAME.<stage>.",
        (
            ("./tidegauge run", "workload latency on spark-realtime"),
            (
                "./tidegauge run --pipeline spark-realtime,spark-microbatch",
                "both on the same input",
            ),
            (
                "./tidegauge run --rate 1000 --duration 60 --stages 1,2",
                "1000 records/s for a minute",
            ),
            ("./tidegauge run --domain gem_packs", "another domain: in-game purchases and ads"),
            ("./tidegauge run --report report.json", "also write the report as JSON"),
            ("./tidegauge run --warm-up 60", "a fixed warm-up of one minute"),
            ('./tidegauge run --threshold "join.p99_ms <= 50"', "exit code 3 if it fails"),
            ("./tidegauge run --repeat 5", "median of five runs, with confidence intervals"),
            (
                "./tidegauge run --pipeline spark-realtime,flink --interleave",
                "alternating blocks; do they differ?",
            ),
        ),
    ),
    "study": Help(
        "Does all runs of a study: a list of experiments with the figures that a paper reports."
        " Writes the results as NAME-SCALE.html and NAME-SCALE.md. INVALID runs are repeated. After"
        " Ctrl-C the same command resumes; finished runs are recorded in the data folder. Missing"
        " engines are installed."
        "\n\nNAME is a name from `./tidegauge study` or the path of a TOML file.",
        (
            ("./tidegauge study", "list studies, their scales and durations"),
            ("./tidegauge study ospbench --scale small", "about an hour and a half"),
        ),
    ),
    "watch": Help(
        "Reads the input and output topics of a pipeline that you run and pairs their records."
        " Reports latency, missing and duplicate outputs; every hour is a run. Writes nothing to"
        " these topics and joins no consumer group. Starts the stack if it is not running. With"
        " --detach the watch runs until it is ended, with --duration for some seconds, which are"
        " one run with a report and an exit code. docs/watch-your-pipeline.md is a tutorial.",
        (
            ("./tidegauge watch --infer orders shipped --kafka kafka:9092", "suggest a watch file"),
            ("./tidegauge watch orders.toml", "watch until Ctrl-C"),
            ("./tidegauge watch orders.toml --detach", "in the background"),
            (
                './tidegauge watch orders.toml --duration 120 --threshold "p99_ms <= 500"',
                "gate a CI job",
            ),
            ("./tidegauge watch", "list the watches"),
            ("./tidegauge watch --end orders", "end a watch; its runs are kept"),
        ),
    ),
    "up": Help(
        "Starts the broker and the services and stops them at Ctrl-C; with --detach it returns and"
        " they keep running. Each `run` then uses them and starts faster. With SUITE, a name from"
        " `./tidegauge suites` or the path of a TOML file, they run that suite continuously, from"
        " where it stopped. `run` has priority: the suite's current run is cancelled and repeated.",
        (
            ("./tidegauge up default --detach", "a run every few minutes"),
            ("./tidegauge up --detach", "until `./tidegauge down`"),
            ("TIDEGAUGE_BASE_PORT=18000 ./tidegauge --data other up", "a second stack"),
        ),
    ),
    "down": Help(
        "Stops the stack of this data folder, and processes left by a stack that was killed.",
        (("./tidegauge down", "results are kept and can be queried"),),
    ),
    "status": Help(
        "Shows the services and whether each is ready, the addresses of Kafka and SQL, the current"
        " run, and the progress of the suite.",
        (("./tidegauge status --json", "for scripts"),),
    ),
    "doctor": Help(
        "Checks Java, cores, memory, disk, jars and ports, and the services of a running stack."
        " Suggests a fix for each problem. Exit code 1 if there is one.",
        (("./tidegauge doctor", "before the first run, or if a run fails"),),
    ),
    "sql": Help(
        "Runs one read-only query in ClickHouse SQL over the results. If the stack is not running,"
        " the store is started for the query.",
        (
            ('./tidegauge sql "SELECT * FROM latency_summary"', "percentiles of every run"),
            ("./tidegauge sql --examples", "list example queries"),
            ("./tidegauge sql --examples 3", "run the third"),
            ('./tidegauge sql "SELECT * FROM runs" --output runs.csv', "CSV, by the file name"),
        ),
    ),
    "evaluate": Help(
        "Reads the inputs and outputs of a past run from Kafka, evaluates them again, and compares"
        " every count with the live results. Exit code 0 if all are equal.",
        (("./tidegauge evaluate 20260101-120000-abcd", "an id from `./tidegauge runs`"),),
    ),
    "rebuild": Help(
        "Drops the projection in ClickHouse, replays the bus, and compares every table with its"
        " earlier contents. Exit code 0 if all are equal.",
        (("./tidegauge rebuild", "--force if the bus has expired records"),),
    ),
    "report": Help(
        "Prints the report of a run, by default the latest concluded one, from ClickHouse.",
        (
            ("./tidegauge report", "the latest run"),
            ("./tidegauge report 20260101-120000-abcd --json", "for scripts"),
            ("./tidegauge report --html report.html", "a self-contained page with charts"),
        ),
    ),
    "compare": Help(
        "Shows the difference of the median and 99th percentile latency of each stage, with an"
        " interval (95 % confidence for all of them together), and which settings differ. Only runs"
        " of the same workload, rate, domain and machine are compared; the others are listed. A"
        " difference is significant if five or more runs on each side show it, or, for the"
        " pipelines of a single run, if it holds second by second, where disturbances cancel. None"
        " is significant if a run was invalid, disturbed or not steady. Cost per record and the"
        " rates that searches found are described with an interval of their own, and with --all"
        " also means, p95, p99.9 and output rates.",
        (
            ("./tidegauge compare 20260101-120000-abcd 20260102-120000-abcd", "two runs"),
            ("./tidegauge compare 20260101-120000-abcd", "the pipelines of one run"),
        ),
    ),
    "changes": Help(
        "Searches the history for permanent changes of the typical latency (the mean of the middle"
        " half) and the 99th percentile of each workload, pipeline and stage, and of sustainable"
        " rates: the newest 250 valid runs of each load and its pipelines, without those that were"
        " not steady. Shows the values before and after, the first run, and what else changed"
        " (settings, versions, host). Suites search after each run; results are also in the view"
        " change_points.",
        (
            ("./tidegauge changes", "did last night's upgrade slow the join?"),
            ("./tidegauge changes --explain", "what else changed there?"),
        ),
    ),
    "runs": Help(
        "Lists the newest runs and their results, newest first.",
        (
            ("./tidegauge runs", "ids for `report` and `evaluate`"),
            ("./tidegauge runs --limit 1000 --json", "many runs, for a program"),
        ),
    ),
    "workloads": Help(
        "Lists the workloads, or describes one.",
        (("./tidegauge workloads latency", "load, phases and validity rules"),),
    ),
    "pipelines": Help(
        "Lists the pipelines, or shows the settings of one.",
        (("./tidegauge pipelines spark-realtime", "engine and all settings"),),
    ),
    "domains": Help(
        "Lists the domains, or describes one: its records, and the expected output of each stage."
        " A domain is a folder; `run --domain` takes its name or a path.",
        (("./tidegauge domains gem_packs", "inputs and stages"),),
    ),
    "engines": Help(
        "Lists the engines, or describes one: the kinds of stages it supports, its limits, and the"
        " settings of its pipelines. TIDEGAUGE_ENGINES adds your own folders.",
        (("./tidegauge engines calibration", "modes, implementations and settings"),),
    ),
    "new": Help(
        "Creates a working domain to edit: two inputs with schemas, a recording in CSV, three"
        " stages and a workload.",
        (("./tidegauge new domain orders", "creates orders/"),),
    ),
    "suites": Help(
        "Lists the suites, or shows the steps of one. A suite is a TOML file with workloads,"
        " pipelines, rates, a rotation and a CPU budget. `up SUITE` runs it.",
        (("./tidegauge suites default", "the steps in order"),),
    ),
    "grafana": Help(
        "Installs the data source, folder and dashboards in Grafana 11.6 or newer through its API,"
        " and runs the query of every panel; `verify` only runs the queries. Idempotent. Failures"
        " are listed, and the exit code is 1."
        "\n\nGRAFANA_TOKEN is the token of a service account with the role Admin,"
        " TIDEGAUGE_CLICKHOUSE_PASSWORD the ClickHouse password. Without Grafana, the store serves"
        " the same dashboards at /dashboards/.",
        (
            ("./tidegauge grafana push --url http://grafana:3000", "for this machine's stack"),
            (
                "./tidegauge grafana verify --url http://grafana:3000",
                "run the query of every panel",
            ),
        ),
    ),
    "bench": Help(
        "Measures parts of Tidegauge and their peers alternately, so that machine noise affects"
        " both alike. With --baseline, a file written by --json, the exit code is 3 if the interval"
        " of a ratio lies entirely below that of the baseline, or if a full run lacks a ratio of"
        " the baseline. Without --baseline nothing passes or fails.",
        (
            (
                "./tidegauge bench evaluator --json figures.json",
                "one benchmark, with figures as JSON",
            ),
            ("./tidegauge bench --baseline figures.json", "all benchmarks, for example nightly"),
        ),
    ),
    "test": Help(
        "Without arguments: format, lint, types and import boundaries, then all tests except the"
        " kinds faults, workloads, engines, documented, soak and fresh. Arguments are passed to"
        " pytest; the first may be a kind of tests.",
        (
            ("./tidegauge test", "what continuous integration runs"),
            ("./tidegauge test unit", "about a minute, without processes"),
            ("./tidegauge test faults", "processes are killed under load"),
            ("./tidegauge test workloads", "every workload, shortened"),
            ("./tidegauge test engines", "every engine, and the example engine on every domain"),
            ("./tidegauge test documented", "every command in README and docs"),
            ("./tidegauge test soak", "two hours of the default suite and three watches"),
            ("./tidegauge test fresh", "installs a fresh clone over the network"),
        ),
    ),
    "completion": Help(
        "Prints a shell script that completes verbs, options and names.",
        (
            ('eval "$(./tidegauge completion bash)"', "for this shell; add it to ~/.bashrc"),
            ("./tidegauge completion zsh > ~/.tidegauge-completion", "then source it in ~/.zshrc"),
        ),
    ),
}
