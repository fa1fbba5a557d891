"""`doctor`: what is installed, which devices there are, what is missing. torch is looked at in a child process."""

import json
import os
import platform
import shutil
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from framework.commands.table import format_table
from framework.compose.arguments import COMMON, Flags
from framework.paths import CONF, cache_root

SUMMARY = "Say what is installed, which devices there are and what is missing."
EXAMPLES = ("framework doctor", "framework doctor --json", "framework doctor --quiet")
USAGE = "[FLAGS]"
ACCEPTED = COMMON | {"json"}

REQUIRED = ("torch", "diffusers", "transformers", "accelerate", "safetensors", "hydra-core", "omegaconf", "jsonschema")
OPTIONAL = {"av": "[video]", "peft": "[lora]", "gguf": "[gguf]", "torchao": "[torchao]"}
TORCH_SECONDS = 120

_PROBE = """
import json, torch
devices = ["cpu"]
for index in range(torch.cuda.device_count() if torch.cuda.is_available() else 0):
    name, memory = torch.cuda.get_device_name(index), torch.cuda.get_device_properties(index).total_memory
    devices.append(f"cuda:{index} {name} {memory / 2**30:.1f} GiB")
if torch.backends.mps.is_available():
    devices.append("mps")
print(json.dumps({"version": torch.__version__, "devices": devices}))
"""


def main(words: list[str], flags: Flags) -> int:
    """Print the findings; exit code 2 when something that every run needs is missing."""
    findings = look()
    if flags.json:
        print(json.dumps(findings, indent=2, ensure_ascii=False))
    else:
        if not flags.quiet:
            print(_tables(findings))
        for line in findings["missing"]:
            print(f"missing: {line}")
        if not findings["missing"]:
            print("nothing is missing")
    return 2 if findings["missing"] else 0


def look() -> dict[str, Any]:
    """Everything `doctor` knows, as plain data."""
    packages = {name: _version(name) for name in (*REQUIRED, *OPTIONAL)}
    torch = _probe_torch() if packages["torch"] else {"error": "not installed"}
    cache = cache_root()
    return {
        "python": platform.python_version(),
        "system": platform.platform(),
        "packages": packages,
        "devices": torch.get("devices", []),
        "conf": str(CONF),
        "cache": str(cache),
        "free_gib": round(shutil.disk_usage(_existing(cache)).free / 2**30, 1),
        "offline": os.environ.get("HF_HUB_OFFLINE", "0") not in ("", "0"),
        "missing": _missing(packages, torch),
    }


def _missing(packages: dict[str, str | None], torch: dict[str, Any]) -> list[str]:
    lines = [f"the package {name}; pip install {name}" for name in REQUIRED if packages[name] is None]
    if "error" in torch and packages["torch"]:
        lines.append(f"a torch that can be imported: {torch['error']}")
    return lines


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _probe_torch() -> dict[str, Any]:
    try:
        done = subprocess.run(
            [sys.executable, "-c", _PROBE], capture_output=True, text=True, timeout=TORCH_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        return {"error": f"no answer within {TORCH_SECONDS} s"}
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines()
        return {"error": lines[-1] if lines else f"exit code {done.returncode}"}
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def _existing(folder: Path) -> Path:
    while not folder.exists():
        folder = folder.parent
    return folder


def _tables(findings: dict[str, Any]) -> str:
    packages = [
        (name, found or f"not installed {OPTIONAL.get(name, '')}".rstrip())
        for name, found in findings["packages"].items()
    ]
    facts = [(name, str(findings[name])) for name in ("python", "system", "conf", "cache", "free_gib", "offline")]
    devices = [(device, "") for device in findings["devices"]]
    tables = [format_table(("fact", ""), facts), format_table(("package", ""), packages)]
    if devices:
        tables.append(format_table(("device", ""), devices))
    return "\n\n".join(tables) + "\n"
