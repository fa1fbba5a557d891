"""Seeded command lines and YAML files: words of random keys and values, and packaged files with random damage."""

from dataclasses import dataclass
from random import Random
from typing import Any

from framework.compose.overrides import GROUPS
from framework.compose.schema import inline_schema
from framework.paths import CONF

COMMANDS = ("validate", "validate", "validate", "explain", "show", "run", "list", "schema", "cp", "completion")
FLAGS = (
    "--json",
    "--quiet",
    "-m",
    "--cfg",
    "--cfg=job",
    "--info=defaults",
    "--info",
    "--dry-run",
    "--graph",
    "--",
    "-",
)
FLAGS += ("--diff", "--config-name=none", "--config-dir", "--from=.", "--zzz", "--json=1", "--markdown", "-q", "--help")
VALUES = ("null", "true", "off", "1e3", "[1,2]", "{a: 1}", "{dit: resident}", "resident", "low_vram", "wan2", "nan")
VALUES += ("inf", "-1", "0", "'x'", '"y"', "${seed}", "${", "???", "layerwise-offload", "{", "}", "[", "]", ",", "a,b")
VALUES += ("a=b,c=d", "[a=b]", "{}", "[]", "@x", "@@x", "é猫", "9" * 23, "1.5", "50%", "6GiB", "{a:{b:{c:[1,{d:2}]}}}")
VALUES += (
    "range(1,3)",
    "choice(1,2)",
    "int(3)",
    "''",
    " ",
    "\n",
    "_target_",
    "\ud800",
    "\0",
    "../x",
    "/",
    "digits",
    "*a",
)
VALUES += ("&a [*a]", "!!python/name:os.system", "- x", "|", "? x", "<<: *b", "%TAG", "~", "2001-01-01", "16:9", "0x1f")
LETTERS = "abz019:-,.[]{}'\"#&*!|>%@`~?= \n\t\\$é"
FILES = ("pipeline/wan2", "pipeline/digits", "residency/low_vram", "residency/balanced", "experiment/wan2_low_vram")
FILES += ("output/default", "hardware/rtx_4090", "sweep/none", "experiment/none")


@dataclass(frozen=True)
class Case:
    """Arguments of the program, and the files it finds in the folder `mine`."""

    arguments: list[str]
    files: dict[str, str]


def make_case(seed: int) -> Case:
    """The same case for the same seed, on every machine."""
    random = Random(seed)
    if seed % 2:
        return _file_case(random)
    command = random.choice(COMMANDS)
    return Case([command, *(["--dry-run"] if command == "run" else []), *_words(random)], {})


def _words(random: Random) -> list[str]:
    words = [_word(random) for _ in range(random.randint(1, 4))]
    words += [random.choice(FLAGS) for _ in range(random.choice((0, 0, 0, 1, 2)))]
    random.shuffle(words)
    return [_damaged(word, random, 1) if random.random() < 0.1 else word for word in words]


def _word(random: Random) -> str:
    value = "".join(random.choice(VALUES) for _ in range(random.choice((1, 1, 1, 2))))
    return f"{random.choice(('', '', '', '+', '++', '~'))}{random.choice(_keys())}={value}"


def _file_case(random: Random) -> Case:
    name = random.choice(FILES)
    group = name.partition("/")[0]
    text = (CONF / f"{name}.yaml").read_text(encoding="utf-8")
    if random.random() < 0.3:
        text = "# @package _global_\n" if group == "experiment" else ""
        text += "".join(f"{_line(random)}\n" for _ in range(random.randint(1, 5)))
    text = _damaged(text, random, random.randint(0, 3))
    words = _words(random) if random.random() < 0.3 else []
    return Case(["validate", "--config-dir", "mine", f"{group}=x", *words], {f"{group}/x.yaml": text})


def _line(random: Random) -> str:
    *parents, name = random.choice(_keys()).split(".")
    opened = "".join(f"{'  ' * depth}{parent}:\n" for depth, parent in enumerate(parents))
    return f"{opened}{'  ' * len(parents)}{name}: {random.choice(VALUES)}"


def _damaged(text: str, random: Random, times: int) -> str:
    """Characters lost, put in or doubled, lines lost, repeated or moved, values exchanged."""
    for _ in range(times):
        lines = text.split("\n")
        at, line = random.randrange(len(text) + 1), random.randrange(len(lines))
        kind = random.randrange(6)
        if kind == 0:
            text = text[:at] + text[at + random.randint(1, 4) :]
        elif kind == 1:
            text = text[:at] + random.choice(LETTERS) * random.choice((1, 1, 2)) + text[at:]
        elif kind == 2:
            text = "\n".join(lines[:line] + lines[line + 1 :])
        elif kind == 3:
            text = "\n".join([*lines[:line], lines[line], *lines[line:]])
        elif kind == 4:
            text = "\n".join([*lines[:line], "  " + lines[line], *lines[line + 1 :]])
        else:
            key, colon, _ = lines[line].partition(":")
            lines[line] = f"{key}: {random.choice(VALUES)}" if colon else random.choice(VALUES)
            text = "\n".join(lines)
    return text


_KEYS: list[str] = []


def _keys() -> list[str]:
    """Every dotted key of the schema, with a component's name where any name may stand, and some that are none."""
    if not _KEYS:
        _KEYS.extend(_keys_of(inline_schema("config"), ""))
        _KEYS.extend((*GROUPS, "component_residency.dit", "hydra.x", "plugins", "zzz", "pipeline.stages.decode.after"))
    return _KEYS


def _keys_of(schema: dict[str, Any], prefix: str) -> list[str]:
    found = []
    for branch in (schema, *schema.get("oneOf", [])):
        for name, inner in branch.get("properties", {}).items():
            key = f"{prefix}.{name}" if prefix else name
            found += [key, *_keys_of(inner, key)]
        rest = branch.get("additionalProperties")
        if isinstance(rest, dict) and prefix:
            found += [f"{prefix}.vae", *_keys_of(rest, f"{prefix}.vae")]
    return found
