"""Composes YAML files through Hydra's Compose API, each read by our own strict reader. Imports Hydra, no torch.

Hydra finds the files, orders them by their defaults lists and merges them. It never sees prompt text (a token stands in
for it), never logs, and never instantiates anything.
"""

import os
import pickle
import re
import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import hydra
from hydra import compose as hydra_compose
from hydra import initialize_config_dir
from hydra.conf import HydraConf
from hydra.core.config_search_path import ConfigSearchPath
from hydra.core.config_store import ConfigStore
from hydra.core.global_hydra import GlobalHydra
from hydra.core.object_type import ObjectType
from hydra.core.plugins import Plugins
from hydra.plugins.config_source import ConfigLoadError, ConfigResult, ConfigSource
from hydra.plugins.search_path_plugin import SearchPathPlugin
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from framework.compose.overrides import GROUPS, MODES_KEY
from framework.compose.refusals import refuse_forbidden
from framework.compose.schema import check_schema
from framework.compose.spellings import as_map
from framework.compose.yaml_file import Document, Literal, read_document
from framework.errors import ConfigError, Problem, did_you_mean
from framework.paths import CONF

DEFAULTS = "defaults"
HIDDEN_DEFAULTS = "defaults__"
"""Hydra takes a key `defaults` for its defaults list; a mapping of that name travels under this one."""


@dataclass(slots=True)
class Journal:
    """What one composition read: documents by config path, and the prompt text behind each token."""

    folders: tuple[Path, ...]
    documents: dict[str, Document] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)
    order_only: bool = False  # a second pass asks for the order of files only, so their content is left out

    def hide(self, text: str) -> str:
        """Return a token that stands for `text` while OmegaConf holds it."""
        token = f"text:{secrets.token_hex(12)}"
        self.texts[token] = text
        return token

    def reveal(self, value: Any) -> Any:
        """Put texts back in for their tokens, anywhere in plain data."""
        if isinstance(value, dict):
            return {key: self.reveal(inner) for key, inner in value.items()}
        if isinstance(value, list):
            return [self.reveal(inner) for inner in value]
        if isinstance(value, str) and "text:" in value:
            return re.sub(r"text:[0-9a-f]{24}", lambda match: self.texts.get(match[0], match[0]), value)
        return value


_JOURNAL: ContextVar[Journal] = ContextVar("journal")


class CheckedYamlSource(ConfigSource):  # type: ignore[misc]
    """A folder of YAML files, read by `read_document`."""

    @staticmethod
    def scheme() -> str:
        return "checked-yaml"

    def load_config(self, config_path: str) -> ConfigResult:
        file = self._file(config_path)
        if not file.is_file():
            raise ConfigLoadError(f"Config not found : {file}")
        journal = _JOURNAL.get()
        name = config_path.removesuffix(".yaml")
        document = journal.documents.get(name)
        if document is None:
            document = journal.documents[name] = _checked(read_document(file))
        header = {"package": document.package}
        config = _order_config(document) if journal.order_only else _to_config(document, journal)
        return ConfigResult(provider=self.provider, path=self.full_path(), config=config, header=header)

    def available(self) -> bool:
        return Path(self.path).is_dir()

    def is_group(self, config_path: str) -> bool:
        return Path(self.path, config_path).is_dir()

    def is_config(self, config_path: str) -> bool:
        return self._file(config_path).is_file()

    def list(self, config_path: str, results_filter: ObjectType | None) -> list[str]:
        found: list[str] = []
        for file in sorted(os.listdir(Path(self.path, config_path))):
            self._list_add_result(found, os.path.join(config_path, file), file, results_filter)
        return sorted(set(found))

    def _file(self, config_path: str) -> Path:
        name = config_path if config_path.endswith(".yaml") else f"{config_path}.yaml"
        return Path(self.path, name)


class CheckedSearchPath(SearchPathPlugin):  # type: ignore[misc]
    """Lets every folder of the composition be read by `CheckedYamlSource`, the user's first."""

    def manipulate_search_path(self, search_path: ConfigSearchPath) -> None:
        journal = _JOURNAL.get(None)
        if journal is None:
            return
        scheme = CheckedYamlSource.scheme()
        for element in search_path.get_path():
            if element.provider == "main":
                element.path = f"{scheme}://{element.path}"
        for folder in reversed(journal.folders):
            search_path.prepend("command-line", f"{scheme}://{folder}")


@dataclass(frozen=True, slots=True)
class Layer:
    """One file in merge order: `package` is the dotted place of its content, empty for the root."""

    config_path: str
    package: str
    document: Document


@dataclass(frozen=True, slots=True)
class Composition:
    """What Hydra made of the files, before any value override: `config` may still hold interpolations."""

    config: DictConfig
    layers: tuple[Layer, ...]
    journal: Journal

    def copy(self) -> "Composition":
        """A composition of its own to put overrides into; what was read is shared."""
        own = replace(self.journal, texts=dict(self.journal.texts))
        config: DictConfig = pickle.loads(
            pickle.dumps(self.config, pickle.HIGHEST_PROTOCOL)
        )  # deepcopy takes twice as long
        return Composition(config, self.layers, own)


