"""Claims one run folder inside the output root, safely and exclusively, before anything is loaded. No torch."""

import os
import re
import shutil
import tempfile
from datetime import datetime
from pathlib import Path

from framework.errors import ConfigError, PlanError
from framework.paths import expand
from framework.spec import OutputSpec

MAX_PART_BYTES = 200  # file systems stop at 255; the rest is for the suffix of a temporary name
_KEY = "output.name"
_RESERVED = re.compile(r"(con|prn|aux|nul|conin\$|conout\$|(com|lpt)[0-9\u00b9\u00b2\u00b3])(\..*)?", re.IGNORECASE)
_NOT_ON_WINDOWS = re.compile(r'[<>:"|?*]')
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_FILE_EXTENSION = re.compile(r"\.[A-Za-z][A-Za-z0-9]*")


def claim_folder(output: OutputSpec, needed_bytes: int = 0) -> Path:
    """Make the folder of one run and return its absolute path; it did not exist before.

    A fixed `output.name` that exists is refused; without a name it is dated to the microsecond, and a second process
    of the same instant gets another date. Raises `ConfigError` for an unsafe, existing or unwritable folder and
    `PlanError` when fewer than `needed_bytes` are free; nothing is left behind then.
    """
    root = expand(output.root)
    target = resolve_inside(root, output.name) if output.name is not None else None
    _make_root(root)
    check_free_space(root, needed_bytes)
    folder = _make_dated(root) if target is None else _make_named(root, target)
    try:
        _check_writable(folder)
    except ConfigError:
        folder.rmdir()
        raise
    return folder


def check_name(output: OutputSpec) -> None:
    """Refuse an unsafe `output.name` without touching anything; raises `ConfigError`."""
    if output.name is not None:
        resolve_inside(output.root, output.name)


def resolve_inside(root: Path, name: str) -> Path:
    """Return where `name` leads from `root`, links followed; touches nothing.

    Backslashes separate as slashes do, so that a name means the same everywhere. Raises `ConfigError` when the place is
    not below `root` or a part of it is not a safe folder name on Linux and Windows.
    """
    if _CONTROL.search(name):
        raise ConfigError.of(_KEY, f"the folder name {name!r} has a control character")
    base = expand(root).resolve()
    try:
        target = (base / name.replace("\\", "/")).resolve()
    except (OSError, RuntimeError) as error:  # a loop of links, or a name the file system refuses
        raise ConfigError.of(_KEY, f"cannot follow '{name}': {error}") from error
    if not target.is_relative_to(base):
        raise ConfigError.of(
            _KEY, f"'{name}' leads outside the output root '{root}'", hint="set output.root to move it"
        )
    if target == base:
        raise ConfigError.of(_KEY, f"'{name}' is the output root itself", hint="give a folder name inside it")
    for part in target.relative_to(base).parts:
        _check_part(part)
    return target


def _check_part(part: str) -> None:
    """Refuse a folder name that some system cannot hold, or that a program might run."""
    reason = ""
    if _RESERVED.fullmatch(part):
        reason = "is a device name on Windows"
    elif _NOT_ON_WINDOWS.search(part):
        reason = 'has one of < > : " | ? *, which Windows refuses'
    elif part != part.strip(" ") or part.endswith("."):
        reason = "starts or ends with a space, or ends with a dot"
    elif part.startswith("."):
        reason = "starts with a dot, which hides it"
    elif len(part.encode("utf-8", "surrogatepass")) > MAX_PART_BYTES:
        reason = f"is longer than {MAX_PART_BYTES} bytes"
    elif _FILE_EXTENSION.fullmatch(Path(part).suffix):
        reason = f"ends in the file extension '{Path(part).suffix}', but a run has a folder"
    if reason:
        raise ConfigError.of(_KEY, f"the folder name '{part}' {reason}")


def _make_root(root: Path) -> None:
    try:
        root.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _unwritable(root, error) from error


def _make_named(root: Path, target: Path) -> Path:
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        if not target.parent.resolve().is_relative_to(root.resolve()):  # a link put there since the first look
            raise ConfigError.of(_KEY, f"'{target}' leads outside the output root '{root}'")
        target.mkdir()
    except FileExistsError as error:
        hint = "choose another output.name, or remove the folder"
        raise ConfigError.of(_KEY, f"'{target}' exists; a run never overwrites another", hint=hint) from error
    except OSError as error:
        raise _unwritable(target, error) from error
    return target


def _make_dated(root: Path) -> Path:
    while True:
        folder = root.resolve() / dated_name(datetime.now())
        try:
            folder.mkdir()
        except FileExistsError:
            continue  # another process took this very microsecond
        except OSError as error:
            raise _unwritable(folder, error) from error
        return folder


def dated_name(moment: datetime) -> str:
    """The default folder name, which sorts by time: `2026-03-01_14-05-09-000123`."""
    return moment.strftime("%Y-%m-%d_%H-%M-%S-%f")


def _check_writable(folder: Path) -> None:
    """Write for real: permission bits say little for root, network shares and read-only mounts."""
    try:
        with tempfile.NamedTemporaryFile(dir=folder) as probe:
            probe.write(b"x")
            probe.flush()
    except OSError as error:
        raise _unwritable(folder, error) from error


def check_free_space(root: Path, needed_bytes: int) -> None:
    """Raise `PlanError` where the disk of `root` has fewer bytes left."""
    free = shutil.disk_usage(root).free
    if free < needed_bytes:
        need, have = needed_bytes / 2**20, free / 2**20
        raise PlanError(f"output.root: the results need {need:.0f} MiB and '{root}' has {have:.0f} MiB free")


def _unwritable(path: Path, error: OSError) -> ConfigError:
    reason = f"cannot write to '{path}': {os.strerror(error.errno) if error.errno else error}"
    return ConfigError.of("output.root", reason, hint="set output.root to a folder you may write to")
