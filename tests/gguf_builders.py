"""GGUF files in their real format, from a component's folder. Imports torch and gguf inside."""

from pathlib import Path


def write_gguf(folder: Path, file: Path, architecture: str = "wan") -> Path:
    """Write the weights of a diffusers component as GGUF: Q8_0 where rows allow, BF16 for other matrices, else F32."""
    import gguf
    import numpy as np
    from safetensors.torch import load_file

    writer = gguf.GGUFWriter(str(file), architecture)
    kinds = gguf.GGMLQuantizationType
    for name, tensor in load_file(folder / "diffusion_pytorch_model.safetensors").items():
        data = tensor.float().numpy()
        kind = kinds.F32
        if data.ndim == 2:
            kind = kinds.Q8_0 if data.shape[1] % 32 == 0 else kinds.BF16
        stored = gguf.quants.quantize(np.ascontiguousarray(data), kind)
        writer.add_tensor(name, stored, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return file
