"""Announces both parts by name, for `plugins=[framework_fade]`; the entry points do the same. No torch."""

from framework.registry import STAGES, STRATEGIES

STAGES.add_lazy("fade", "framework_fade.fade:Fade")
STRATEGIES.add_lazy("request-resident", "framework_fade.request_resident:RequestResident")
