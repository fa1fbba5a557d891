"""The folders that hold config groups and what each group offers. No torch, no Hydra."""

import os
from collections.abc import Sequence
from pathlib import Path

from framework.compose.arguments import Flags
from framework.compose.overrides import Override
from framework.compose.performance import NEEDS_PLANNER
from framework.errors import ConfigError, Problem, did_you_mean
from framework.paths import CONF

VARIABLE = "FRAMEWORK_CONF"


def config_folders(flags: Flags, words: Sequence[Override] = ()) -> tuple[Path, ...]:
    """The user's folders, searched before ours: `--config-dir`, `hydra.searchpath`, then `FRAMEWORK_CONF`.

    Raises `ConfigError` for each that is not a folder.
    """
    named = [(folder, f"from the command line: --config-dir {folder}") for folder in flags.config_dir]
    for word in words:
        if word.kind == "searchpath":
            named += [(folder, word.where) for folder in word.value]
    variable = os.environ.get(VARIABLE, "")
    named += [(folder, f"from the environment: {VARIABLE}") for folder in variable.split(os.pathsep) if folder]
    problems = [
        Problem("", f"there is no folder '{folder}'", where)
        for folder, where in named
        if not Path(folder).expanduser().is_dir()
    ]
    if problems:
        raise ConfigError(problems)
    return tuple(dict.fromkeys(Path(folder).expanduser().resolve() for folder, _ in named))


def options_of(group: str, folders: Sequence[Path] = ()) -> list[str]:
    """The names that `group=NAME` takes, sorted; names in subfolders have a slash."""
    found = set()
    for folder in (*folders, CONF):
        base = folder / group
        found |= {path.relative_to(base).with_suffix("").as_posix() for path in base.rglob("*.yaml")}
    return sorted(found)


def find_file(group: str, name: str, folders: Sequence[Path] = ()) -> Path | None:
    """The file behind `group=name`, the user's before ours."""
    for folder in (*folders, CONF):
        path = folder / group / f"{name}.yaml"
        if path.is_file():
            return path
    return None


def check_choices(words: Sequence[Override], folders: Sequence[Path]) -> None:
    """Raise `ConfigError` for every group word that names no file."""
    problems = []
    for word in words:
        if word.kind == "group" and find_file(word.key, str(word.value), folders) is None:
            problems.append(_no_option(word, folders))
    if problems:
        raise ConfigError(problems)


def _no_option(word: Override, folders: Sequence[Path]) -> Problem:
    options = options_of(word.key, folders)
    if word.key == "residency" and word.value == "auto":
        return Problem("residency", NEEDS_PLANNER, word.where, f"choose from {', '.join(options)}")
    reason = f"there is no {word.key} called '{word.value}'"
    return Problem(word.key, reason, word.where, did_you_mean(str(word.value), options))
