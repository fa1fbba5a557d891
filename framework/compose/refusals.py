"""What no config file may say: code to import, objects to build, settings of Hydra. No torch, no Hydra."""

import re
from pathlib import Path
from typing import Any

from framework.compose.sentences import in_file_order
from framework.compose.yaml_file import Document, KeyPath, dotted
from framework.errors import ConfigError, Problem

INSTANTIATE = frozenset({"_target_", "_args_", "_partial_", "_convert_", "_recursive_"})
_NOWHERE = Path()
_HYDRA_GROUP = re.compile(r"(^|[\s/@])hydra([./@]|$)")


def refuse_forbidden(document: Document) -> None:
    """Raise `ConfigError` naming every forbidden key of a file."""
    problems = list(_forbidden(document, document.data or {}, ()))
    problems += _forbidden_root(document)
    problems += _forbidden_header(document)
    if problems:
        raise ConfigError(in_file_order(problems))


def refuse_forbidden_data(data: Any, shown: str) -> None:
    """The same for plain data that did not come from a file of ours (a saved record)."""
    document = Document(_NOWHERE, shown, data)
    problems = [*_forbidden(document, data, ()), *_forbidden_root(document)]
    if problems:
        raise ConfigError([Problem(problem.key, problem.reason, shown, problem.hint) for problem in problems])


def _forbidden(document: Document, value: Any, path: KeyPath) -> list[Problem]:
    problems: list[Problem] = []
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        here = (*path, key)
        if key in INSTANTIATE:
            reason = "nothing is ever instantiated from a config; this key is refused"
            problems.append(Problem(dotted(here), reason, document.where(here)))
        problems += _forbidden(document, inner, here)
    return problems


def _forbidden_root(document: Document) -> list[Problem]:
    data = document.data if isinstance(document.data, dict) else {}
    problems = []
    if data.get("plugins") is not None:
        hint = "name it with plugins=[...] on the command line or in FRAMEWORK_PLUGINS"
        reason = "a file cannot name code to import"
        problems.append(Problem("plugins", reason, document.where(("plugins",)), hint))
    if "hydra" in data:
        where = document.where(("hydra",))
        problems.append(Problem("hydra", "Hydra's own settings are refused in files", where, "use --config-dir DIR"))
    defaults = data.get("defaults")
    for index, item in enumerate(defaults if isinstance(defaults, list) else ()):
        text = " ".join(item) if isinstance(item, dict) else str(item)
        if _HYDRA_GROUP.search(text):
            here = ("defaults", index)
            problems.append(Problem(dotted(here), "Hydra's own groups are refused in files", document.where(here)))
    return problems


def _forbidden_header(document: Document) -> list[Problem]:
    if document.package is None or document.package.split(".")[0] != "hydra":
        return []
    reason = "a file cannot put itself into Hydra's settings"
    return [Problem("", reason, f"{document.shown}:{document.package_line}")]
