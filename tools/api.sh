#!/usr/bin/env bash
# Writes tests/data/api/rust.txt, the public Rust API as text; with --check, fails if that is not what is there.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
cargo run --quiet --locked --manifest-path tools/api/Cargo.toml --target-dir target/tools -- "$@"
