"""The command of a run as a shell takes it, for its report. No torch."""

import shlex
from collections.abc import Sequence

from framework.compose.arguments import Flags
from framework.outputs.redact import redact_text


def command_line(overrides: Sequence[str], flags: Flags) -> str:
    """Return the command as a shell takes it, secrets masked."""
    words = ["python", "-m", "framework", "run", *(redact_text(word) for word in overrides)]
    words += ["--trace"] if flags.trace else []
    for name, value in (("--from", flags.from_folder), ("--config-name", flags.config_name)):
        words += [name, value] if value else []
    for directory in flags.config_dir:
        words += ["--config-dir", directory]
    return shlex.join(words)
