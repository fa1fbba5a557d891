"""`completion`: scripts for shells, and the words they ask for. No torch, no Hydra."""

from collections.abc import Iterator
from typing import Any

from framework.compose.arguments import COMMON, Flags
from framework.errors import ConfigError, did_you_mean

SUMMARY = "Print the completion script of a shell: bash, zsh or fish."
EXAMPLES = (
    'eval "$(framework completion bash)"',
    'eval "$(framework completion zsh)"',
    "framework completion fish | source",
)
USAGE = "SHELL"
ACCEPTED = COMMON
QUERY = "query"

_BASH = """\
_framework_complete() {
    local IFS=$'\\n'
    local word="${COMP_LINE:0:$COMP_POINT}"
    COMPREPLY=($(framework completion query "$word" 2>/dev/null))
    [[ ${COMPREPLY[0]} == *= || ${COMPREPLY[0]} == *. ]] && compopt -o nospace
    local last="${word##* }" prefix=""
    [[ $last == *=* ]] && prefix="${last%%=*}=" && COMPREPLY=("${COMPREPLY[@]#"$prefix"}")
}
complete -F _framework_complete framework
"""
SCRIPTS = {
    "bash": _BASH,
    "zsh": f"autoload -U +X bashcompinit && bashcompinit\n{_BASH}",
    "fish": "complete -c framework -f -a '(framework completion query (commandline -cp) 2>/dev/null)'\n",
}


def main(words: list[str], flags: Flags) -> int:
    """Print a script; `query LINE` is what the scripts call and prints one candidate a line."""
    if len(words) == 2 and words[0] == QUERY:
        print("\n".join(candidates(words[1])))
        return 0
    if len(words) != 1 or words[0] not in SCRIPTS:
        given = words[0] if words else ""
        hint = did_you_mean(given, SCRIPTS) if given else f"choose from {', '.join(SCRIPTS)}"
        raise ConfigError.of("", "expected the name of a shell", hint=hint)
    print(SCRIPTS[words[0]], end="")
    return 0


def candidates(line: str) -> list[str]:
    """The words that may stand at the end of `line`, a command line that begins with the program's name."""
    words = line.split(" ")[1:] or [""]
    *before, word = words
    found = _commands() if not before else _words(before[0], word)
    return sorted(candidate for candidate in found if candidate.startswith(word))


def _commands() -> Iterator[str]:
    from framework.cli import COMMANDS

    yield from COMMANDS


def _words(command: str, word: str) -> Iterator[str]:
    """Flags of the command, choices of a group or of a key, else the keys one step deeper than `word`."""
    from framework.cli import COMMANDS
    from framework.compose.arguments import describe_flags

    if word.startswith("-"):
        if command in COMMANDS:
            for names, _ in describe_flags(_accepted(command)):
                yield from (name.split()[0] for name in names.split(", "))
    elif "=" in word:
        yield from _choices(word.partition("=")[0])
    else:
        yield from _keys(word)


def _accepted(command: str) -> Any:
    import importlib

    return importlib.import_module(f"framework.commands.{command}").ACCEPTED


def _choices(key: str) -> Iterator[str]:
    from framework.compose.groups import options_of
    from framework.compose.overrides import GROUPS

    if key in GROUPS:
        yield from (f"{key}={option}" for option in options_of(key))
        return
    schema = _schema_of(key.split("."))
    for value in (schema or {}).get("enum", []):
        yield f"{key}={str(value).lower() if isinstance(value, bool) else 'null' if value is None else value}"


def _keys(word: str) -> Iterator[str]:
    from framework.compose.overrides import GROUPS

    parents = word.split(".")[:-1]
    schema = _schema_of(parents)
    prefix = "".join(f"{parent}." for parent in parents)
    for name, inner in (schema or {}).get("properties", {}).items():
        if name == "defaults" and not parents:
            continue
        if not parents and name in GROUPS:
            yield f"{name}="
        yield f"{prefix}{name}." if "properties" in inner else f"{prefix}{name}="
    if not parents:
        yield "experiment="


def _schema_of(path: list[str]) -> dict[str, Any] | None:
    from framework.compose.schema import inline_schema

    schema: Any = inline_schema("config")
    for part in path:
        branches = [schema, *schema.get("oneOf", [])]
        schema = next((branch["properties"][part] for branch in branches if part in branch.get("properties", {})), None)
        if schema is None:
            return None
    found: dict[str, Any] = schema
    return found
