#!/usr/bin/env bash
# The whole gate: formatting, lints for each feature set, documentation, tests with the pyarrow oracle and real servers of stores, and the demo.
# Needs a Rust toolchain with rustfmt and clippy and Python 3 with venv, and installs the rest below target/; without nginx (or root and apt)
# and npm, the tests of two more stores are left out, and say so.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

export CARGO_TERM_COLOR=${CARGO_TERM_COLOR:-auto}
# A missing oracle must fail the gate, not pass it silently.
export ROWDEX_ORACLE=${ROWDEX_ORACLE:-required}
export ROWDEX_STORES=${ROWDEX_STORES:-required}
export ROWDEX_STORES_OPS=${ROWDEX_STORES_OPS:-10000}

step() { printf '\n== %s\n' "$*"; }

step "format"
cargo fmt --all --check

for features in "" "--no-default-features" "--no-default-features --features serde" "--all-features"; do
  step "lints ${features:-with the default features}"
  # shellcheck disable=SC2086
  cargo clippy --locked --all-targets $features -- -D warnings
done

step "documentation"
RUSTDOCFLAGS="-D warnings" cargo doc --locked --no-deps --all-features

step "the pyarrow oracle's environment"
if [ "$ROWDEX_ORACLE" = required ]; then bash tools/oracle/setup.sh; fi

step "the servers of the store tests"
if [ "$ROWDEX_STORES" = required ]; then
  sh tools/stores/setup.sh
  # These come from other package managers, which a machine may lack: then their tests are left out, and say so.
  if sh tools/stores/more.sh nginx && sh tools/stores/more.sh azurite; then export ROWDEX_STORES=all; fi
fi

step "tests"
cargo test --locked --all-features

step "the C API"
bash tools/capi.sh

step "the Python package"
bash tools/python.sh -q

step "the main job"
cargo run --locked --quiet -- demo

printf '\nall checks passed\n'
