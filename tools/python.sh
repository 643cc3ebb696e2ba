#!/usr/bin/env bash
# Tests the Python package as users get it: builds and installs it into an environment below target/, checks its types,
# and runs its tests and examples. tools/python/setup.sh makes the environment and says what ROWDEX_TORCH and
# ROWDEX_VENV do. Arguments go to pytest.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

venv=${ROWDEX_VENV:-target/python-venv}
python=$venv/bin/python
export PIP_DISABLE_PIP_VERSION_CHECK=1

bash tools/python/setup.sh
torch=${ROWDEX_TORCH:-}
if [ "$torch" != no ] && ! "$python" -c 'import torch, torchdata' 2>/dev/null; then torch=no; fi
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
