#!/usr/bin/env bash
# The gate: formatting, lints for each choice of features, what it depends on, documentation, tests with the pyarrow
# oracle and real servers of stores, the wheel of the Python package and its tests, the C API, and the demo.
#
# Needs a Rust toolchain with rustfmt and clippy and Python 3 with venv, and installs the rest below target/. Without
# nginx (or root and apt) and npm, the tests of two more stores are left out, and say so.
#
#   tools/check.sh             what a change must pass
#   tools/check.sh frameworks  the package under PyTorch and the frameworks that it plugs into: installs 6.5 GB
#   tools/check.sh site        the site: its links, and its pages in Chromium, where that is installed or can be
#   tools/check.sh release     what a release publishes: packed, unpacked and used, and nothing uploaded
#   tools/check.sh all         all four; `frameworks site release` are three of them
#   tools/check.sh long        all, with every case that tests of wrappers, forks, memory and damage know, whether it
#                              compiles for macOS, and the wheel for aarch64 under qemu
#   tools/check.sh quick       format, lints and the tests of the packages, while one works: minutes
set -euo pipefail
parts=" ${*:-core} "
for part in $parts; do
  case $part in
    core | frameworks | site | release | quick) ;;
    all | long)
      parts+="core frameworks site release "
      # Not in continuous integration: four machines take minutes.
      export ROWDEX_MACHINES=1
      # Tests that know more cases than the gate has time for look at the first of these variables.
      if [ "$part" = long ]; then export ROWDEX_LONG=1 ROWDEX_STORES_OPS=${ROWDEX_STORES_OPS:-10000}; fi
      ;;
    *) sed -n '8,15s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2; exit 2 ;;
  esac
done
asked() { [[ $parts == *" $1 "* ]]; }
cd "$(dirname "${BASH_SOURCE[0]}")/.."

if [ -z "${ROWDEX_LONG:-}" ]; then
  # The same random cases each time, so that a change fails for what it changed. The long gate draws new ones.
  export PROPTEST_RNG_SEED=${PROPTEST_RNG_SEED:-2026} ROWDEX_RANDOM_SEED=${ROWDEX_RANDOM_SEED:-2026}
fi

export CARGO_TERM_COLOR=${CARGO_TERM_COLOR:-auto}
# Nothing is compiled twice here, and what a second compilation would start from takes gigabytes of disk.
export CARGO_INCREMENTAL=${CARGO_INCREMENTAL:-0}
# Where the command and the package put indexes that tests do not name.
export ROWDEX_CACHE=${ROWDEX_CACHE:-$PWD/target/cache}
# A missing oracle must fail the gate, not pass it silently.
export ROWDEX_ORACLE=${ROWDEX_ORACLE:-required}
export ROWDEX_STORES=${ROWDEX_STORES:-required}
export ROWDEX_STORES_OPS=${ROWDEX_STORES_OPS:-3000}

started=$SECONDS
step() { printf '\n== %s  [%d:%02d]\n' "$*" $(((SECONDS - started) / 60)) $(((SECONDS - started) % 60)); }

# What is installed from elsewhere is mostly waited for, so it comes while the lints run.
mkdir -p target/prepare
trap 'kill $(jobs -p) 2>/dev/null || true' EXIT
declare -A prepared
prepare() { # NAME COMMAND...
  "${@:2}" >"target/prepare/$1.log" 2>&1 &
  prepared[$1]=$!
}
ready() { # NAME
  wait "${prepared[$1]}" || { cat "target/prepare/$1.log" >&2; return 1; }
}
if asked core || asked frameworks || asked release; then prepare wheel_tools bash tools/python/wheel_tools.sh; fi
if asked core; then
  prepare oracle sh tools/oracle/setup.sh
  prepare nginx sh tools/stores/more.sh nginx
  prepare azurite sh tools/stores/more.sh azurite
fi
# One after the other, because both go into one environment.
if asked frameworks; then
  prepare python env ROWDEX_FRAMEWORKS=required bash tools/python/setup.sh
elif asked core; then
  prepare python bash tools/python/setup.sh
fi

