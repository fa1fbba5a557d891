"""Every file of tests/broken says in its head how it is composed and which lines it gives."""

from pathlib import Path

import pytest

from framework.compose.arguments import Flags
from framework.compose.composer import compose
from framework.errors import ConfigError

BROKEN = Path(__file__).parents[1] / "broken"
FILES = sorted(BROKEN.glob("*.yaml"))


def head(text: str, word: str) -> list[str]:
    start = f"# {word}: "
    return [line.removeprefix(start) for line in text.splitlines() if line.startswith(start)]


def problems_of(text: str, folder: Path, words: list[str]) -> list[str]:
    """Compose `text` as the file `broken` of the group that `words` choose; return the lines of its error."""
    group = next(word.partition("=")[0] for word in words if word.endswith("=broken"))
    (folder / group).mkdir()
    (folder / group / "broken.yaml").write_text(text, encoding="utf-8")
    try:
        compose(words, Flags(config_dir=(str(folder),)))
    except ConfigError as error:
        return str(error).splitlines()
    return []


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_broken_file_gives_its_lines(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = file.read_text(encoding="utf-8")
    assert problems_of(text, tmp_path, head(text, "compose")[0].split()) == head(text, "expect")


def test_there_are_at_least_sixty_broken_files() -> None:
    assert len(FILES) >= 60


def test_bytes_that_are_not_utf8_are_named_with_their_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "experiment").mkdir()
    (tmp_path / "experiment" / "broken.yaml").write_bytes(b"# @package _global_\nprompt: caf\xe9\n")
    with pytest.raises(ConfigError, match=r"^experiment/broken\.yaml:2: the file is not UTF-8 text$"):
        compose(["experiment=broken"], Flags(config_dir=(str(tmp_path),)))


def test_a_huge_file_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "experiment").mkdir()
    (tmp_path / "experiment" / "broken.yaml").write_text("# " + "x" * (1 << 20))
    with pytest.raises(ConfigError, match="at most 1048576 are read"):
        compose(["experiment=broken"], Flags(config_dir=(str(tmp_path),)))
