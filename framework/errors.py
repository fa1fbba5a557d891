"""The one family of exceptions, and how a mistake of the user becomes one clear line. Imports nothing of ours."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a value came from: a file with a line, the command line, the environment, or a built-in rule.

    `layer` is one of `user`, `preset`, `pipeline`, `automatic`, `default`; `where` is printable, for example
    `conf/pipeline/wan2.yaml:13` or `from the command line: seed=3`.
    """

    layer: str
    where: str


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong in what the user wrote.

    `where` is `file:line` or empty; `key` the dotted key; `reason` says what is wrong; `hint` what would work.
    """

    key: str
    reason: str
    where: str = ""
    hint: str = ""

    def __str__(self) -> str:
        place = f"({self.where}): " if self.where.startswith("from ") else f"{self.where}: " if self.where else ""
        subject = f"{self.key}: " if self.key else ""
        return f"{place}{subject}{self.reason}" + (f"; {self.hint}" if self.hint else "")


class FrameworkError(Exception):
    """Base of everything we raise for users; `exit_code` is what the process ends with."""

    exit_code = 4

    def locate(self, provenance: Mapping[str, Origin]) -> None:
        """Say where the dotted key that the message begins with was set, if it begins with one that somebody set."""
        text = str(self)
        origin = provenance.get(text.partition(": ")[0])
        if origin is not None and origin.where:
            self.args = (str(Problem("", text, origin.where)),)


class ConfigError(FrameworkError):
    """The request is wrong; carries every problem found, not only the first."""

    exit_code = 2

    def __init__(self, problems: Problem | Iterable[Problem]) -> None:
        self.problems = (problems,) if isinstance(problems, Problem) else tuple(problems)
        assert self.problems, "a ConfigError without a problem says nothing"
        super().__init__("\n".join(str(problem) for problem in self.problems))

    def locate(self, provenance: Mapping[str, Origin]) -> None:
        """Give every problem without a place the one where its key was set, if anybody set it."""
        places = {key: origin.where for key, origin in provenance.items()}
        self.problems = tuple(replace(p, where=p.where or places.get(p.key, "")) for p in self.problems)
        self.args = ("\n".join(str(problem) for problem in self.problems),)

    @classmethod
    def of(cls, key: str, reason: str, where: str = "", hint: str = "") -> "ConfigError":
        """The common case of a single problem."""
        return cls(Problem(key, reason, where, hint))


class PlanError(FrameworkError):
    """The request is right but cannot fit this machine."""

    exit_code = 3


class LoadError(FrameworkError):
    """A model, component or file is missing or unreadable; nothing has been computed yet."""

    exit_code = 2


class StageError(FrameworkError):
    """A stage failed while running; the message names stage, step and component."""


class OutputError(FrameworkError):
    """A result could not be written; the message says what was kept and where."""


class Interrupted(FrameworkError):
    """The user stopped the run."""

    exit_code = 130


def did_you_mean(word: object, choices: Iterable[str]) -> str:
    """Return `did you mean 'x'?` for the closest choice, else the list of choices, else nothing."""
    import difflib  # in the error path only: start-up cost is a feature

    names = sorted(choices)
    folded = {name.lower().replace("-", "_"): name for name in names}
    close = difflib.get_close_matches(str(word).lower().replace("-", "_"), folded, n=1, cutoff=0.6)
    if close:
        return f"did you mean '{folded[close[0]]}'?"
    return f"choose from {', '.join(names)}" if 0 < len(names) <= 16 else ""