def compose_packaged(groups: Sequence[str]) -> Composition:
    """Compose our own files, once for each choice of `groups`: Hydra takes 0.1 s, and a sweep asks a thousand times."""
    stamp = tuple((file.stat().st_mtime_ns, file.stat().st_size) for file in sorted(CONF.rglob("*.yaml")))
    return _composed_once(tuple(groups), stamp).copy()


@lru_cache(maxsize=64)
def _composed_once(groups: tuple[str, ...], stamp: tuple[tuple[int, int], ...]) -> Composition:
    return compose_files(groups)


def compose_files(
    groups: Sequence[str], folders: Sequence[Path] = (), config_name: str = "config", root: Path = CONF
) -> Composition:
    """Compose the files that `groups` (`pipeline=wan2`, ...) choose; `folders` are searched before `root`.

    Raises `ConfigError` for a broken file, a missing option and every complaint of Hydra.
    """
    journal = Journal(tuple(folders))
    with _initialized(journal, root):
        try:
            merged = _watch_merging(GlobalHydra.instance().config_loader())
            config = hydra_compose(config_name=config_name, overrides=list(groups))
            order = merged or _order_again(journal, config_name, groups)
        except ConfigError:
            raise
        except Exception as error:  # Hydra raises a dozen kinds, some of them plain ValueError
            raise ConfigError(_translate(error, journal)) from error
    OmegaConf.set_struct(config, False)
    _refuse_misplaced(order, journal)
    layers = [
        Layer(item.config_path, item.package or "", journal.documents[item.config_path])
        for item in order
        if item.config_path in journal.documents
    ]
    return Composition(config, tuple(layers), journal)


def _watch_merging(loader: Any) -> list[Any]:
    """Return a list that will hold the files in merge order, which takes Hydra 70 ms to find out a second time.

    The method is Hydra's own; a version without it leaves the list empty.
    """
    merged: list[Any] = []
    method = getattr(loader, "_compose_config_from_defaults_list", None)
    if method is not None:

        def compose_and_tell(defaults: list[Any], repo: Any) -> Any:
            merged[:] = defaults
            return method(defaults, repo)

        loader._compose_config_from_defaults_list = compose_and_tell
    return merged


def _order_again(journal: Journal, config_name: str, groups: Sequence[str]) -> list[Any]:
    """The files in merge order by Hydra's public way, a second pass over all defaults lists."""
    journal.order_only = True
    loader = GlobalHydra.instance().config_loader()
    order: list[Any] = loader.compute_defaults_list(config_name, list(groups), RunMode.RUN).defaults
    return order


@contextmanager
def _initialized(journal: Journal, root: Path) -> Iterator[None]:
    Plugins.instance().register(CheckedYamlSource)
    Plugins.instance().register(CheckedSearchPath)
    below_1_4 = tuple(int(part) for part in hydra.__version__.split(".")[:2]) < (1, 4)
    version = {"version_base": "1.3"} if below_1_4 else {}
    token = _JOURNAL.set(journal)
    try:
        with _without_hydras_groups(), initialize_config_dir(str(root), job_name="framework", **version):
            yield
    finally:
        _JOURNAL.reset(token)


@contextmanager
def _without_hydras_groups() -> Iterator[None]:
    """Leave the groups of Hydra itself out: nothing here launches, sweeps or logs through it, and they take half of
    the time. Put back at the end, for a program that uses Hydra and us."""
    stored = ConfigStore.instance().repo["hydra"]
    own = stored["config.yaml"]
    stored["config.yaml"] = replace(own, node=_bare_config())
    try:
        yield
    finally:
        stored["config.yaml"] = own


@lru_cache(maxsize=1)
def _bare_config() -> DictConfig:
    """Hydra's config of itself with an empty list of groups."""
    bare = OmegaConf.structured(HydraConf)
    assert isinstance(bare, DictConfig)
    bare.defaults = ["_self_"]
    return bare


def _checked(document: Document) -> Document:
    """Refuse what no file may say."""
    if document.data is not None and not isinstance(document.data, dict):
        raise ConfigError.of("", "a config file holds `key: value` lines", document.where(()))
    refuse_forbidden(document)
    data = document.data or {}
    modes = data.get(MODES_KEY)
    spread = as_map(modes, "COMPONENT=MODE")
    return document if spread is modes else replace(document, data={**data, MODES_KEY: spread})


def _to_config(document: Document, journal: Journal) -> DictConfig:
    data = document.data or {}
    if isinstance(data.get(DEFAULTS), dict):
        data = _hide_defaults(data)
    if isinstance(data.get("pipeline"), dict):  # an experiment's own, which goes over those of the pipeline's file
        data = {**data, "pipeline": _hide_defaults(data["pipeline"])}
    try:
        config = OmegaConf.create(_hide_texts(data, journal))
    except OmegaConfBaseException as error:
        raise ConfigError(_bad_interpolation(document, error)) from None
    assert isinstance(config, DictConfig)
    return config


