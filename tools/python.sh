#!/usr/bin/env bash
# Tests the Python package as users get it: makes the wheel, installs it into an environment below target/, checks its
# types, and runs its tests and examples. Those of the frameworks are run by tools/frameworks.sh. tools/wheel.sh,
# tools/python/setup.sh and tools/python/install.sh say which variables there are. Arguments go to pytest.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

venv=${ROWDEX_VENV:-target/python-venv}
python=$venv/bin/python

bash tools/python/setup.sh
torch=${ROWDEX_TORCH:-}
if [ "$torch" != no ] && ! "$python" -c 'import torch, torchdata' 2>/dev/null; then torch=no; fi
if [ "$torch" = no ]; then
  printf '\n!! PyTorch is not there: its tests and examples and the check of types are SKIPPED\n\n' >&2
fi

ROWDEX_WHEEL=$(bash tools/python/install.sh)
export ROWDEX_WHEEL

# From another directory, so that what is imported is what was installed.
here=$PWD
cd python
case $python in /*) ;; *) python=$here/$python ;; esac
# The types of what subclasses PyTorch are known where it is.
[ "$torch" = no ] || "$python" -m mypy
cd tests
# Most tests wait for processes that they start, so two at a time keep two cores busy.
"$python" -m pytest -c ../pyproject.toml --rootdir .. --import-mode=append -p no:cacheprovider --ignore=frameworks \
  -n 2 --dist loadfile "$@"

if [ "$torch" != no ]; then
  cd "$here/examples"
  "$python" train_tabular.py
fi
