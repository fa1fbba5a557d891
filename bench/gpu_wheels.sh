#!/usr/bin/env bash
# Fill a folder with the wheels that bench/gpu_check.sh needs beside torch, transformers and accelerate:
#   bash bench/gpu_wheels.sh WHEELS
# Run it where there is a network; pure Python wheels only, so any machine will do.
set -euo pipefail
if [ $# -ne 1 ]; then
    sed -n 2,4p "$0" >&2
    exit 2
fi
python=${PYTHON:-python3}
"$python" -m pip download -q --no-deps --only-binary=:all: --python-version 3.12 --implementation py --platform any \
    --dest "$1" "diffusers>=0.42.1,<0.44" "ftfy>=6.2,<7" "wcwidth>=0.2" "importlib-metadata>=8" "zipp>=3"
