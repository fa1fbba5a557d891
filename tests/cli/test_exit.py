"""How the program ends: with the code of its command, and at once after an interrupt."""

import subprocess
import sys

import pytest

SLOW_TO_LEAVE = """
import atexit, sys, time
from framework import cli
atexit.register(time.sleep, 30)  # as an interpreter full of libraries is slow to take apart
cli.main = lambda: print("said") or int(sys.argv[1])
cli.run_and_exit()
"""


def test_an_interrupted_run_does_not_wait_for_the_interpreter() -> None:
    """Case US-06: gone within two seconds, whatever was imported; nothing said is lost."""
    done = subprocess.run(
        [sys.executable, "-c", SLOW_TO_LEAVE, "130"], capture_output=True, text=True, timeout=20, check=False
    )
    assert (done.returncode, done.stdout) == (130, "said\n")


@pytest.mark.parametrize("code", [0, 2, 4])
def test_other_ends_are_ordinary(code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    from framework import cli

    monkeypatch.setattr(cli, "main", lambda: code)
    with pytest.raises(SystemExit) as caught:
        cli.run_and_exit()
    assert caught.value.code == code
