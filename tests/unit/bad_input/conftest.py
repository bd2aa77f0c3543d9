"""Prints the outcomes of the bad input at the end."""

from tests.unit.bad_input.outcomes import lines


def pytest_terminal_summary(terminalreporter):
    if lines():
        terminalreporter.write_sep("-", "bad input")
        for line in lines():
            terminalreporter.write_line(line)
