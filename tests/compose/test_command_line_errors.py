"""Mistakes on the command line: one line each, with the word that made it (US-01)."""

import pytest

from framework.compose.arguments import Flags
from framework.compose.composer import compose
from framework.errors import ConfigError

CASES = {
    "heigth=480": "(from the command line: heigth=480): heigth: unknown key 'heigth'; did you mean 'request.height'?",
    "promt=a cat": "(from the command line: promt=a cat): promt: unknown key 'promt'; did you mean 'prompt'?",
    "+promt=a": "(from the command line: +promt=a): promt: unknown key 'promt'; did you mean 'prompt'?",
    "++request.heigth=1": "(from the command line: ++request.heigth=1): request.heigth: unknown key 'heigth'; "
    "did you mean 'height'?",
    "pipeline=wan3": "(from the command line: pipeline=wan3): pipeline: there is no pipeline called 'wan3'; "
    "did you mean 'wan2'?",
    "residency=lowvram": "(from the command line: residency=lowvram): residency: there is no residency called "
    "'lowvram'; did you mean 'low_vram'?",
    "reserve.context=free-2GiB": "(from the command line: reserve.context=free-2GiB): reserve.context: 'free-2GiB' is "
    "not an amount to keep free; bytes such as 512MiB, or a share of the device's memory such as 5%",
    "pipeline=../config": "(from the command line: pipeline=../config): pipeline: '../config' is not the name of a "
    "pipeline file",
    "pipeline=/config": "(from the command line: pipeline=/config): pipeline: '/config' is not the name of a "
    "pipeline file",
    "output=null": "(from the command line: output=null): output: 'null' is not the name of an output file",
    "pipeline=null": "(from the command line: pipeline=null): pipeline: 'null' is not the name of a pipeline file",
    "seed=1,2": "(from the command line: seed=1,2): seed: several values for one run; a list is written [a,b]; many "
    "runs are started with `framework sweep`",
    "seed=range(3)": "(from the command line: seed=range(3)): seed: several values for one run; a list is written "
    "[a,b]; many runs are started with `framework sweep`",
    "seed=[1": "(from the command line: seed=[1): seed: the value cannot be read; quote it twice, as in "
    "key='\"a, b\"', if it is text",
    "digits": "(from the command line: digits): expected key=value, got 'digits'",
    "=3": "(from the command line: =3): '' is not a key; keys look like request.height",
    "hydra.run.dir=x": "(from the command line: hydra.run.dir=x): hydra.run.dir: Hydra's own settings are refused; "
    "only hydra.searchpath may be set",
    "hydra/launcher=basic": "(from the command line: hydra/launcher=basic): hydra/launcher: Hydra's own settings are "
    "refused; only hydra.searchpath may be set",
    "request._target_=os.system": "(from the command line: request._target_=os.system): request._target_: nothing is "
    "ever instantiated from a config; this key is refused",
    "pipeline@x=wan2": "(from the command line: pipeline@x=wan2): pipeline@x: a group cannot be put into another "
    "package; write pipeline=",
    "budget.device=-1": "(from the command line: budget.device=-1): budget.device: must be at least 0, got -1",
    "checkpoint.stages=[denoize]": "(from the command line: checkpoint.stages=[denoize]): checkpoint.stages: there is "
    "no stage 'denoize'; did you mean 'denoise'?",
    "numerics.quantize={transformer: bnb-nf5}": "(from the command line: numerics.quantize={transformer: bnb-nf5}): "
    "numerics.quantize.transformer.method: unknown method 'bnb-nf5'; did you mean 'bnb-nf4'?",
    "numerics.attention=flsh": "(from the command line: numerics.attention=flsh): numerics.attention: unknown "
    "attention backend 'flsh'; did you mean 'flash'?",
    "numerics.step_cache=teacache": "(from the command line: numerics.step_cache=teacache): numerics.step_cache: "
    "diffusers has no TeaCache; use first_block, magcache, pyramid_attention, fastercache, taylorseer",
    "prompt=caf\udce9": "(from the command line: 'prompt=caf\\udce9'): the word is not UTF-8 text",
    "prompt=@/dev/zero": "(from the command line: prompt=@/dev/zero): prompt: '/dev/zero' holds more than 1048576 "
    "bytes of text",
    "residency.defaults=[none]": "(from the command line: residency.defaults=[none]): residency.defaults: unknown key "
    "'defaults'; choose from fits, layerwise, modes, name",
    "pipeline.defaults=[digits]": "(from the command line: pipeline.defaults=[digits]): pipeline.defaults: expected a "
    "map of keys, got a list",
    "seed.x=1": "(from the command line: seed.x=1): seed: expected a whole number or a list, got a map of keys",
    "requests=a.jsonl": "(from the command line: requests=a.jsonl): requests: needs a file of requests; write "
    "requests=@file.jsonl",
    "prompt=@/none/such": "(from the command line: prompt=@/none/such): prompt: cannot read '/none/such': No such file "
    "or directory; write prompt=@@/none/such for text that begins with @",
    "~request.heigth": "(from the command line: ~request.heigth): request.heigth: there is nothing to remove",
    "component_residency.vae=off": "(from the command line: component_residency.vae=off): component_residency.vae: "
    "unknown residency mode 'off'; modes are resident, component-offload, layerwise-offload",
    "component_residency.vae=false": "(from the command line: component_residency.vae=false): component_residency.vae: "
    "expected a mode, one of resident, component-offload, layerwise-offload; got false; YAML reads a bare off, no or "
    "false as false",
    "plugins=[no_such_module_here]": "(from the command line: plugins=[no_such_module_here]): plugins: cannot import "
    "'no_such_module_here': ModuleNotFoundError: No module named 'no_such_module_here'",
    "hydra.searchpath=[/none/such]": "(from the command line: hydra.searchpath=[/none/such]): there is no folder "
    "'/none/such'",
    "hydra.searchpath=[pkg://evil]": "(from the command line: hydra.searchpath=[pkg://evil]): hydra.searchpath: "
    "'pkg://evil' is not a folder; write file://DIR",
    "pipeline.name={_target_:os.system}": "(from the command line: pipeline.name={_target_:os.system}): "
    "pipeline.name._target_: nothing is ever instantiated from a config; this key is refused",
}


