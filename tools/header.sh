#!/usr/bin/env bash
# Generates include/rowdex.h from src/capi; with --check, fails if that is not what is there.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
cargo run --quiet --locked --manifest-path tools/header/Cargo.toml --target-dir target/tools -- "$@"
