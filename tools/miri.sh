#!/usr/bin/env bash
# Runs Miri over the tests of orders that end in seconds, by hand: no gate waits for it. It is several hundred times
# slower than the processor.
#
#   rustup toolchain install nightly --component miri,rust-src
#   tools/miri.sh [TEST...]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
[ $# -gt 0 ] || set -- fingerprint:: layout:: names::
# Tests use the clock and temporary folders.
export MIRIFLAGS=${MIRIFLAGS:--Zmiri-disable-isolation}
nice cargo +nightly miri test --locked --target-dir target/miri --lib -p rowdex-order -- "$@"
