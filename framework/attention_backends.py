"""The attention backends of diffusers, and what each needs: one table. No torch.

`BACKENDS` is checked while composing and before loading, and `docs/numerics.md` prints it. A name is the one that
diffusers' registry has; a test compares the two.
"""

import importlib.util
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from framework.errors import Problem, did_you_mean

KEY = "numerics.attention"
DEFAULT = "native"
ALIASES: Mapping[str, str] = MappingProxyType({"sdpa": DEFAULT})
"""Other names for a backend; `sdpa` is what torch calls it, and the default of the key."""

EVERYWHERE = ("cpu", "cuda", "mps", "sim")
CUDA = ("cuda",)
TRUST_KEY = "pipeline.model.trust_remote_code"


@dataclass(frozen=True, slots=True, kw_only=True)
class Backend:
    """One backend. `package` must be importable, `install` gets it; empty where torch has it.

    `devices` are kinds of platforms that compute with it. `half`: it takes float16 and bfloat16 only. `remote`: its
    kernel is fetched from the hub and run, which has to be allowed. `lossy`: it computes in fewer bits.
    """

    name: str
    what: str
    devices: tuple[str, ...] = CUDA
    package: str = ""
    install: str = ""
    half: bool = False
    remote: bool = False
    lossy: bool = False


def _flash(name: str, what: str, package: str = "flash_attn", install: str = "flash-attn") -> Backend:
    return Backend(name=name, what=what, package=package, install=install, half=True)


def _sage(name: str, what: str) -> Backend:
    package = "sageattention"
    return Backend(name=name, what=what, package=package, install=package, half=True, lossy=True)


def _from_hub(name: str, what: str, lossy: bool = False) -> Backend:
    package = "kernels"
    return Backend(name=name, what=what, package=package, install=package, half=True, remote=True, lossy=lossy)


FLASH_3 = {"package": "flash_attn_interface", "install": "flash-attn-3"}

BACKENDS: Mapping[str, Backend] = MappingProxyType(
    {
        backend.name: backend
        for backend in (
            Backend(name="native", what="torch chooses among its own kernels", devices=EVERYWHERE),
            Backend(name="_native_math", what="torch's plain formula, most memory", devices=EVERYWHERE),
            Backend(name="_native_flash", what="torch's flash kernel", devices=("cpu", "cuda"), half=False),
            Backend(name="_native_efficient", what="torch's memory-efficient kernel"),
            Backend(name="_native_cudnn", what="cuDNN's kernel through torch", half=True),
            Backend(name="flex", what="torch's flex attention", devices=("cpu", "cuda")),
            _flash("flash", "FlashAttention 2"),
            _flash("flash_varlen", "FlashAttention 2, sequences of unequal length"),
            _flash("_flash_3", "FlashAttention 3", **FLASH_3),
            _flash("_flash_varlen_3", "FlashAttention 3, sequences of unequal length", **FLASH_3),
            _sage("sage", "SageAttention"),
            _sage("sage_varlen", "SageAttention, sequences of unequal length"),
            _sage("_sage_qk_int8_pv_fp8_cuda", "SageAttention, int8 and float8"),
            _sage("_sage_qk_int8_pv_fp8_cuda_sm90", "SageAttention, int8 and float8, for Hopper"),
            _sage("_sage_qk_int8_pv_fp16_cuda", "SageAttention, int8 and float16"),
            _sage("_sage_qk_int8_pv_fp16_triton", "SageAttention, int8 and float16, in Triton"),
            Backend(name="xformers", what="xFormers", package="xformers", install="xformers"),
            _from_hub("flash_hub", "FlashAttention 2 from the hub"),
            _from_hub("flash_varlen_hub", "the same, sequences of unequal length"),
            _from_hub("_flash_3_hub", "FlashAttention 3 from the hub"),
            _from_hub("_flash_3_varlen_hub", "the same, sequences of unequal length"),
            _from_hub("flash_4_hub", "FlashAttention 4 from the hub"),
            _from_hub("aiter_fa2_hub", "FlashAttention 2 for ROCm from the hub"),
            _from_hub("sage_hub", "SageAttention from the hub", lossy=True),
            _from_hub("sage_blackwell_hub", "SageAttention 3 for Blackwell from the hub", lossy=True),
            Backend(name="_native_npu", what="Ascend's kernel", devices=(), package="torch_npu", install="torch-npu"),
            Backend(name="_native_xla", what="XLA's kernel", devices=(), package="torch_xla", install="torch-xla"),
        )
    }
)


def find_backend(name: str) -> Backend | None:
    """Return the backend called `name`; None for a name that there is not.

    Case, `-` against `_` and a leading `_`, with which diffusers marks some, are folded.
    """
    folded = name.strip().lower().replace("-", "_")
    return BACKENDS.get(ALIASES.get(folded, folded)) or BACKENDS.get(f"_{folded}")


def is_default(name: str) -> bool:
    found = find_backend(name)
    return found is not None and found.name == DEFAULT


def attention_problems(
    name: str, device: str | None = None, *, trusted: bool = False, packages: bool = True
) -> Iterator[Problem]:
    """Yield why `name` cannot be had: unknown, not on `device` (its kind; None: unknown), not allowed, not installed.

    `trusted`: code from elsewhere may be run. Without `packages` it is not looked whether they are installed.
    """
    backend = find_backend(name)
    if backend is None:
        yield Problem(KEY, f"unknown attention backend '{name}'", hint=did_you_mean(name, [*BACKENDS, *ALIASES]))
        return
    if device is not None and device not in backend.devices:
        able = f"it computes on {', '.join(backend.devices)}" if backend.devices else "no device of this version has it"
        yield Problem(KEY, f"{backend.name} cannot be used on {device}", hint=able)
    if backend.remote and not trusted:
        reason = f"{backend.name} fetches a kernel from the hub and runs it, which is code from elsewhere"
        yield Problem(KEY, reason, hint=f"set {TRUST_KEY}=true if you trust it")
    if packages and backend.package and importlib.util.find_spec(backend.package) is None:
        reason = f"{backend.name} needs the package '{backend.package}', which is not installed"
        yield Problem(KEY, reason, hint=f"pip install {backend.install}")


def attention_table() -> str:
    """The table as Markdown, for `docs/numerics.md`."""
    head = ("`numerics.attention`", "what", "devices", "dtypes", "install")
    rows = [
        (
            f"`{backend.name}`" + "".join(f", `{other}`" for other, name in ALIASES.items() if name == backend.name),
            backend.what + (", fewer bits" if backend.lossy else ""),
            ", ".join(backend.devices) or "none yet",
            "float16, bfloat16" if backend.half else "all",
            f"`{backend.install}`" if backend.install else "nothing",
        )
        for backend in BACKENDS.values()
    ]
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, ("---",) * len(head), *rows))
