#!/usr/bin/env bash
# Installs what makes and checks the wheel, below target/. Does nothing if it is there.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
tools=target/wheel-tools
cmp -s tools/python/wheel.txt "$tools/wheel.txt" && exit
[ -x "$tools/bin/python" ] || python3 -m venv "$tools"
"$tools/bin/python" -m pip install --quiet --disable-pip-version-check --only-binary :all: -r tools/python/wheel.txt
cp tools/python/wheel.txt "$tools/wheel.txt"
