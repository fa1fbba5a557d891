"""`python -m framework`. No torch."""

from framework.cli import run_and_exit

run_and_exit()
