"""Overrides of the checkpoint's scheduler."""

import pytest
from diffusers import FlowMatchEulerDiscreteScheduler, UniPCMultistepScheduler

from framework.errors import ConfigError
from framework.loading.schedulers import override_scheduler
from framework.spec import SchedulerSpec


def unipc() -> UniPCMultistepScheduler:
    return UniPCMultistepScheduler(prediction_type="flow_prediction", use_flow_sigmas=True, flow_shift=3.0)


def test_nothing_asked_leaves_the_scheduler_itself() -> None:
    scheduler = unipc()
    assert override_scheduler(scheduler, SchedulerSpec()) is scheduler


def test_an_option_and_the_shift_change_only_themselves() -> None:
    changed = override_scheduler(unipc(), SchedulerSpec(options={"solver_order": 3}, flow_shift=5.0))
    assert (changed.config.solver_order, changed.config.flow_shift) == (3, 5.0)
    assert changed.config.prediction_type == "flow_prediction"


def test_another_class_gets_the_shift_under_its_own_name() -> None:
    spec = SchedulerSpec(class_name="FlowMatchEulerDiscreteScheduler", flow_shift=5.0)
    changed = override_scheduler(unipc(), spec)
    assert isinstance(changed, FlowMatchEulerDiscreteScheduler)
    assert changed.config.shift == 5.0


@pytest.mark.parametrize(
    ("spec", "line"),
    [
        (
            SchedulerSpec(class_name="UniPCMultistep"),
            "pipeline.scheduler.class: diffusers has no scheduler 'UniPCMultistep'; "
            "did you mean 'UniPCMultistepScheduler'?",
        ),
        (SchedulerSpec(class_name="WanPipeline"), "pipeline.scheduler.class: diffusers has no scheduler 'WanPipeline'"),
        (
            SchedulerSpec(options={"solver_ordr": 3}),
            "pipeline.scheduler.options.solver_ordr: UniPCMultistepScheduler has no option 'solver_ordr'; "
            "did you mean 'solver_order'?",
        ),
        (
            SchedulerSpec(class_name="DDIMScheduler", flow_shift=1.0),
            "pipeline.scheduler.flow_shift: DDIMScheduler has no flow shift",
        ),
    ],
)
def test_what_diffusers_does_not_have_is_refused(spec: SchedulerSpec, line: str) -> None:
    with pytest.raises(ConfigError) as caught:
        override_scheduler(unipc(), spec)
    assert str(caught.value) == line