# What frameworks, the site and a release start from is built by the tests already, where those ran.
export ROWDEX_COMMAND
ROWDEX_COMMAND=$(realpath -m "${CARGO_TARGET_DIR:-target}/debug/rowdex")
export ROWDEX_CARGO_PROFILE=${ROWDEX_CARGO_PROFILE:-dev} ROWDEX_CARGO_ARGS=${ROWDEX_CARGO_ARGS:---locked}
wheel() {
  step "the wheel"
  ready wheel_tools
  bash tools/wheel.sh target/python-wheel >target/prepare/wheel
  ROWDEX_WHEEL=$(cat target/prepare/wheel)
  export ROWDEX_WHEEL
}

if asked core || asked quick; then
  step "format"
  cargo fmt --all --check

  step "what it depends on"
  python3 tools/dependencies.py

  step "what is generated: the public API as text, Python's declarations, pictures, notebooks, figures; and the words"
  bash tools/api.sh --check
  rustfmt --check --edition 2024 tools/api/main.rs
  python3 tools/python/declarations.py --check
  python3 -m tools.pictures --check
  python3 -m tools.notebooks --check
  python3 tools/compare/performance.py --check
  python3 tools/words.py
fi

if asked quick; then
  step "lints"
  cargo clippy --locked --workspace --all-targets --all-features -- -D warnings
  step "tests of the packages, of the command and of the sources themselves"
  ROWDEX_ORACLE=no ROWDEX_STORES=no cargo test --locked --workspace --all-features --lib --bins
  cargo test --locked --workspace --all-features --test it house
fi

if asked core; then
  # Both share what is compiled of the dependencies, because the tests ask for the features that differ.
  for features in "--all-features" ""; do
    step "lints ${features:-with the default features}"
    # shellcheck disable=SC2086
    cargo clippy --locked --workspace --all-targets $features -- -D warnings
  done

  step "the library alone, without what the tests ask for, and the index without Parquet"
  cargo check --locked --lib -p rowdex
  cargo check --locked --lib -p rowdex-index

  step "documentation"
  RUSTDOCFLAGS="-D warnings" cargo doc --locked --workspace --no-deps --all-features

  step "the pyarrow oracle's environment, and the servers of the store tests"
  ready oracle
  sh tools/stores/setup.sh
  # These come from other package managers, which a machine may lack: then their tests are left out, and say so.
  if ready nginx && ready azurite; then export ROWDEX_STORES=all; fi

  step "tests"
  cargo test --locked --workspace --all-features

  step "random, damaged and public files, with all columns left to the parquet crate"
  ROWDEX_DECODE=parquet cargo test --locked --workspace --all-features --test it -- \
    oracle::random oracle::every_sound oracle::damaged

  wheel
  # The programs under valgrind leave a core to the tests of the package. It begins behind the wheel, because both build
  # the same library.
  prepare capi bash tools/capi.sh

  step "the Python package"
  ready python
  bash tools/python.sh -q

  step "the C API"
  ready capi
  cat target/prepare/capi.log

  step "the main job"
  "$ROWDEX_COMMAND" demo
fi

if [ -n "${ROWDEX_LONG:-}" ]; then
  step "lints for macOS"
  bash tools/macos.sh

  step "the wheel for aarch64"
  if bash tools/python/emulation.sh; then
    bash tools/wheel.sh target/python-wheel aarch64 >target/prepare/wheel-aarch64
    bash tools/wheel_emulated.sh "$(cat target/prepare/wheel-aarch64)"
  else
    printf '\n!! qemu and an arm64 Python cannot be had here: the wheel for aarch64 is LEFT OUT\n' >&2
  fi
fi

if asked frameworks; then
  [ -n "${ROWDEX_WHEEL:-}" ] || wheel
  step "the package under PyTorch and the frameworks"
  cargo build --locked --quiet --workspace --all-features --bin rowdex
  ready python
  bash tools/frameworks.sh -q
fi

if asked site; then
  step "the site: its links, and its pages in Chromium"
  bash tools/site.sh
fi

if asked release; then
  [ -n "${ROWDEX_WHEEL:-}" ] || wheel
  step "a release, but for the uploads"
  if ! asked core; then
    cargo build --locked --quiet --workspace --all-features --bin rowdex
    ROWDEX_PROFILE=dev ROWDEX_FLAGS=--all-features bash tools/install.sh target/capi
  fi
  bash tools/dry_run.sh
fi

step "passed:$parts"
