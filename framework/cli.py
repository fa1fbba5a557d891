"""The front door: a table of commands, and the one place that turns errors into lines. Imports nothing heavy."""

import contextlib
import importlib
import os
import sys
from types import ModuleType
from typing import NoReturn

from framework.errors import FrameworkError, Interrupted

PROGRAM = "framework"
COMMANDS = {
    "run": "make what a config says",
    "sweep": "run many configs, on every device, and resume what is missing",
    "validate": "check a config and everything it names",
    "explain": "show where every component lives, and why",
    "verify": "compare a config with everything resident, or with a record, byte by byte",
    "plan": "say whether a run fits, what goes where, and how long it takes",
    "calibrate": "measure this machine once, for plans that fit it",
    "download": "fetch the files that a run would need",
    "list": "list pipelines, presets, stages, strategies and hardware",
    "show": "show a pipeline's stages and components",
    "schema": "print the JSON Schema or the reference of all keys",
    "cp": "copy a packaged YAML file for editing",
    "doctor": "say what is installed, which devices there are, what is missing",
    "completion": "print the completion script of a shell",
}
EXIT_CODES = "Exit codes: 0 done, 2 the request is wrong, 3 it cannot fit, 4 it failed while running, 130 interrupted."


def main(argv: list[str] | None = None) -> int:
    """Run one command and return the exit code; never raises for what a user can do."""
    words = list(sys.argv[1:] if argv is None else argv)
    _print_safely()
    debug = "--debug" in words
    try:
        return _dispatch(words)
    except FrameworkError as error:
        return _fail(error, str(error), error.exit_code, debug)
    except KeyboardInterrupt:
        return _fail(None, "interrupted", 130, False)
    except BrokenPipeError:
        sys.stderr.close()
        return 0
    except Exception as error:
        hint = "" if debug else "; --debug shows the traceback"
        return _fail(error, f"internal error: {type(error).__name__}: {error}{hint}", 4, debug)


def run_and_exit() -> NoReturn:
    """Be the program. An interrupted run leaves without taking the imported libraries apart, which takes seconds."""
    code = main()
    if code == Interrupted.exit_code:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError, AttributeError):  # a reader that left, or no stream
                stream.flush()
        os._exit(code)
    sys.exit(code)


def _dispatch(words: list[str]) -> int:
    command = words[0] if words else "--help"
    if command in ("--help", "-h", "help"):
        print(_help())
        return 0
    if command == "--version":
        from framework import __version__

        print(f"{PROGRAM} {__version__}")
        return 0
    if command not in COMMANDS:
        return _unknown(command)
    if command == "run" and {"-m", "--multirun"} & set(words[1:]):
        command = "sweep"  # what Hydra calls a multirun
    if command == "validate" and {"-m", "--multirun"} & set(words[1:]) and not _asks_only(words):
        command, words = "sweep", [*words, "--dry-run"]  # every job is composed, checked and planned
    module = importlib.import_module(f"framework.commands.{command}")
    from framework.compose.arguments import parse

    overrides, flags = parse(words[1:], module.ACCEPTED, command)
    if flags.help:
        print(_command_help(command, module))
        return 0
    from framework.shadow import check_shadowing

    check_shadowing()
    if flags.cfg or flags.info:
        module = importlib.import_module("framework.commands.config_info")
    return int(module.main(overrides, flags))


def _asks_only(words: list[str]) -> bool:
    """Whether a command line asks for help, or for what Hydra tells of a config."""
    return any(word.partition("=")[0] in ("--help", "-h", "--cfg", "-c", "--info", "-i") for word in words)


def _unknown(command: str) -> int:
    from framework.errors import did_you_mean

    hint = did_you_mean(command, COMMANDS)
    print(f"{PROGRAM}: unknown command '{command}'" + (f"; {hint}" if hint else ""), file=sys.stderr)
    return 2


def _help() -> str:
    rows = "\n".join(f"  {name:<12}{text}" for name, text in COMMANDS.items())
    return (
        f"usage: {PROGRAM} COMMAND [KEY=VALUE ...] [FLAGS]\n\n"
        "Run diffusion pipelines from YAML, on the hardware you have.\n\n"
        f"Commands:\n{rows}\n\n"
        "Examples:\n"
        f'  {PROGRAM} run prompt="a three moving left"\n'
        f"  {PROGRAM} explain pipeline=wan2 residency=low_vram\n"
        f"  {PROGRAM} list\n\n"
        f"`{PROGRAM} COMMAND --help` shows the flags of a command.\n{EXIT_CODES}"
    )


def _command_help(command: str, module: ModuleType) -> str:
    from framework.compose.arguments import describe_flags

    flags = describe_flags(module.ACCEPTED)
    width = max(len(name) for name, _ in flags) + 2
    rows = "\n".join(f"  {name:<{width}}{text}" for name, text in flags)
    examples = "\n".join(f"  {example}" for example in module.EXAMPLES)
    usage = getattr(module, "USAGE", "[KEY=VALUE ...] [FLAGS]")
    return (
        f"usage: {PROGRAM} {command} {usage}\n\n{module.SUMMARY}\n\n"
        f"Examples:\n{examples}\n\nFlags:\n{rows}\n\n{getattr(module, 'EXIT_CODES', EXIT_CODES)}"
    )


def _fail(error: BaseException | None, message: str, code: int, debug: bool) -> int:
    if debug and error is not None:
        import traceback

        traceback.print_exception(error)
    else:
        print(message, file=sys.stderr)
        for note in getattr(error, "__notes__", ()):
            print(note, file=sys.stderr)
    return code


def _print_safely() -> None:
    """A console with a narrow code page must not turn a message into a second error."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")


if __name__ == "__main__":
    run_and_exit()
