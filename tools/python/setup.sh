#!/usr/bin/env bash
# Makes the environment that the Python package is tested in. Does nothing if it is there.
#
# ROWDEX_FRAMEWORKS  required: install PyTorch and the frameworks of frameworks.txt, too, or fail.
# ROWDEX_VENV        the environment, made if it is not there. Default: target/python-venv.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

torch_version=2.15.0
venv=${ROWDEX_VENV:-target/python-venv}
python=$venv/bin/python
export PIP_DISABLE_PIP_VERSION_CHECK=1

installed() { cmp -s "tools/python/$(basename "$1")" "$venv/$1"; }
if ! installed requirements.txt; then
  [ -x "$python" ] || python3 -m venv "$venv"
  "$python" -m pip install --quiet --only-binary :all: -r tools/python/requirements.txt
  cp tools/python/requirements.txt "$venv/requirements.txt"
fi

[ "${ROWDEX_FRAMEWORKS:-}" = required ] || exit 0

if ! "$python" -c 'import torch, torchdata' 2>/dev/null; then
  "$python" tools/python/install_torch.py "$torch_version"
fi

if ! installed frameworks.txt; then
  # The list is complete, so nothing is resolved, and no GPU library comes along.
  "$python" -m pip install --quiet --only-binary :all: --no-deps -r tools/python/frameworks.txt
  cp tools/python/frameworks.txt "$venv/frameworks.txt"
fi

if ! installed peers/peers.txt; then
  # Into a folder of their own, because they ask for other versions of packages than the frameworks do.
  rm -rf "$venv/peers"
  "$python" -m pip install --quiet --only-binary :all: --no-deps --target "$venv/peers" -r tools/python/peers.txt
  cp tools/python/peers.txt "$venv/peers/peers.txt"
fi
