#!/usr/bin/env bash
# The check on a machine with a GPU and without a network, in under 6 minutes:
#   bash bench/gpu_check.sh WHEELS [OUT]
# WHEELS is a folder that bench/gpu_wheels.sh has filled on a machine with a network. Python 3.12 with torch 2.11 or
# later, transformers and accelerate are there already. gpu.json and gpu.md go to OUT, by default bench/results.
set -euo pipefail
if [ $# -lt 1 ]; then
    sed -n 2,5p "$0" >&2
    exit 2
fi
wheels=$(cd "$1" && pwd)
cd "$(dirname "$0")/.."
out=${2:-bench/results}
python=${PYTHON:-python3}
site=$(mktemp -d)
trap 'rm -rf "$site"' EXIT
"$python" -m pip install -q --no-index --no-deps --no-compile --no-cache-dir --target "$site" "$wheels"/*.whl
export PYTHONPATH="$PWD:$site${PYTHONPATH:+:$PYTHONPATH}" HF_HUB_OFFLINE=1 TOKENIZERS_PARALLELISM=false PYTHONUNBUFFERED=1
export CUBLAS_WORKSPACE_CONFIG=:4096:8
limit_s=${LIMIT_S:-320}
"$python" -m bench.gpu --device "${DEVICE:-cuda}" ${QUICK:+--quick} --seconds "$limit_s" --out "$out"
