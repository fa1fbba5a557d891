"""Where sizes come from: folders, the hub's headers over a local server, single files, and what does not agree."""

import json
import struct
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from framework.planning import stored
from framework.planning.facts import ComponentSizes
from framework.planning.inventory import inventory
from framework.planning.sheets import Part, Sheet
from framework.planning.tensors import Tensor
from framework.spec import ComponentSpec, ModelSpec, PipelineSpec

REPO = "owner/tiny"
COMMIT = "0123456789abcdef0123456789abcdef01234567"
INDEX = {
    "_class_name": "FluxPipeline",
    "transformer": ["diffusers", "FluxTransformer2DModel"],
    "text_encoder": ["transformers", "T5EncoderModel"],
    "tokenizer": ["transformers", "T5Tokenizer"],
}
BLOCK = {f"transformer_blocks.{i}.weight": ("F32", (8, 100)) for i in range(3)}
SHAPES = {"head.weight": ("F32", (8, 8)), **BLOCK}
ENCODER = {
    "shared.weight": ("BF16", (16, 4)),
    "encoder.embed_tokens.weight": ("BF16", (16, 4)),
    "encoder.block.0.layer.0.SelfAttention.q.weight": ("BF16", (4, 4)),
}
WIDTHS = {"F32": 4, "BF16": 2}


def header(shapes: Mapping[str, tuple[str, tuple[int, ...]]]) -> tuple[bytes, int]:
    """A safetensors header and the bytes of weights that should follow it."""
    entries, offset = {}, 0
    for name, (dtype, shape) in shapes.items():
        size = WIDTHS[dtype] * shape[0] * shape[1]
        entries[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [offset, offset + size]}
        offset += size
    text = json.dumps(entries).encode()
    return struct.pack("<Q", len(text)) + text, offset


def files_of(shapes: Mapping[str, tuple[str, tuple[int, ...]]] = SHAPES) -> dict[str, bytes]:
    found = {"model_index.json": json.dumps(INDEX).encode()}
    for name, weights, own in (
        ("transformer", "diffusion_pytorch_model.safetensors", shapes),
        ("text_encoder", "model.safetensors", ENCODER),
    ):
        start, size = header(own)
        found[f"{name}/{weights}"] = start + bytes(size)
        found[f"{name}/config.json"] = json.dumps({"num_layers": 3}).encode()
    return found


def spec(source: str, *names: str, **changes: Any) -> PipelineSpec:
    components = {name: ComponentSpec(name=name) for name in names}
    model = ModelSpec(source=source, **changes)
    return PipelineSpec(name="x", family=None, backend="standard", model=model, components=components, stages={})


def sizes(source: str, name: str = "transformer", **changes: Any) -> ComponentSizes:
    return inventory(spec(source, name, **changes), frozenset({name}))[name]


def write(folder: Path, files: Mapping[str, bytes]) -> Path:
    for name, data in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    return folder


@dataclass
class Hub:
    """What the local server has, and what it was asked for."""

    files: dict[str, bytes]
    url: str = ""
    asked: list[tuple[str, str | None]] = field(default_factory=list)
    status: int = 200

    @property
    def sent_bytes(self) -> int:
        return sum(self.sizes)

    sizes: list[int] = field(default_factory=list)


def handler(hub: Hub) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            wanted = self.headers.get("Range")
            hub.asked.append((self.path, wanted))
            path = self.path.partition("?")[0]
            prefix = f"/{REPO}/resolve/{COMMIT}/"
            if hub.status != 200:
                return self.answer(hub.status, b"{}")
            if path.startswith(f"/api/models/{REPO}"):
                siblings = [{"rfilename": name} for name in hub.files]
                return self.answer(200, json.dumps({"id": REPO, "sha": COMMIT, "siblings": siblings}).encode())
            data = hub.files.get(path.removeprefix(prefix))
            if data is None:
                return self.answer(404, b"")
            if wanted is None:
                return self.answer(200, data)
            last = int(wanted.partition("-")[2])
            return self.answer(206, data[: last + 1])

        def answer(self, status: int, data: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)
            hub.sizes.append(len(data))

        def log_message(self, *args: Any) -> None:
            """Keep the test's output clean."""

    return Handler


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Hub]:
    """A hub with one repository, an empty cache of the library and of ours, and no offline setting."""
    found = Hub(files_of())
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler(found))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    found.url = f"http://127.0.0.1:{server.server_address[1]}"
    monkeypatch.setenv("FRAMEWORK_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", found.url)
    template = found.url + "/{repo_id}/resolve/{revision}/{filename}"
    monkeypatch.setattr("huggingface_hub.constants.HUGGINGFACE_CO_URL_TEMPLATE", template)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    yield found
    server.shutdown()
    server.server_close()


def test_a_folder_tells_by_its_headers(tmp_path: Path) -> None:
    found = sizes(str(write(tmp_path, files_of())))
    assert (found.source, found.dtype, found.file_dtype) == ("headers", "float32", "float32")
    assert found.size_bytes == 4 * (64 + 3 * 800)
    assert [(stack.path, len(stack.layers), stack.layers[0].size_bytes) for stack in found.stacks] == [
        ("transformer_blocks", 3, 3328)  # 3200 bytes to the next multiple of 256
    ]
    assert found.notes == ("no weights of its layers 'single_transformer_blocks' were found",)
    assert sizes(str(tmp_path), dtype="bfloat16").size_bytes == 2 * (64 + 3 * 800)


