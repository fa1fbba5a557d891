"""The folders that hold config groups and what each group offers. No torch, no Hydra."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from framework.errors import ConfigError, Problem, did_you_mean
from framework.paths import CONF, expand

if TYPE_CHECKING:  # `list` answers at once because it does not load the reader of overrides
    from framework.compose.arguments import Flags
    from framework.compose.overrides import Override

VARIABLE = "FRAMEWORK_CONF"


def config_folders(flags: "Flags", words: "Sequence[Override]" = ()) -> tuple[Path, ...]:
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
        Problem("", f"there is no folder '{folder}'", where) for folder, where in named if not expand(folder).is_dir()
    ]
    if problems:
        raise ConfigError(problems)
    return tuple(dict.fromkeys(expand(folder).resolve() for folder, _ in named))


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


def check_choices(words: "Sequence[Override]", folders: Sequence[Path], config_name: str | None = None) -> None:
    """Raise `ConfigError` for every group word, and the root config, that name no file."""
    problems = []
    if config_name is not None and find_file("", config_name, folders) is None:
        names = [path.stem for folder in (*folders, CONF) for path in folder.glob("*.yaml")]
        where = f"from the command line: --config-name {config_name}"
        problems.append(Problem("", f"there is no file '{config_name}.yaml'", where, did_you_mean(config_name, names)))
    for word in words:
        if word.kind == "group" and find_file(word.key, str(word.value), folders) is None:
            problems.append(_no_option(word, folders))
    if problems:
        raise ConfigError(problems)


def _no_option(word: "Override", folders: Sequence[Path]) -> Problem:
    options = options_of(word.key, folders)
    reason = f"there is no {word.key} called '{word.value}'"
    return Problem(word.key, reason, word.where, did_you_mean(str(word.value), options))
