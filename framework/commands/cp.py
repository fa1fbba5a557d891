"""`cp`: copy a packaged YAML file for editing. No torch, no Hydra."""

from pathlib import Path

from framework.compose.arguments import COMMON, Flags
from framework.compose.groups import find_file, options_of
from framework.compose.overrides import GROUPS
from framework.errors import ConfigError, did_you_mean
from framework.paths import SCHEMAS, expand

SUMMARY = "Copy a packaged YAML file for editing: GROUP/NAME into a folder, or to a file of its own name."
EXAMPLES = (
    "framework cp pipeline/wan2 my_conf",
    "framework cp residency/low_vram my_conf/residency/mine.yaml",
    "framework cp experiment/digits_grid my_conf",
)
USAGE = "GROUP/NAME DESTINATION [FLAGS]"
ACCEPTED = COMMON
_HEADER = "# yaml-language-server: $schema="


def main(words: list[str], flags: Flags) -> int:
    """Copy one file; an existing one is never overwritten."""
    if len(words) != 2:
        raise ConfigError.of("", "expected two words", hint="framework cp GROUP/NAME DESTINATION")
    group, _, name = words[0].removesuffix(".yaml").partition("/")
    source = _source(group, name)
    target = _target(expand(words[1]), group, name)
    text = _with_schema(source.read_text(encoding="utf-8"), group)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with target.open("x", encoding="utf-8", newline="\n") as file:
            file.write(text)
    except FileExistsError:
        raise ConfigError.of("", f"'{target}' exists", hint="choose another name") from None
    except OSError as error:
        raise ConfigError.of("", f"cannot write '{target}': {error.strerror}") from None
    print(target)
    if not flags.quiet:
        print(f"use it with: framework run --config-dir {target.parent.parent} {group}={target.stem}")
    return 0


def _source(group: str, name: str) -> Path:
    if group not in GROUPS:
        raise ConfigError.of("", f"there is no group '{group}'", hint=did_you_mean(group, GROUPS))
    source = find_file(group, name) if name in options_of(group) else None
    if source is None:
        raise ConfigError.of("", f"there is no {group} called '{name}'", hint=did_you_mean(name, options_of(group)))
    return source


def _target(destination: Path, group: str, name: str) -> Path:
    """A destination that ends in .yaml is the file; anything else the folder that holds the group's folder."""
    if destination.suffix != ".yaml":
        return destination / group / f"{name}.yaml"
    if destination.absolute().parent.name != group:
        hint = f"name it {destination.parent / group / destination.name}"
        raise ConfigError.of("", f"a file of the group must lie in a folder called '{group}'", hint=hint)
    return destination


def _with_schema(text: str, group: str) -> str:
    """Point the editor's schema line at the installed schema, since the copy lies elsewhere."""
    lines = [
        f"{_HEADER}{(SCHEMAS / f'{group}.json').as_uri()}" if line.startswith(_HEADER) else line
        for line in text.splitlines()
    ]
    return "\n".join(lines) + "\n"
