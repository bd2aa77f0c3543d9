"""The verbs: each takes its options, the settings and a console, and returns the exit code."""

from services.console.verbs import definitions, measuring, results, stack, studying, watching

VERBS = {
    "run": measuring.run,
    "study": studying.study,
    "watch": watching.watch,
    "up": stack.up,
    "down": stack.down,
    "status": stack.status,
    "doctor": stack.doctor,
    "bench": definitions.bench,
    "completion": definitions.completion,
    "sql": results.sql,
    "evaluate": measuring.evaluate,
    "rebuild": stack.rebuild,
    "report": results.report,
    "changes": results.changes,
    "compare": results.compare,
    "runs": results.runs,
    "workloads": definitions.workloads,
    "pipelines": definitions.pipelines,
    "domains": definitions.domains,
    "engines": definitions.engines,
    "new": definitions.new,
    "suites": definitions.suites,
    "grafana": results.grafana,
}
