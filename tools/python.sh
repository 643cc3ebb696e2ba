#!/usr/bin/env bash
# Tests the Python package as users get it: makes the wheel, installs it into an environment below target/, and runs its
# tests. Those that need PyTorch or a framework are run by tools/frameworks.sh. tools/wheel.sh, tools/python/setup.sh
# and tools/python/install.sh say which variables there are. Arguments go to pytest.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

venv=${ROWDEX_VENV:-target/python-venv}
python=$venv/bin/python

bash tools/python/setup.sh
ROWDEX_WHEEL=$(bash tools/python/install.sh)
export ROWDEX_WHEEL

# From another directory, so that what is imported is what was installed.
case $python in /*) ;; *) python=$PWD/$python ;; esac
cd python/tests
# Most tests wait for processes that they start, so two at a time keep two cores busy.
exec "$python" -m pytest -c ../pyproject.toml --rootdir .. --import-mode=append -p no:cacheprovider \
  --ignore=frameworks -n 2 --dist loadfile "$@"
