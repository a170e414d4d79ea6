"""What a command came to."""

import signal

from typer.testing import Result


def lines(result: Result) -> list[str]:
    assert result.exit_code == 0, result.output
    return result.stdout.splitlines()


def error_line(result: Result, exit_code: int = 1) -> str:
    """Return the one line that an error is, beside nothing else."""
    assert result.stdout == ""
    return last_line(result, exit_code)


def last_line(result: Result, exit_code: int = 1) -> str:
    """Return the one line that an error is, behind what was printed before."""
    assert result.exit_code == exit_code, result.output
    (line,) = result.stderr.splitlines()
    return line.removeprefix("error: ")


def hears_ctrl_c() -> None:
    """A shell that runs the tests in the background has them ignore it, and what they start as well."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
