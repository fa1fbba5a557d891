"""Every command against its golden file: `$ command`, what it prints, its exit code.

`GOLDEN_WRITE=1 pytest tests/cli` writes the files anew; read the difference before it is committed.
"""

import os
import shlex
from pathlib import Path

import pytest

from framework.cli import main

GOLDEN = Path(__file__).parent / "golden"
FILES = sorted(GOLDEN.glob("*.txt"))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_command_prints_its_golden_file(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = file.read_text(encoding="utf-8").splitlines()[0]
    code = main(shlex.split(command.removeprefix("$ framework")))
    out, err = capsys.readouterr()
    text = f"{command}\n{out}{f'--- stderr{chr(10)}{err}' if err else ''}--- exit {code}\n"
    if os.environ.get("GOLDEN_WRITE"):
        file.write_text(text, encoding="utf-8")
    assert text == file.read_text(encoding="utf-8")


def test_every_command_has_a_golden_file_of_its_help() -> None:
    from framework.cli import COMMANDS

    helps = {file.read_text(encoding="utf-8").splitlines()[0] for file in FILES}
    assert {f"$ framework {command} --help" for command in COMMANDS} <= helps


@pytest.mark.parametrize("key", ["pipeline.model.source", "pipeline.components.vae.source"])
@pytest.mark.parametrize(
    ("source", "told"),
    [
        ("./nowhere", "the folder '{}' does not exist"),
        ("embedded:digit", "no embedded model is called 'digit'; did you mean 'digits'?"),
    ],
)
def test_validate_names_a_place_that_is_not_here(
    key: str, source: str, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["validate", f"{key}={source}"]) == 2
    line = capsys.readouterr().err.strip()
    shown = source if key == "pipeline.model.source" else source.removeprefix("./")
    assert line == f"(from the command line: {key}={source}): {key}: {told.format(shown)}"


def test_validate_leaves_a_name_of_the_hub_to_the_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["validate", "pipeline.model.source=me/nowhere", "pipeline.components.vae.source=me/gone"]) == 0
