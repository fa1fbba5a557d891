"""The wheel: built once, unpacked into a folder of its own, and used from another one."""

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from framework.paths import ROOT

SOURCES = ("conf", "framework", "stages", "strategies", "pyproject.toml", "README.md", "LICENSE")


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that pip installed the wheel into; nothing of the checkout is on the path of its programs."""
    folder = tmp_path_factory.mktemp("wheel")
    (folder / "source").mkdir()
    for name in SOURCES:  # a copy, so that building leaves nothing in the checkout
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, folder / "source" / name)
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    build = [*pip, "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(folder), str(folder / "source")]
    subprocess.run(build, check=True, capture_output=True)
    (wheel,) = folder.glob("*.whl")
    install = [*pip, "install", "--no-deps", "--no-compile", "--target", str(folder / "site"), str(wheel)]
    subprocess.run(install, check=True, capture_output=True)
    return folder / "site"


def run(site: Path, cwd: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    cwd.mkdir(exist_ok=True)
    return subprocess.run(
        [sys.executable, "-m", "framework", *words],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(site)},
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_wheel_works_from_another_folder(installed: Path, tmp_path: Path) -> None:
    listed = run(installed, tmp_path / "here", "list")
    assert listed.returncode == 0
    assert "digits" in listed.stdout
    assert "low_vram" in listed.stdout
    info = run(installed, tmp_path / "here", "validate", "--info", "searchpath")
    assert info.stdout.splitlines() == [str(installed / "conf")]
    schema = run(installed, tmp_path / "here", "schema", "residency")
    assert '"residency.json"' in schema.stdout
    dry = run(installed, tmp_path / "here", "run", "--dry-run", "prompt=a three moving left")
    assert (dry.returncode, dry.stderr) == (0, "")
    assert f"weights: {installed / 'conf' / 'models' / 'digits'}" in dry.stdout
    assert os.listdir(tmp_path / "here") == []


def test_the_wheel_holds_every_data_file_of_conf_and_nothing_else(installed: Path) -> None:
    def files(root: Path) -> set[str]:
        found = (path.relative_to(root) for path in (root / "conf").rglob("*") if path.is_file())
        return {path.as_posix() for path in found if "__pycache__" not in path.parts}

    assert files(installed) == files(ROOT)
    (wheel,) = installed.parent.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        tops = {name.split("/")[0] for name in archive.namelist()}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"conf", "framework", "stages", "strategies"}


def test_a_folder_that_hides_an_installed_package_is_named(installed: Path, tmp_path: Path) -> None:
    for name in ("conf", "stages", "strategies"):
        (tmp_path / "here" / name).mkdir(parents=True)
        (tmp_path / "here" / name / "__init__.py").touch()
    done = run(installed, tmp_path / "here", "validate")
    assert done.returncode == 2
    assert done.stderr.startswith(
        f"the folder '{tmp_path / 'here' / 'stages'}' hides the program's own package 'stages'"
    )
