"""Folders: the home of somebody who is not there is a name like any other."""

from pathlib import Path

import pytest

from framework.cli import main
from framework.paths import cache_root, expand


def test_only_a_home_that_is_there_is_put_in_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    assert expand("~/models") == Path("/home/me/models")
    assert expand("~nobody-of-that-name/models") == Path("~nobody-of-that-name/models")
    monkeypatch.setenv("FRAMEWORK_CACHE", "~/cache")
    assert cache_root() == Path("/home/me/cache")


def test_a_home_of_nobody_is_refused_in_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["validate", "pipeline=sdxl_img2img", "prompt=x", "--config-dir=~nobody-of-that-name"]) == 2
    assert "~nobody-of-that-name" in capsys.readouterr().err