@pytest.mark.parametrize("word", CASES)
def test_a_wrong_word_gives_one_line_that_names_it(word: str) -> None:
    with pytest.raises(ConfigError) as caught:
        compose([word])
    assert str(caught.value) == CASES[word]


def test_older_keys_that_ask_for_what_is_anyway_so_pass() -> None:
    spec = compose(["warmup_mode=off", "pin_cpu_memory=false", "offload_during_compile=false", "device=cpu"])
    assert len(spec.notes) == 3


def test_a_choice_of_prompts_is_text_in_a_run_and_a_sweep_in_a_multirun() -> None:
    words = ["prompt=choice(a cat, a dog)"]
    assert compose(words).requests[0].prompt == "choice(a cat, a dog)"
    assert compose(["prompt=a cat, a dog"], Flags(multirun=True)).requests[0].prompt == "a cat, a dog"
    with pytest.raises(ConfigError, match="prompt: several values for one run; use `framework sweep`"):
        compose(words, Flags(multirun=True))


def test_all_wrong_words_are_named_at_once() -> None:
    with pytest.raises(ConfigError) as caught:
        compose(["promt=x", "seed=many", "request.height=-1"])
    assert [problem.key for problem in caught.value.problems] == ["promt", "request.height", "seed"]


def test_a_folder_that_does_not_exist_is_named() -> None:
    with pytest.raises(ConfigError, match="there is no folder '/none/such'"):
        compose([], Flags(config_dir=("/none/such",)))


def test_another_root_config_that_does_not_exist_is_named() -> None:
    with pytest.raises(ConfigError, match=r"there is no file 'other\.yaml'"):
        compose([], Flags(config_name="other"))
