"""`list`: what can be named in a config; reads folders and registries only. No torch, no Hydra."""

import json
from pathlib import Path
from typing import Any

from framework.commands.table import format_table
from framework.compose.arguments import COMMON, Flags
from framework.compose.groups import config_folders, find_file, options_of
from framework.compose.plugins import announce_entry_points
from framework.errors import ConfigError, did_you_mean
from framework.registry import FAMILIES, MODES, STAGES, STRATEGIES

SUMMARY = "List what a config can name: pipelines, presets, experiments, stages, strategies, families, hardware."
EXAMPLES = ("framework list", "framework list pipelines presets", "framework list --families --markdown")
USAGE = "[SECTION ...] [FLAGS]"
ACCEPTED = COMMON | {"json", "families", "markdown", "config_dir"}

GROUPS = {"pipelines": "pipeline", "presets": "residency", "experiments": "experiment", "hardware": "hardware"}
SECTIONS = (*GROUPS, "stages", "strategies", "families")


def main(sections: list[str], flags: Flags) -> int:
    """Print the named sections, all without a name; `--families --markdown` prints docs/families.md.

    What families say of themselves is read only where they are asked for: it means importing them.
    """
    problems = [name for name in sections if name not in SECTIONS]
    if problems:
        raise ConfigError.of(problems[0], "there is no such list", hint=did_you_mean(problems[0], SECTIONS))
    chosen = [*sections, *(["families"] if flags.families else [])]
    if flags.markdown:
        if chosen != ["families"]:
            raise ConfigError.of(
                "--markdown", "only the families have a page", hint="framework list --families --markdown"
            )
        from framework.families import families_page

        print(families_page(), end="")
        return 0
    announce_entry_points()
    folders = config_folders(flags)
    content = {name: _section(name, folders) for name in dict.fromkeys(chosen or SECTIONS)}
    if "families" in chosen:
        from framework.families import family_facts

        content["families"] = family_facts(folders)
    if flags.json:
        print(json.dumps(content, indent=2, ensure_ascii=False))
        return 0
    print("\n\n".join(_text(name, rows) for name, rows in content.items()))
    return 0


def _section(name: str, folders: tuple[Path, ...]) -> dict[str, Any]:
    if name in GROUPS:
        group = GROUPS[name]
        return {option: _about(find_file(group, option, folders)) for option in options_of(group, folders)}
    if name == "strategies":
        return dict.fromkeys(dict.fromkeys((*MODES, *STRATEGIES.names())), "")
    return dict.fromkeys((STAGES if name == "stages" else FAMILIES).names(), "")


def _about(path: Path | None) -> str:
    """The first comment of a file that is not for a program."""
    if path is None:
        return ""
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        text = line.removeprefix("#").strip()
        if line.startswith("#") and text and not text.startswith(("@package", "yaml-language-server")):
            return text
        if line and not line.startswith("#"):
            break
    return ""


def _text(name: str, rows: dict[str, Any]) -> str:
    if not rows:
        return f"{name}: none"
    if name == "families" and all(rows.values()):
        told = [(family, ", ".join(facts["tasks"]), " ".join(facts["configs"])) for family, facts in rows.items()]
        return format_table((name, "makes", "pipeline="), told)
    return format_table((name, ""), list(rows.items()))
