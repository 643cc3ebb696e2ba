#!/usr/bin/env bash
# Installs the wheel into the environment of the tests as users do: without a network, and without Rust. Prints the
# path of the wheel.
#
# ROWDEX_WHEEL  the wheel; made by tools/wheel.sh, with its variables, if this is not set.
# ROWDEX_VENV   the environment. Default: target/python-venv.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
wheel=${ROWDEX_WHEEL:-}
if [ -z "$wheel" ]; then
  rm -rf target/python-wheel
  wheel=$(bash tools/wheel.sh target/python-wheel)
fi
CARGO=/nonexistent/cargo "${ROWDEX_VENV:-target/python-venv}/bin/python" -m pip install --quiet --force-reinstall \
  --disable-pip-version-check --no-deps --no-index "$wheel" >&2
realpath "$wheel"
