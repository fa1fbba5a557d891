"""`list --families` and docs/families.md: complete, current, and without torch."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from framework.cli import main
from framework.families import WHOLE, families_page, family_facts
from framework.paths import ROOT
from framework.registry import FAMILIES

TASKS = {"text to image", "image to image", "inpainting", "text to video", "image to video"}


def test_the_page_in_the_docs_is_current() -> None:
    assert (ROOT / "docs" / "families.md").read_text(encoding="utf-8") == families_page()


def test_every_family_says_what_it_makes_of_what_and_has_a_config() -> None:
    facts = family_facts()
    assert set(facts) == set(FAMILIES.names())
    for name, said in facts.items():
        assert said["tasks"], name
        assert set(said["tasks"]) <= TASKS, name
        assert said["pipeline_classes"], name
        assert said["encoders"], name
        assert said["configs"], name
        assert ("image" in said["files"]) == any(task.startswith(("image", "in")) for task in said["tasks"]), name


def test_a_users_own_config_is_listed_with_its_family(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "pipeline").mkdir()
    (tmp_path / "pipeline" / "mine.yaml").write_text("name: mine\nfamily: sana\n")
    assert main(["list", "--families", "--json", "--config-dir", str(tmp_path)]) == 0
    assert json.loads(capsys.readouterr().out)["families"]["sana"]["configs"] == ["mine", "sana"]


def test_markdown_is_for_the_families_alone(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", "stages", "--markdown"]) == 2
    assert capsys.readouterr().err == (
        "--markdown: only the families have a page; framework list --families --markdown\n"
    )


def test_listing_the_families_imports_no_torch() -> None:
    code = (
        "import sys; from framework.cli import main; main(['list', '--families', '--markdown']); "
        "sys.exit(any(name in sys.modules for name in ('torch', 'diffusers', 'transformers', 'numpy', 'hydra')))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert all(f"`{name}`" in done.stdout.decode() for name in WHOLE)
