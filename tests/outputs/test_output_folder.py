"""Run folders: containment after resolving (SE-05), exclusive creation (SW-06), checks before loading (US-05)."""

import multiprocessing
import os
from collections.abc import Iterator
from datetime import datetime
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from framework.errors import ConfigError, PlanError
from framework.outputs import folder as folder_module
from framework.outputs.folder import claim_folder, dated_name, resolve_inside
from framework.spec import OutputSpec


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "out"
    root.mkdir()
    return root


def refusal(root: Path, name: str) -> str:
    with pytest.raises(ConfigError) as caught:
        claim_folder(OutputSpec(root=root, name=name))
    assert caught.value.problems[0].key == "output.name"
    return str(caught.value)


@pytest.mark.parametrize(
    "name",
    [
        "../x",
        "..",
        "sub/../../x",
        "../out_evil/x",
        "/etc/x",
        r"..\x",
        r"sub\..\..\x",
        r"\\server\share",
        "~/../../x/..",
    ],
)
def test_a_name_that_leads_out_of_the_root_is_refused_and_makes_nothing(root: Path, name: str) -> None:
    (root.parent / "out_evil").mkdir()
    before = sorted(root.parent.rglob("*"))
    message = refusal(root, name)
    assert "outside the output root" in message or "is the output root itself" in message
    assert sorted(root.parent.rglob("*")) == before


def test_a_link_that_points_out_is_refused(root: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (root / "link").symlink_to(tmp_path / "elsewhere")
    assert "outside the output root" in refusal(root, "link/x")
    assert not list((tmp_path / "elsewhere").iterdir())


def test_a_loop_of_links_is_refused(root: Path) -> None:
    (root / "loop").symlink_to(root / "loop")
    refusal(root, "loop/x")


@pytest.mark.parametrize("name", ["..", ".", "", "sub/.."])
def test_the_root_itself_is_no_run_folder(root: Path, name: str) -> None:
    refusal(root, name)


@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("sub/../ok", "ok"),
        ("a/b/c", "a/b/c"),
        (r"a\b", "a/b"),
        ("a cat v1.2", "a cat v1.2"),
        ("一只猫", "一只猫"),
        ("console", "console"),
    ],
)
def test_a_name_inside_the_root_is_allowed(root: Path, name: str, place: str) -> None:
    assert claim_folder(OutputSpec(root=root, name=name)) == root / place
    assert (root / place).is_dir()


def test_an_absolute_name_inside_the_root_is_allowed(root: Path) -> None:
    assert resolve_inside(root, str(root / "x")) == root / "x"


def test_a_link_inside_the_root_is_followed(root: Path) -> None:
    (root / "real").mkdir()
    (root / "link").symlink_to(root / "real")
    assert claim_folder(OutputSpec(root=root, name="link/x")) == root / "real" / "x"


@pytest.mark.parametrize(
    "name",
    [
        "CON",
        "nul.2",
        "Lpt1",
        "com\u00b9",
        "a:b",
        "a|b",
        "what?",
        "a*",
        "x.",
        "x ",
        " x",
        ".hidden",
        "sub/NUL/x",
        "x" * 201,
    ],
)
def test_a_name_that_some_system_cannot_hold_is_refused(root: Path, name: str) -> None:
    refusal(root, name)
    assert not list(root.iterdir())


@pytest.mark.parametrize("name", ["a\0b", "a\nb", "a\x1b[31m"])
def test_a_control_character_is_refused_and_shown_escaped(root: Path, name: str) -> None:
    message = refusal(root, name)
    assert "control character" in message
    assert message.isprintable()


@pytest.mark.parametrize("name", ["x.pth", "x.py", "start.bat", "clip.mp4", "sub.py/x"])
def test_a_file_extension_is_refused_and_named(root: Path, name: str) -> None:
    assert "file extension" in refusal(root, name)


def test_a_folder_that_exists_is_never_reused(root: Path) -> None:
    first = claim_folder(OutputSpec(root=root, name="fixed"))
    (first / "video.mp4").write_bytes(b"kept")
    assert "exists" in refusal(root, "fixed")
    assert (first / "video.mp4").read_bytes() == b"kept"


def test_the_default_name_is_dated_to_the_microsecond_and_sorts_by_time() -> None:
    assert dated_name(datetime(2026, 3, 1, 14, 5, 9, 123)) == "2026-03-01_14-05-09-000123"


def test_a_taken_microsecond_leads_to_the_next(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    moments = iter([1, 1, 2])

    class Clock:
        @staticmethod
        def now() -> datetime:
            return datetime(2026, 1, 1, microsecond=next(moments))

    monkeypatch.setattr(folder_module, "datetime", Clock)
    names = [claim_folder(OutputSpec(root=root)).name[-6:] for _ in range(2)]
    assert names == ["000001", "000002"]


def claim_when_told(root: Path, name: str | None, gate: Connection, answer: Connection) -> None:
    gate.recv()
    try:
        answer.send(str(claim_folder(OutputSpec(root=root, name=name))))
    except ConfigError as error:
        answer.send(f"refused: {error}")


def race(root: Path, name: str | None) -> list[str]:
    """Claim from two processes released together; return both answers."""
    context = multiprocessing.get_context("fork")
    gates, answers, processes = [], [], []
    for _ in range(2):
        (gate, let_go), (answer, said) = context.Pipe(duplex=False), context.Pipe(duplex=False)
        process = context.Process(target=claim_when_told, args=(root, name, gate, said))
        process.start()
        gates.append(let_go)
        answers.append(answer)
        processes.append(process)
    for gate in gates:
        gate.send(True)
    found = [answer.recv() for answer in answers]
    for process in processes:
        process.join(5)
    return found


def test_two_processes_in_the_same_second_get_two_folders(root: Path) -> None:
    assert len(set(race(root, None))) == 2
    assert len(list(root.iterdir())) == 2


def test_of_two_processes_with_one_name_one_is_refused(root: Path) -> None:
    found = sorted(race(root, "same"))
    assert found[0] == str(root / "same")
    assert found[1].startswith("refused: ")


@pytest.fixture
def read_only(tmp_path: Path) -> Iterator[Path]:
    """A folder this process may not write to, also when the tests run as root."""
    folder = tmp_path / "read_only"
    folder.mkdir()
    folder.chmod(0o555)
    user = os.geteuid()
    if user == 0:
        os.seteuid(65534)
    yield folder
    os.seteuid(user)
    folder.chmod(0o755)


@pytest.mark.parametrize("inner", ["", "new"])
def test_a_root_without_write_permission_is_refused_before_anything(read_only: Path, inner: str) -> None:
    with pytest.raises(ConfigError, match=r"^output\.root: cannot write to .*; set output\.root") as caught:
        claim_folder(OutputSpec(root=read_only / inner))
    assert caught.value.exit_code == 2


def test_a_root_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=r"output\.root"):
        claim_folder(OutputSpec(root=tmp_path / "file"))


def test_a_folder_that_takes_no_files_is_removed_again(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(dir: Path) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(folder_module.tempfile, "NamedTemporaryFile", refuse)
    with pytest.raises(ConfigError, match="Read-only file system"):
        claim_folder(OutputSpec(root=root, name="x"))
    assert not list(root.iterdir())


def test_too_little_space_is_refused_before_a_folder_is_made(root: Path) -> None:
    with pytest.raises(PlanError, match="MiB free"):
        claim_folder(OutputSpec(root=root), needed_bytes=2**60)
    assert not list(root.iterdir())


def test_the_claimed_folder_is_empty(root: Path) -> None:
    assert not list(claim_folder(OutputSpec(root=root)).iterdir())
