#!/usr/bin/env bash
# Tests the Python package under PyTorch and the frameworks that it plugs into: installs all of them, as
# tools/python/frameworks.txt pins them, installs the wheel, checks types, and runs python/tests/frameworks, what of
# python/tests needs PyTorch, and an example. A framework that is missing is a failure. tools/wheel.sh and
# tools/python/install.sh say which variables there are. Arguments go to pytest; with files, these alone are run:
#   tools/frameworks.sh frameworks/test_ray.py
#   tools/frameworks.sh --lock      chooses the versions anew: pins the newest ones that fit together.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

python=${ROWDEX_VENV:-target/python-venv}/bin/python
export ROWDEX_FRAMEWORKS=required
if [ "${1:-}" = --lock ]; then
  bash tools/python/setup.sh
  exec "$python" tools/python/lock_frameworks.py "${@:2}"
fi

bash tools/python/setup.sh
ROWDEX_WHEEL=$(bash tools/python/install.sh)
export ROWDEX_WHEEL

case $python in /*) ;; *) python=$PWD/$python ;; esac
# From another directory, so that what is imported is what was installed.
cd python
case $* in
  *.py*) ;;
  *)
    # The types of what subclasses PyTorch are known where it is.
    "$python" -m mypy
    # Those of PyTorch alone mostly wait for processes that they start.
    (
      cd tests
      grep -lZE 'importorskip\("torch|xgboost' test_*.py |
        xargs -0 "$python" -m pytest -c ../pyproject.toml --rootdir .. --import-mode=append -p no:cacheprovider \
          -n 2 --dist loadfile "$@"
    )
    (cd ../examples && "$python" train_tabular.py)
    set -- frameworks -n 2 --dist loadfile "$@"
    ;;
esac
cd tests
exec "$python" -m pytest -c ../pyproject.toml --rootdir .. --import-mode=append -p no:cacheprovider "$@"
