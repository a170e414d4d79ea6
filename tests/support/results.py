"""The output and the exit code of a command."""

import signal

from typer.testing import Result


def lines(result: Result) -> list[str]:
    assert result.exit_code == 0, result.output
    return result.stdout.splitlines()


def error_line(result: Result, exit_code: int = 1) -> str:
    """Return the error's one line; assert that nothing else was printed."""
    assert result.stdout == ""
    return last_line(result, exit_code)


def last_line(result: Result, exit_code: int = 1) -> str:
    """Return the error's one line, which comes after what was printed before."""
    assert result.exit_code == exit_code, result.output
    (line,) = result.stderr.splitlines()
    return line.removeprefix("error: ")


def hears_ctrl_c() -> None:
    """Let SIGINT end this process.

    A shell that runs the tests in the background makes them ignore it, and what they start as well.
    """
    signal.signal(signal.SIGINT, signal.SIG_DFL)
