"""What the help of every verb says beyond its one line: what happens, and commands to copy.

Every example is read by a test with the parser itself.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Help:
    """text: one paragraph or two. examples: whole commands, each with what it is for."""

    text: str
    examples: tuple[tuple[str, str], ...]

    def epilog(self) -> str:
        """As it follows the options."""
        width = max(len(command) for command, _ in self.examples)
        lines = [f"  {command:<{width}}   # {why}" for command, why in self.examples]
        return "\n".join(["examples:", *lines])


NONE = Help("", (("./tidegauge --help", "every verb"),))
HELP: dict[str, Help] = {
    "run": Help(
        "Starts the stack unless it runs, prepares the pipelines until every stage has published,"
        " sends the load (warm-up until all is steady, measured phase, cool-down), waits until"
        " every expected output has its verdict, and prints the report. What it started it stops."
        " Ctrl-C ends the run and keeps what it has measured, marked as INVALID."
        "\n\nWORKLOAD is a name of `tidegauge workloads` or the path of a TOML file; a pipeline"
        " likewise, or external:NAME for a program that runs already and writes"
        " output.NAME.<stage>.",
        (
            ("./tidegauge run", "the workload latency on spark-realtime"),
            ("./tidegauge run --pipeline spark-realtime,spark-microbatch", "on the same input"),
            ("./tidegauge run --rate 1000 --duration 60 --stages 1,2", "1000 records/s, a minute"),
            ("./tidegauge run --domain gem_packs", "other records: purchases in a game, and ads"),
            ("./tidegauge run --report report.json", "and the report as JSON"),
            ("./tidegauge run --warm-up 60", "for a minute, no longer until all is steady"),
            ('./tidegauge run --threshold "join.p99_ms <= 50"', "exit code 3 when that fails"),
            ("./tidegauge run --repeat 5", "the median run of five, with confidence intervals"),
            (
                "./tidegauge run --pipeline spark-realtime,flink --interleave",
                "in turns, and whether they differ",
            ),
        ),
    ),
    "study": Help(
        "Does all runs of a study, a list of experiments with what a paper found, and writes a page"
        " about them, NAME-SCALE.html and NAME-SCALE.md. INVALID runs are done again. Ctrl-C ends"
        " it, and the same command goes on: runs that are done are kept by their ids in the data"
        " folder. Engines that are not there are installed."
        "\n\nNAME is a name of `tidegauge study` or the path of a TOML file.",
        (
            ("./tidegauge study", "the studies, their scales and how long each takes"),
            ("./tidegauge study ospbench --scale small", "within an hour and a half"),
        ),
    ),
    "watch": Help(
        "Reads input and output topics of a pipeline that you run, pairs their records, and says"
        " how long each took, what is missing and what came twice; every hour of it is a run. It"
        " writes nothing to these topics and joins no group. It starts the stack unless it runs."
        " With --detach the watch stays on until it is ended. docs/watch-your-pipeline.md begins"
        " with a file.",
        (
            ("./tidegauge watch --infer orders shipped --kafka kafka:9092", "a file to begin with"),
            ("./tidegauge watch orders.toml", "until Ctrl-C"),
            ("./tidegauge watch orders.toml --detach", "in the background"),
            ("./tidegauge watch", "which watches there are"),
            ("./tidegauge watch --end orders", "end one; its runs stay"),
        ),
    ),
    "up": Help(
        "Starts broker and services and stays until Ctrl-C, or returns with --detach. Every `run`"
        " then attaches to them and starts at once. With SUITE, a name of `tidegauge suites` or the"
        " path of a TOML file, they carry it out for ever, from where it was; `run` has priority:"
        " the suite's run is cancelled and repeated.",
        (
            ("./tidegauge up default --detach", "measure something every few minutes"),
            ("./tidegauge up --detach", "in the background; `tidegauge down` stops it"),
            ("TIDEGAUGE_BASE_PORT=18000 ./tidegauge --data other up", "a second stack beside it"),
        ),
    ),
    "down": Help(
        "Stops the stack of this data folder, whoever started it, and whatever a killed one left.",
        (("./tidegauge down", "results stay and can be asked afterwards"),),
    ),
    "status": Help(
        "Says which services run, whether each is ready, where Kafka and SQL answer, which run is"
        " going on, and where the suite is.",
        (("./tidegauge status --json", "for programs"),),
    ),
    "doctor": Help(
        "Looks at Java, cores, memory, disk, jars and ports, or at the services of the running"
        " stack, and says for everything that is wrong what to do. Exit code 1 when anything is.",
        (("./tidegauge doctor", "before the first run, or when a run is not as expected"),),
    ),
    "sql": Help(
        "Answers one query in ClickHouse's SQL from the results; read only. Without a running stack"
        " the store is started for the moment.",
        (
            ('./tidegauge sql "SELECT * FROM latency_summary"', "percentiles of every run"),
            ("./tidegauge sql --examples", "questions people ask"),
            ("./tidegauge sql --examples 3", "ask the third"),
            ('./tidegauge sql "SELECT * FROM runs" --output runs.csv', "CSV, by the file's name"),
        ),
    ),
    "evaluate": Help(
        "Reads the inputs and outputs of a past run from Kafka again, judges them again and"
        " compares every count with what was published live. Exit code 0 when all are equal.",
        (("./tidegauge evaluate 20260101-120000-abcd", "an id of `tidegauge runs`"),),
    ),
    "rebuild": Help(
        "Drops the projection in ClickHouse, replays the bus, and compares every table with what it"
        " was. Exit code 0 when all are equal.",
        (("./tidegauge rebuild", "refuses where the bus has lost records; --force goes on"),),
    ),
    "report": Help(
        "Prints the report of a run from ClickHouse, by default the latest that is concluded.",
        (
            ("./tidegauge report", "the latest run again"),
            ("./tidegauge report 20260101-120000-abcd --json", "for programs"),
            ("./tidegauge report --html report.html", "a page with charts, to send or print"),
        ),
    ),
    "compare": Help(
        "Says of every stage how the median and the 99th percentile of latency differ, with an"
        " interval (all of them hold with 95 % confidence), and what else differed. Only runs of"
        " the same workload, rate, domain and machine are compared; others are left out by name. A"
        " difference is called real with five runs or more on each side, by how runs vary; or, with"
        " one run only, between its pipelines, second by second: what disturbed both cancels out."
        " None is called real where a run was not steady, disturbed or not valid.",
        (
            ("./tidegauge compare 20260101-120000-abcd 20260102-120000-abcd", "two runs"),
            ("./tidegauge compare 20260101-120000-abcd", "the pipelines of one run"),
        ),
    ),
    "changes": Help(
        "Looks through all valid runs, oldest first, for figures that changed permanently: the"
        " mean, the median and the 99th percentile of latency of every workload, pipeline and"
        " stage, and the sustainable rate of every search. Says what was before and after, with"
        " which run it began, and what else changed there (settings, versions, host)."
        " A suite looks after each of its runs; what is found is also in the view change_points.",
        (
            ("./tidegauge changes", "did last night's upgrade slow the join?"),
            ("./tidegauge changes --explain", "what else changed there?"),
        ),
    ),
    "runs": Help(
        "Lists the runs, newest first, with what became of them.",
        (("./tidegauge runs", "ids for `report` and `evaluate`"),),
    ),
    "workloads": Help(
        "Lists the workloads, or says in words what one of them does.",
        (("./tidegauge workloads latency", "load, phases and how it is judged"),),
    ),
    "pipelines": Help(
        "Lists the pipelines, or shows every setting of one.",
        (("./tidegauge pipelines spark-realtime", "its engine and all settings"),),
    ),
    "domains": Help(
        "Lists the domains: what the records are of, and what each stage must publish. Or explains"
        " one. A domain is a folder; `run --domain` takes its name, or the path of your own.",
        (("./tidegauge domains gem_packs", "its inputs and stages"),),
    ),
    "engines": Help(
        "Lists the engines: what runs pipelines. Or explains one: what it can do, why it cannot do"
        " the rest, and the settings of its pipelines. TIDEGAUGE_ENGINES names folders of your"
        " own.",
        (("./tidegauge engines calibration", "modes, implementations and settings"),),
    ),
    "new": Help(
        "Writes the folder of a domain that runs at once: two inputs with their schemas, a"
        " recording in CSV, three stages and a workload. Change them to what you have.",
        (("./tidegauge new domain orders", "writes orders/"),),
    ),
    "suites": Help(
        "Lists the suites, or shows the steps of one. A suite is a TOML file: workloads, pipelines,"
        " rates, how often, and how much of the machine they may take. `up SUITE` carries it out.",
        (("./tidegauge suites default", "its steps in their order"),),
    ),
    "grafana": Help(
        "Puts data source, folder and dashboards into a Grafana 11.6 or newer by its API, and asks"
        " every query of every panel there; verify only asks. Doing it again changes nothing. What"
        " could not be done is named, and the exit code is 1."
        "\n\nThe token of a service account with the role Admin is taken from GRAFANA_TOKEN, a"
        " password of ClickHouse from TIDEGAUGE_CLICKHOUSE_PASSWORD. Without a Grafana, the store"
        " shows the same dashboards at /dashboards/.",
        (
            ("./tidegauge grafana push --url http://grafana:3000", "for this machine's stack"),
            ("./tidegauge grafana verify --url http://grafana:3000", "does every panel answer?"),
        ),
    ),
    "bench": Help(
        "Measures a part of Tidegauge against a peer, alternately in one run, because machines are"
        " noisy. With --baseline, a file that --json wrote, it ends with 3 where the whole interval"
        " of a ratio lies below that of the baseline, or where a run of all benchmarks lacks one of"
        " its ratios. Without --baseline nothing passes or fails.",
        (
            ("./tidegauge bench evaluator --json figures.json", "one of them, figures as JSON too"),
            ("./tidegauge bench --baseline figures.json", "all of them, such as every night"),
        ),
    ),
    "test": Help(
        "Without arguments: format, lint, types, import boundaries, then all tests but the kinds"
        " faults, workloads, engines, documented, soak and fresh. Arguments go to pytest; the first"
        " may be a kind of tests.",
        (
            ("./tidegauge test", "what continuous integration runs"),
            ("./tidegauge test unit", "a minute, no processes"),
            ("./tidegauge test faults", "parts are killed under load"),
            ("./tidegauge test workloads", "every ready workload, shortened"),
            ("./tidegauge test engines", "the engines, and one of your own on every domain"),
            ("./tidegauge test documented", "every command of README and docs"),
            ("./tidegauge test soak", "two hours of the default suite and three watches"),
            ("./tidegauge test fresh", "a clone that installs itself, over the network"),
        ),
    ),
    "completion": Help(
        "Prints a script that completes verbs, options and names at the command line.",
        (
            ('eval "$(./tidegauge completion bash)"', "for this shell; put it into ~/.bashrc"),
            ("./tidegauge completion zsh > ~/.tidegauge-completion", "then source it in ~/.zshrc"),
        ),
    ),
}
