"""Flags stand anywhere; every command takes only its own."""

import pytest

from framework.compose.arguments import COMPOSING, Flags, describe_flags, parse
from framework.errors import ConfigError

TAKES = COMPOSING | {"json", "diff", "from_folder"}


@pytest.mark.parametrize(
    "words",
    [
        ["--json", "-m", "--config-dir", "d", "a=1", "b=2"],
        ["a=1", "--json", "b=2", "--config-dir=d", "-m"],
        ["a=1", "b=2", "--multirun", "-cd", "d", "--json"],
    ],
)
def test_flags_before_between_and_after_the_overrides_are_the_same(words: list[str]) -> None:
    assert parse(words, TAKES) == (["a=1", "b=2"], Flags(json=True, multirun=True, config_dir=("d",)))


def test_a_flag_may_come_twice_where_folders_add_up() -> None:
    assert parse(["--config-dir", "a", "--config-dir", "b"], TAKES)[1].config_dir == ("a", "b")


def test_a_flag_with_two_values_takes_both() -> None:
    assert parse(["--diff", "seed=1", "seed=2", "x=3"], TAKES) == (["x=3"], Flags(diff=("seed=1", "seed=2")))


def test_two_dashes_end_the_flags() -> None:
    assert parse(["--", "--json"], TAKES) == (["--json"], Flags())


def test_a_prompt_that_looks_like_a_flag_is_an_override() -> None:
    assert parse(["prompt=--json"], TAKES)[0] == ["prompt=--json"]


def test_all_wrong_flags_are_named_at_once() -> None:
    with pytest.raises(ConfigError) as caught:
        parse(["--jsn", "--until", "x", "--config-dir"], TAKES, "validate")
    assert str(caught.value).splitlines() == [
        "(from the command line: --jsn): --jsn: unknown flag; did you mean '--json'?",
        "(from the command line: --until): --until: 'validate' has no such flag; choose from --cfg, --config-dir, "
        "--config-name, --debug, --diff, --from, --help, --info, --json, --multirun, --quiet",
        "(from the command line: --config-dir): --config-dir: needs a value",
    ]


def test_a_flag_that_takes_nothing_refuses_a_value() -> None:
    with pytest.raises(ConfigError, match=r"--json: takes no value"):
        parse(["--json=yes"], TAKES)


def test_help_describes_the_flags_of_a_command_only() -> None:
    names = [names for names, _ in describe_flags({"help", "config_dir"})]
    assert names == ["--help, -h", "--config-dir, -cd DIR"]


def test_our_names_of_hydras_flags_are_hydras() -> None:
    from hydra._internal.utils import get_args_parser

    theirs = {option for action in get_args_parser()._actions for option in action.option_strings}
    ours = {name for names, _ in describe_flags(COMPOSING - {"debug", "quiet"}) for name in names.split()[0:1]}
    assert {name.rstrip(",") for name in ours} <= theirs
