"""The import contract: which part may see which, and what is reached without torch."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
HEAVY = {"accelerate", "av", "diffusers", "numpy", "safetensors", "torch", "transformers"}
# Everything that answers `--help`, `validate` or `explain` (KEYS and DESIGN), and the sinks beside it.
DRY_RUN = "profile_"  # what runs a pipeline on shapes alone, on a cache miss: it drives the real stages
PLANNED = tuple(
    f"framework/planning/{path.name}"
    for path in sorted((ROOT / "framework/planning").glob("*.py"))
    if not path.name.startswith(DRY_RUN)
)
TORCH_FREE = (
    "framework/*.py",
    *PLANNED,
    *(f"framework/calibration/{name}.py" for name in ("flags", "learn", "measured", "runs", "store")),
    *(f"framework/{part}/*.py" for part in ("commands", "compose", "outputs", "report", "sweep")),
)
ABOVE = {"commands", "cli"}
# folder -> the parts of `framework` it must not import, even inside a function: data flows one way
# What reads only the JSON of a model's folder is open to compose, for pipelines that list their components there.
# The planner also reads headers and the hub's listing: what has no weights and no torch in it. How a file is written
# whole or not at all is the same for everybody, and so are its hash, JSON and the names of groups and amounts.
PLAIN_READERS = (
    *(f"framework.loading.{name}" for name in ("chosen_files", "headers", "hub", "index", "places", "source")),
    "framework.outputs.atomic",
    "framework.outputs.hashing",
    "framework.outputs.json_text",
    "framework.compose.knobs",
    "framework.compose.selectors",
)
FORBIDDEN = {
    "framework/compose": {"planning", "loading", "memory", "platforms", "runtime", "outputs", "report"},
    "framework/planning": {"compose", "loading", "runtime", "outputs", "report"},
    "framework/calibration": {"compose", "planning", "loading", "memory", "runtime", "report"},
    "framework/platforms": {"compose", "planning", "loading", "memory", "runtime", "outputs", "report"},
    "framework/loading": {"compose", "outputs", "report"},
    "framework/runtime": {"compose", "outputs", "report"},
    "framework/outputs": {"compose", "loading", "report"},
    "framework/report": {"compose", "planning", "loading"},
    "framework/sweep": {"memory"},
    "strategies": {"compose", "outputs", "report"},
    "stages": {"compose", "loading", "report"},
}


def imports(path: Path, at_load_time: bool) -> Iterator[str]:
    """Yield the absolute modules that a file imports, or only those that importing the file imports."""
    waiting: list[ast.AST] = [ast.parse(path.read_text(encoding="utf-8"))]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            waiting.extend(node.orelse)
        elif not (at_load_time and isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)):
            waiting.extend(ast.iter_child_nodes(node))
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            yield from (node.module or "", *(f"{node.module}.{alias.name}" for alias in node.names))


def source_of(module: str) -> Path | None:
    place = ROOT.joinpath(*module.split("."))
    return next((path for path in (place.with_suffix(".py"), place / "__init__.py") if path.is_file()), None)


def heavy_imports(path: Path, seen: set[Path]) -> Iterator[str]:
    """Follow load-time imports through our own modules; yield `file -> package` for each heavy one."""
    seen.add(path)
    for module in imports(path, at_load_time=True):
        if module.partition(".")[0] in HEAVY:
            yield f"{path.relative_to(ROOT)} -> {module}"
        parts = module.split(".")
        for source in filter(None, (source_of(".".join(parts[: end + 1])) for end in range(len(parts)))):
            if source not in seen:
                yield from heavy_imports(source, seen)


@pytest.mark.parametrize("pattern", TORCH_FREE)
def test_what_answers_at_once_reaches_no_heavy_package(pattern: str) -> None:
    for path in sorted(ROOT.glob(pattern)):
        assert not list(heavy_imports(path, set()))


@pytest.mark.parametrize("folder", FORBIDDEN)
def test_nothing_reads_backwards(folder: str) -> None:
    for path in sorted((ROOT / folder).rglob("*.py")):
        open_to_it = {"loading", "runtime"} if path.name.startswith(DRY_RUN) else set()
        forbidden = {f"framework.{part}" for part in FORBIDDEN[folder] - open_to_it | ABOVE}
        modules = [name for name in imports(path, at_load_time=False) if not name.startswith(PLAIN_READERS)]
        assert not {".".join(module.split(".")[:2]) for module in modules} & forbidden, path


@pytest.mark.parametrize("folder", ["stages", "strategies"])
def test_a_stage_or_strategy_imports_no_other(folder: str) -> None:
    for path in sorted((ROOT / folder).glob("*.py")):
        others = {module.partition(".")[0] for module in imports(path, at_load_time=False)}
        assert not others & {"stages", "strategies"}, path


def test_a_stage_imports_torch_only_inside_its_functions() -> None:
    for path in sorted((ROOT / "stages").rglob("*.py")):
        assert not {module.partition(".")[0] for module in imports(path, at_load_time=True)} & HEAVY, path


def test_the_contract_sees_a_breach(tmp_path: Path) -> None:
    bad = tmp_path / "bad.py"
    bad.write_text("def f():\n    import diffusers\nclass A:\n    from torch import nn\n")
    assert set(imports(bad, at_load_time=True)) == {"torch", "torch.nn"}
    assert "diffusers" in set(imports(bad, at_load_time=False))
