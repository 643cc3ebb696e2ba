#!/usr/bin/env bash
# Tests the Python package as users get it: builds and installs it into an environment below target/, checks its types, and runs its tests and examples.
#
# ROWDEX_TORCH  required: fail where PyTorch cannot be installed; no: leave its tests out; unset: install it if possible, and say so if not.
# ROWDEX_VENV   the environment to use, made if it is not there. Default: target/python-venv. It is kept, and PyTorch with it.
# Arguments go to pytest.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

torch_version=2.15.0
venv=${ROWDEX_VENV:-target/python-venv}
python=$venv/bin/python
export PIP_DISABLE_PIP_VERSION_CHECK=1

if ! cmp -s tools/python/requirements.txt "$venv/requirements.txt"; then
  [ -x "$python" ] || python3 -m venv "$venv"
  "$python" -m pip install --quiet --only-binary :all: -r tools/python/requirements.txt
  cp tools/python/requirements.txt "$venv/requirements.txt"
fi

torch=${ROWDEX_TORCH:-}
if [ "$torch" != no ] && ! "$python" -c 'import torch, torchdata' 2>/dev/null; then
  if ! "$python" tools/python/install_torch.py "$torch_version"; then
    [ "$torch" != required ] || { echo "PyTorch cannot be installed, and ROWDEX_TORCH=required" >&2; exit 1; }
    torch=no
  fi
fi
[ "$torch" != no ] || printf '\n!! PyTorch is not there: its tests and examples are SKIPPED\n\n' >&2

ROWDEX_CARGO_ARGS=${ROWDEX_CARGO_ARGS:---locked} "$python" -m pip install --quiet --force-reinstall --no-deps ./python

# From another directory, so that what is imported is what was installed.
here=$PWD
cd python
case $python in /*) ;; *) python=$here/$python ;; esac
"$python" -m mypy
cd tests
"$python" -m pytest -c ../pyproject.toml --rootdir .. --import-mode=append -p no:cacheprovider "$@"

if [ "$torch" != no ]; then
  cd "$here/examples"
  "$python" ddp.py
  "$python" train_tabular.py
fi
