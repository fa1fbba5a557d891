"""Which files of a component are wanted: one format, one variant, no duplicates. No torch, no connection.

Works on names alone, so the same rule serves a folder on disk and a repository's listing.
"""

import re
from collections.abc import Iterable

from framework.loading.source import PICKLE_SUFFIXES, SAFETENSORS

CONFIG_SUFFIXES = (".json", ".txt", ".model", ".jinja", ".tiktoken", ".spm")
STANDARD_STEMS = ("diffusion_pytorch_model", "model", "pytorch_model")
"""How the libraries call a component's weights; anything else in the folder is not theirs."""
_SHARD = re.compile(r"-(?P<number>\d{5})-of-(?P<count>\d{5})")


def chosen_weights(names: Iterable[str], variant: str | None = None) -> tuple[str, ...]:
    """Return the safetensors files to read: those of `variant` where there are any, else the plain ones.

    Of a single file and shards of the same weights, the shards are read where their index is there.
    """
    known = sorted(names)
    weights = [name for name in known if name.endswith(SAFETENSORS)]
    marked = [name for name in weights if variant and _variant(name, variant)]
    chosen = marked or [name for name in weights if _stem(name).count(".") == 0]
    standard = [name for name in chosen if _stem(name).partition(".")[0] in STANDARD_STEMS]
    return _without_duplicates(standard or chosen, known)


def missing_shards(names: Iterable[str]) -> tuple[str, ...]:
    """Return the shards that `names` say there are and do not contain."""
    known = set(names)
    wanted = set()
    for name in known:
        found = _SHARD.search(name)
        for number in range(1, int(found["count"]) + 1) if found else ():
            wanted.add(_SHARD.sub(f"-{number:05d}-of-{found['count']}" if found else "", name))
    return tuple(sorted(wanted - known))


def wanted_files(
    names: Iterable[str], variant: str | None = None, *, with_weights: bool = True, pickles: bool = False
) -> tuple[str, ...]:
    """Return what to fetch of a component's folder: its configs, and its weights in one format.

    `pickles` allows weights that are not safetensors, where there are no others.
    """
    known = sorted(names)
    weights = chosen_weights(known, variant) if with_weights else ()
    if with_weights and pickles and not weights:
        weights = tuple(name for name in known if name.endswith(PICKLE_SUFFIXES))
    indexes = {name for name in known if ".index." in name and name.endswith(".json")}
    configs = [name for name in known if name.endswith(CONFIG_SUFFIXES) and name not in indexes]
    kept = [name for name in sorted(indexes) if _is_index_of(name, weights)]
    return (*configs, *kept, *weights)


def _variant(name: str, variant: str) -> bool:
    return _stem(name).partition(".")[2] == variant


def _stem(name: str) -> str:
    """`model.fp16` for `model.fp16-00001-of-00002.safetensors` and for `model-00001-of-00002.fp16.safetensors`."""
    return _SHARD.sub("", name).removesuffix(SAFETENSORS)


def _without_duplicates(chosen: list[str], known: list[str]) -> tuple[str, ...]:
    shards = [name for name in chosen if _SHARD.search(name)]
    single = [name for name in chosen if not _SHARD.search(name)]
    if not shards or not single:
        return tuple(chosen)
    return tuple(shards if any(_is_index_of(name, shards) for name in known) else single)


def _is_index_of(index: str, weights: Iterable[str]) -> bool:
    """`model.safetensors.index.json`, `model.safetensors.index.fp16.json` and the like belong to their shards."""
    shards = [name for name in weights if _SHARD.search(name)]
    if ".index." not in index or not shards:
        return False
    head, _, tail = index.removesuffix(".json").partition(".index")
    suffix = "." + head.rpartition(".")[2]
    stem = head.removesuffix(suffix) + tail
    return any(_SHARD.sub("", name).removesuffix(suffix) == stem for name in shards if name.endswith(suffix))
