"""A narrow console never hides the real error (US-03)."""

import io
import subprocess
import sys
from pathlib import Path

import pytest

from framework.report.console import make_console_safe, make_safe

ROOT = Path(__file__).parents[2]


def narrow_console() -> io.TextIOWrapper:
    return io.TextIOWrapper(io.BytesIO(), encoding="cp1252")


def test_text_outside_the_code_page_is_escaped_and_the_rest_kept() -> None:
    console = narrow_console()
    make_safe(console).write("é 一只猫 \ud83d done")
    console.flush()
    assert console.buffer.getvalue() == b"\xe9 " + rb"\u4e00\u53ea\u732b \ud83d done"


def test_an_unsafe_console_would_have_raised() -> None:
    with pytest.raises(UnicodeEncodeError):
        narrow_console().write("一只猫")


def test_a_stream_without_an_encoding_is_left_alone() -> None:
    stream = io.StringIO()
    assert make_safe(stream) is stream


def test_a_program_without_standard_streams_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", None)
    monkeypatch.setattr(sys, "stderr", narrow_console())
    make_console_safe()
    assert sys.stderr.errors == "backslashreplace"


PROGRAM = """
import sys
from pathlib import Path
from framework.errors import StageError
from framework.report.console import make_console_safe
from framework.report.lines import LogFile
from framework.report.progress import find_progress
from framework.runtime import events

make_console_safe()
log = LogFile(Path(sys.argv[1]))
bus = events.EventBus(find_progress(sys.stdout), log)
bus.emit(events.RequestStarted(0, 1, "一只猫", (1,)))
try:
    raise StageError("decode: 解码失败 in 输出")
except StageError as error:
    bus.emit(events.RunFinished("failed", 1.0, str(error)))
    print(error, file=sys.stderr)
    sys.exit(error.exit_code)
"""


def test_a_piped_run_in_cp1252_shows_and_logs_its_own_error(tmp_path: Path) -> None:
    folder = tmp_path / "一只猫"
    folder.mkdir()
    environment = {"PYTHONIOENCODING": "cp1252", "PYTHONPATH": str(ROOT), "PATH": ""}
    command = [sys.executable, "-X", "utf8=0", "-c", PROGRAM, str(folder)]
    done = subprocess.run(command, capture_output=True, env=environment, timeout=30, check=False)
    assert done.returncode == 4
    assert done.stderr.strip() == rb"decode: \u89e3\u7801\u5931\u8d25 in \u8f93\u51fa"
    assert rb"\u4e00\u53ea\u732b" in done.stdout
    assert b"UnicodeEncodeError" not in done.stdout + done.stderr
    log = (folder / "log.txt").read_text(encoding="utf-8")
    assert "decode: 解码失败 in 输出" in log
    assert "一只猫" in log