def test_ties_are_counted_once_even_where_a_file_has_both(tmp_path: Path) -> None:
    found = sizes(str(write(tmp_path, files_of())), "text_encoder")
    assert found.size_bytes == 2 * (64 + 16)
    assert found.ties == (("shared.weight", "encoder.embed_tokens.weight"),)


def test_the_hub_is_asked_for_headers_and_configs_only(hub: Hub) -> None:
    hub.files = files_of({**SHAPES, "big.weight": ("F32", (1000, 2000))})
    found = sizes(REPO)
    assert (found.source, found.size_bytes) == (f"hub:{REPO}", 4 * (64 + 3 * 800 + 2_000_000))
    assert found.config == {"num_layers": 3}
    ranged = [path for path, wanted in hub.asked if wanted]
    assert [path.rpartition("/")[2] for path in ranged] == ["diffusion_pytorch_model.safetensors"]
    assert hub.sent_bytes < 200_000
    assert not any("text_encoder" in path for path, _ in hub.asked)


def test_a_long_header_is_read_in_a_second_piece(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("framework.planning.remote.FIRST_BYTES", 64)
    assert sizes(REPO).size_bytes == 4 * (64 + 3 * 800)
    assert len([path for path, wanted in hub.asked if wanted]) == 2


def test_what_was_read_is_kept(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    first = sizes(REPO)
    asked = len(hub.asked)
    assert sizes(REPO) == first
    assert len(hub.asked) == asked
    sizes(REPO, "text_encoder")  # another component has to be read
    assert len(hub.asked) > asked
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    asked = len(hub.asked)
    assert sizes(REPO, "text_encoder").source == f"hub:{REPO}"
    assert len(hub.asked) == asked


def test_offline_nobody_is_asked(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    found = sizes(REPO)
    assert (found.size_bytes, found.source, hub.asked) == (None, "unknown", [])


def test_a_hub_that_fails_leaves_the_sheet_and_a_line(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    hub.status = 503
    part = Part(class_name=("diffusers", "FluxTransformer2DModel"), dtype="float32", tensors=(tensor("a.weight"),))
    monkeypatch.setattr(stored, "find_sheet", lambda repo: sheet(transformer=part))
    found = sizes(REPO)
    assert (found.source, found.size_bytes) == (f"sheet:{REPO}", 16)
    assert "503" in found.notes[0]


def test_a_sheet_that_differs_from_the_checkpoint_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write(tmp_path, files_of())
    told = tuple(Tensor(name, shape, "bfloat16") for name, (_, shape) in BLOCK.items())
    told = (*told[:2], replace(told[2], shape=(8, 8)), tensor("gone.weight"))
    part = Part(class_name=("diffusers", "FluxTransformer2DModel"), dtype="bfloat16", tensors=told)
    monkeypatch.setattr(stored, "find_sheet", lambda repo: sheet(transformer=part))
    monkeypatch.setattr(stored, "locate_model", lambda model: folder)
    found = sizes(REPO)
    assert found.source == "headers"
    assert found.notes[0] == (
        "the shipped sheet differs from the checkpoint: 1 tensors in the sheet only (such as gone.weight); "
        "1 tensors in the checkpoint only (such as head.weight); "
        "1 tensors of another shape (such as transformer_blocks.2.weight); stored in float32 instead of bfloat16"
    )


def test_a_component_from_another_place_is_read_there(tmp_path: Path) -> None:
    folder = write(tmp_path / "base", files_of())
    start, size = header({"transformer_blocks.0.weight": ("BF16", (2, 2))})
    file = write(tmp_path, {"other.safetensors": start + bytes(size)}) / "other.safetensors"
    base = spec(str(folder), "transformer")
    component = ComponentSpec(name="transformer", source=str(file))
    found = inventory(replace(base, components={"transformer": component}), frozenset({"transformer"}))["transformer"]
    assert (found.size_bytes, found.file_dtype, found.config) == (8, "bfloat16", {"num_layers": 3})


def test_a_pickle_tells_its_size_on_disk_and_no_more(tmp_path: Path) -> None:
    files = files_of()
    del files["transformer/diffusion_pytorch_model.safetensors"]
    files["transformer/diffusion_pytorch_model.bin"] = bytes(1000)
    found = sizes(str(write(tmp_path, files)))
    assert (found.size_bytes, found.file_bytes, found.source) == (None, 1000, "files")
    assert "only its size on disk is known" in found.notes[0]


def test_a_broken_file_is_unknown_and_named(tmp_path: Path) -> None:
    files = files_of()
    files["transformer/diffusion_pytorch_model.safetensors"] = b"nothing at all"
    found = sizes(str(write(tmp_path, files)))
    assert found.size_bytes is None
    assert "not a safetensors file" in found.notes[0]


def tensor(name: str) -> Tensor:
    return Tensor(name, (2, 2), "float32")


def sheet(**parts: Part) -> Sheet:
    return Sheet(repo=REPO, pipeline_class="FluxPipeline", parts=parts)