def _hide_defaults(data: dict[str, Any]) -> dict[str, Any]:
    return {HIDDEN_DEFAULTS if key == DEFAULTS else key: value for key, value in data.items()}


def _order_config(document: Document) -> DictConfig:
    defaults = (document.data or {}).get(DEFAULTS)
    return OmegaConf.create({DEFAULTS: defaults} if isinstance(defaults, list) else {})


def _hide_texts(value: Any, journal: Journal) -> Any:
    if isinstance(value, dict):
        return {key: _hide_texts(inner, journal) for key, inner in value.items()}
    if isinstance(value, list):
        return [_hide_texts(inner, journal) for inner in value]
    if isinstance(value, Literal):
        return journal.hide(str(value))
    if isinstance(value, str) and "${" in value:
        return value.replace("pipeline.defaults.", f"pipeline.{HIDDEN_DEFAULTS}.")
    return value


def _bad_interpolation(document: Document, error: Exception) -> Problem:
    """Find the value that OmegaConf could not take, for its line."""
    key = getattr(error, "full_key", "") or ""
    parts = re.findall(r"[^.\[\]]+", key)
    path = tuple(int(part) if part.isdigit() else part for part in parts)
    return Problem(key, "an interpolation `${...}` cannot be read", document.where(path), "write \\${ for a literal ${")


def first_line(error: BaseException) -> str:
    """The first line of a library's message, without the wrapping that resolvers add."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    wrapped = re.fullmatch(r"\w+ raised while resolving interpolation: (.*)", lines[0].strip())
    return (wrapped[1] if wrapped else lines[0]).strip().strip('"')


def _refuse_misplaced(order: Sequence[Any], journal: Journal) -> None:
    """Raise `ConfigError` for an experiment whose keys would stand below `experiment`, where nothing reads them."""
    for item in order:
        if item.package == "experiment" and item.config_path in journal.documents:
            document = journal.documents[item.config_path]
            reason = "an experiment says by its first line that its keys stand at the top"
            raise ConfigError.of("", reason, document.where(()), "begin the file with `# @package _global_`")


def _translate(error: Exception, journal: Journal) -> Sequence[Problem]:
    """What Hydra says in our words, with the file and line that caused it where that can be told."""
    cause: BaseException = error
    while not str(cause).strip() and cause.__cause__ is not None:
        cause = cause.__cause__
    message = first_line(cause)
    if isinstance(cause, RecursionError):
        return [_circle(journal)]
    if override := re.match(r"In '([^']+)': Could not override '([^']+)'", message):
        document = journal.documents.get(override[1])
        where = document.where((DEFAULTS,)) if document else override[1]
        return [Problem(DEFAULTS, f"there is no '{override[2]}' to override", where, did_you_mean(override[2], GROUPS))]
    if merging := re.match(r"In '([^']+)': \w+ raised while composing", message):
        return _cannot_merge(merging[1], journal.documents.get(merging[1]), str(cause).splitlines()[-1])
    missing = re.search(r"Could not find '([^']+)'", message)
    twice = re.match(r"Multiple values for (\S+)\.", message)
    wanted = missing[1].rpartition("/")[2] if missing else twice[1] if twice else None
    for name, document in reversed(journal.documents.items()):
        listed = (document.data or {}).get(DEFAULTS)
        if wanted is None or not isinstance(listed, list) or wanted not in str(listed):
            continue
        where = document.where((DEFAULTS,))
        if missing:
            return [Problem(DEFAULTS, f"there is no file '{missing[1]}.yaml'", where)]
        return [
            Problem(DEFAULTS, f"'{wanted}' is chosen already", where, f"write `override /{wanted}: NAME` in {name}")
        ]
    return [Problem("", message.rstrip("."))]


def _circle(journal: Journal) -> Problem:
    """The last file that was read before its choices came back to it."""
    choosing = [file for file in journal.documents.values() if isinstance((file.data or {}).get(DEFAULTS), list)]
    where = choosing[-1].where((DEFAULTS,)) if choosing else ""
    return Problem(DEFAULTS, "the files choose each other in a circle", where, "take one of the entries out")


def _cannot_merge(name: str, document: Document | None, message: str) -> Sequence[Problem]:
    """What is wrong in the file that Hydra could not put over the others."""
    if document is None:
        return [Problem("", message)]
    group = name.partition("/")[0] if "/" in name and document.package != "_global_" else ""
    try:
        check_schema(document.data, group or "config", document.where)
    except ConfigError as error:
        return [replace(problem, key=f"{group}.{problem.key}".lstrip(".")) for problem in error.problems]
    return [Problem("", "does not fit what it is put over", document.where(()))]
