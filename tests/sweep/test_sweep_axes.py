"""Words to axes: Hydra's grammar where it is one, literal text where it would be destroyed."""

from pathlib import Path

import pytest

from framework.compose.groups import options_of
from framework.compose.overrides import read_overrides
from framework.errors import ConfigError
from framework.sweep.axes import axis_of_file, prompts_axis, split_words
from framework.sweep.words import split_choice, text_word, word_of

NASTY = ("a cat, a dog", "it's {red|blue} [x]", "@home", "${a.b} $HOME", "choice(a,b)", 'say "hi"', " edges ", "猫, 犬")


def words_of(*typed: str) -> dict[str, list[str]]:
    return {axis.key: [value.word for value in axis.values] for axis in split_words(typed)[1]}


@pytest.mark.parametrize(
    ("typed", "values"),
    [
        ("seed=1,2", ["1", "2"]),
        ("seed=range(0,3)", ["0", "1", "2"]),
        ("seed=choice(4,5)", ["4", "5"]),
        ("seed=[0,1],[2,3]", ["[0,1]", "[2,3]"]),
        ("request.guidance_scale=range(1.0,2.0,0.5)", ["1.0", "1.5"]),
        ("residency=low_vram,minimal", ["low_vram", "minimal"]),
        ("device=sim:0,sim:1", ["sim:0", "sim:1"]),
        ("residency=glob(m*)", ["minimal"]),
        ("residency=glob([m*,low*],exclude=low*)", ["minimal"]),
        ("residency=glob(m*),low_vram", ["minimal", "low_vram"]),
    ],
)
def test_the_grammar_of_hydra_makes_axes(typed: str, values: list[str]) -> None:
    key = typed.partition("=")[0]
    assert words_of(typed) == {key: [f"{key}={value}" for value in values]}


def test_a_glob_over_a_group_takes_all_its_files() -> None:
    assert words_of("residency=glob(*)")["residency"] == [f"residency={name}" for name in options_of("residency")]


def test_one_value_is_no_axis() -> None:
    typed = ["seed=3", "request.height=64", "component_residency=vae=resident,dit=layerwise-offload", "~loras"]
    assert split_words(typed) == (typed, [])


@pytest.mark.parametrize("text", NASTY)
def test_a_prompt_is_literal_and_stays_one_job(text: str) -> None:
    """SW-07: no comma of a prompt splits it, in a choice of quoted texts either."""
    assert words_of(text_word("prompt", text)) in ({}, {"prompt": ["prompt=a", "prompt=b"]})  # the text `choice(a,b)`
    quoted = "'" + text.replace("'", "\\'") + "'"
    axis = split_words([f"prompt=choice({quoted},other)"])[1][0]
    assert [value.value for value in axis.values] == [text, "other"]
    assert [read_overrides([value.word])[0].value for value in axis.values] == [text, "other"]


def test_items_of_a_choice_of_texts_are_taken_as_typed() -> None:
    items = split_choice("choice(a (very:1.3) cat, it's, 'x, y' ,\"p\\\"q\",null)")
    assert items == [("a (very:1.3) cat", False), ("it's", False), ("x, y", True), ('p"q', True), ("null", False)]


def test_files_are_swept_by_choice_alone() -> None:
    assert words_of("request.image=a,b.png") == {}
    image = words_of("request.image=choice(a.png, 'b, c.png')")["request.image"]
    assert [word.value for word in read_overrides(image)] == ["a.png", "b, c.png"]


def test_a_prompts_file_is_one_prompt_a_line(tmp_path: Path) -> None:
    """SW-07: prompts of a file stay whole."""
    file = tmp_path / "prompts.txt"
    file.write_text("\n\n".join(text for text in NASTY) + "\n", encoding="utf-8")
    axis = prompts_axis(f"@{file}", "here")
    assert [read_overrides([value.word])[0].value for value in axis.values] == list(NASTY)


def test_a_prompts_file_that_cannot_be_read_is_told_where_it_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        prompts_axis(str(tmp_path / "none.txt"), "mine.yaml:3")
    reason = f"cannot read '{tmp_path / 'none.txt'}': No such file or directory"
    assert str(caught.value) == f"mine.yaml:3: sweep.prompts: {reason}"


def test_an_axis_of_a_file_takes_lists_and_the_grammar() -> None:
    words = [value.word for value in axis_of_file("seed", "range(0,2)", "here").values]
    assert words == ["seed=0", "seed=1"]
    listed = axis_of_file("prompt", ["a, b", "@c"], "here").values
    assert [read_overrides([value.word])[0].value for value in listed] == ["a, b", "@c"]


@pytest.mark.parametrize("value", [None, True, 3, 0.5, "a, b", "it's", [1, "x"], {"dit": {"prefetch": 2}}])
def test_a_value_of_a_file_arrives_as_it_is(value: object) -> None:
    assert read_overrides([word_of("request.height", value)])[0].value == value


@pytest.mark.parametrize(
    ("typed", "message"),
    [
        ("seed=interval(0,1)", "seed: an interval has no end of values; write range"),
        ("seed=glob(*)", r"seed: glob\(\) chooses among the files of a group"),
        ("seed=1,1", "seed: '1' appears twice"),
        ("sweep.devices=0,1", "sweep.devices: a sweep has one value for all its jobs"),
        ("output.name=choice(a,b)", "output.name: a sweep has one value"),
        ("residency=glob(zz*)", "residency: no value is left"),
        ("seed=range(0,4,0)", "seed: these values cannot be listed; write a,b or choice"),
        ("seed=range(0,1,0.0)", "seed: these values cannot be listed"),
        ("seed=range(0,nan)", "seed: these values cannot be listed"),
        ("seed=range(0,3),5", "seed: these values cannot be listed"),
    ],
)
def test_what_is_no_axis_is_refused_by_name(typed: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        split_words([typed])
