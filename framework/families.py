"""What each family supports, and which pipelines run whole: as data, and as the page docs/families.md. No torch."""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from framework.compose.groups import find_file, options_of
from framework.registry import FAMILIES, MODES

FILES = ("image", "mask", "video")
_FAMILY = re.compile(r"^family: *([\w-]+)", re.MULTILINE)  # `list` answers at once because it loads no reader of YAML
WHOLE: Mapping[str, str] = {
    "AnimateDiffPipeline": "the motion adapter's weights go into the UNet; the adapter itself is never called",
    "ChromaPipeline": "",
    "CogVideoXPipeline": "",
    "HunyuanVideoPipeline": "`pipeline.args.prompt_template` for another template, `true_cfg_scale` for true guidance",
    "Lumina2Pipeline": "`pipeline.args.system_prompt`, `cfg_trunc_ratio`, `cfg_normalization`",
    "PixArtAlphaPipeline": "`pipeline.args.use_resolution_binning`, `clean_caption`",
}
"""Classes without a family that the tests hold to their plain call, in every mode and from the command line."""

SPECIAL: Sequence[tuple[str, tuple[str, ...], str]] = (
    (
        "Cosmos",
        (
            "CosmosTextToWorldPipeline",
            "CosmosVideoToWorldPipeline",
            "Cosmos2TextToImagePipeline",
            "Cosmos2VideoToWorldPipeline",
            "Cosmos2_5_PredictBasePipeline",
            "Cosmos3OmniPipeline",
        ),
        "whole; each needs the package `cosmos_guardrail` too, whose checker its constructor makes",
    ),
    ("GLM-Image", ("GlmImagePipeline",), "whole; its `vision_language_encoder` is in no group, so name it to place it"),
    ("Hunyuan3D", (), "not at all: diffusers has no pipeline for it"),
)
"""Pipelines of which only the signatures are tested: (name, classes that this diffusers has, how it runs)."""


def family_facts(folders: Sequence[Path] = ()) -> dict[str, dict[str, list[str]]]:
    """What each family says of itself, and the configs that use it; `folders` are the user's own."""
    configs = _configs(folders)
    return {name: _facts(FAMILIES.get(name), configs.get(name, [])) for name in FAMILIES.names()}


def _facts(family: Any, configs: list[str]) -> dict[str, list[str]]:
    keys = [key for key in getattr(family, "request_keys", ()) if key not in FILES]
    return {
        "tasks": list(getattr(family, "tasks", ())),
        "configs": configs,
        "pipeline_classes": list(getattr(family, "pipeline_classes", ())),
        "encoders": list(getattr(family, "encoders", ())),
        "files": [key for key in FILES if key in getattr(family, "request_keys", ())],
        "request": keys,
        "args": list(getattr(family, "call_arguments", ())),
    }


def _configs(folders: Sequence[Path]) -> dict[str, list[str]]:
    """The pipeline configs of each family, by their line `family:`; one that inherits it from another is left out."""
    found: dict[str, list[str]] = {}
    for option in options_of("pipeline", folders):
        path = find_file("pipeline", option, folders)
        said = _FAMILY.search(path.read_text(encoding="utf-8", errors="replace")) if path is not None else None
        if said is not None and said[1] != "null":
            found.setdefault(said[1], []).append(option)
    return found


def families_page() -> str:
    """`docs/families.md`: what is supported how."""
    facts = family_facts()
    return "\n".join(
        (
            "# Families and pipelines",
            "",
            "<!-- written by `framework list --families --markdown`; edit the families and their configs instead -->",
            "",
            "A family runs in stages: prompts are cached, encoders are gone before the loop, the VAE comes for its own",
            "stage. Every other pipeline of diffusers runs whole. Both ways every component takes every mode",
            f"({', '.join(f'`{mode}`' for mode in MODES)}) with the same bytes out, and weights can be stored in",
            "[fewer bits](quantization.md).",
            "",
            "## In stages",
            "",
            *_table(("family", "makes", "`pipeline=`", "classes of diffusers"), _what(facts)),
            "",
            "What each reads, beside `prompt`, `negative_prompt`, `seed` and `num_outputs`:",
            "",
            *_table(("family", "encoders", "files", "`request`", "`pipeline.args`"), _reads(facts)),
            "",
            "## Whole",
            "",
            "```",
            "python -m framework run pipeline=diffusers pipeline.model.source=embedded:digits prompt=nine",
            "```",
            "",
            "The source may be a folder or a hub name; `+pipeline.args.NAME=VALUE` is a further argument of the call.",
            "`request` keys go to the arguments of the same meaning; what the call does not take is refused by name.",
            "These are tested so:",
            "",
            *_table(("class", "notes"), ((f"`{name}`", note) for name, note in WHOLE.items())),
            "",
            "Special ones, whose calls are looked at but not run by the tests:",
            "",
            *_table(("model", "classes", "runs"), ((name, _code(classes), how) for name, classes, how in SPECIAL)),
            "",
        )
    )


def _what(facts: Mapping[str, Mapping[str, list[str]]]) -> Iterator[Sequence[str]]:
    for name, said in facts.items():
        yield f"`{name}`", ", ".join(said["tasks"]), _code(said["configs"]), _code(said["pipeline_classes"])


def _reads(facts: Mapping[str, Mapping[str, list[str]]]) -> Iterator[Sequence[str]]:
    for name, said in facts.items():
        yield f"`{name}`", *(_code(said[part]) for part in ("encoders", "files", "request", "args"))


def _code(names: Sequence[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _table(head: Sequence[str], rows: Iterator[Sequence[str]]) -> Iterator[str]:
    yield f"| {' | '.join(head)} |"
    yield "|---" * len(head) + "|"
    yield from (f"| {' | '.join(row)} |" for row in rows)
