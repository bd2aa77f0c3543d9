"""The command `tidegauge` and its verbs, in the order of its help."""

import click

from services.console.arguments import COMMON, CONTEXT, VerbGroup
from services.console.verbs import definitions, measuring, results, stack
from services.runtime.version import shown


def _show_version(context: click.Context, _option: click.Parameter, is_asked: bool) -> None:
    """The version of the checkout, with its revision, or of the installed package."""
    if is_asked:
        click.echo(f"tidegauge {shown()}")
        context.exit()


@click.group(
    cls=VerbGroup,
    context_settings=CONTEXT,
    subcommand_metavar="VERB …",
    epilog="""\
Exit codes: 0 success (run: valid, every output correct), 1 the run or check did not pass, 2 the
command could not be carried out, 3 a threshold failed or a figure is worse than the baseline, 130
interrupted.

State is kept in --data DIR or TIDEGAUGE_DATA (default .tidegauge). Ports start at
TIDEGAUGE_BASE_PORT (default 17070), so several stacks can run side by side.""",
)
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_show_version,
    help="print the version",
)
def tidegauge() -> None:
    """Benchmark stream processing pipelines from outside, through Kafka."""


tidegauge.params += COMMON
for each in (
    *(measuring.run, measuring.study, measuring.watch),
    *(stack.up, stack.down, stack.status, stack.doctor),
    *(results.sql, measuring.evaluate, stack.rebuild),
    *(results.report, results.compare, results.changes, results.runs),
    *(definitions.workloads, definitions.pipelines, definitions.domains, definitions.engines),
    *(definitions.suites, results.grafana, definitions.new),
    *(definitions.bench, definitions.test, definitions.completion),
):
    tidegauge.add_command(each)
