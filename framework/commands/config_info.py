"""`--cfg job` and `--info defaults|searchpath|config` of every command that composes, as Hydra means them. No torch."""

import sys

from framework.commands.from_record import refuse_other_configs
from framework.commands.table import format_table
from framework.compose.arguments import Flags
from framework.compose.groups import config_folders
from framework.compose.overrides import read_overrides
from framework.errors import ConfigError, did_you_mean
from framework.paths import CONF

INFOS = ("defaults", "searchpath", "config")


def main(overrides: list[str], flags: Flags) -> int:
    """Print what was asked for; nothing is validated or run."""
    refuse_other_configs(flags)
    if flags.cfg not in (None, "job"):
        raise ConfigError.of("--cfg", f"'{flags.cfg}' is refused", hint="use --cfg job")
    if flags.info is not None and flags.info not in INFOS:
        raise ConfigError.of("--info", f"unknown '{flags.info}'", hint=did_you_mean(flags.info, INFOS))
    if flags.info in ("searchpath", "defaults"):
        print(_searchpath(overrides, flags) if flags.info == "searchpath" else _defaults(overrides, flags))
    else:
        sys.stdout.write(_config(overrides, flags))
    return 0


def _searchpath(overrides: list[str], flags: Flags) -> str:
    folders = config_folders(flags, read_overrides(overrides))
    return "\n".join(str(folder) for folder in (*folders, CONF))


def _defaults(overrides: list[str], flags: Flags) -> str:
    from framework.compose.composer import compose_words

    layers = compose_words(read_overrides(overrides), flags).layers
    rows = [(layer.config_path, layer.package or "_global_", layer.document.shown) for layer in layers]
    return format_table(("config", "package", "file"), rows)


def _config(overrides: list[str], flags: Flags) -> str:
    import yaml

    from framework.compose.composer import compose_data

    data = compose_data(overrides, flags).data
    return str(yaml.safe_dump(data, allow_unicode=True, sort_keys=False, width=120))
