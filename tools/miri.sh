#!/usr/bin/env bash
# Runs tests under Miri, which finds undefined behaviour, data races and leaks. By hand: it interprets, several hundred
# times slower than the processor. So properties are tried a few times only, and a test that would take minutes is left
# out and says so.
#
#   tools/miri.sh                    base, order, index, rows and rowdex, one after the other
#   tools/miri.sh PACKAGE [TEST...]  one of them, or those of its tests whose names contain one of these
#
# Miri runs no C library and maps no file. So of rowdex itself it runs the handles of the C API, and nothing of the
# packages that read files, decompress, or evaluate conditions.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
if ! cargo +nightly miri --version >/dev/null 2>&1; then
  rustup toolchain install nightly --profile minimal --component miri,rust-src
fi
packages=(base order index rows rowdex)
[ $# -eq 0 ] || packages=("$1")
export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-target/miri} PROPTEST_CASES=${PROPTEST_CASES:-4}
mkdir -p "$CARGO_TARGET_DIR"

table=() failed=0
for package in "${packages[@]}"; do
  # Tests use the clock and temporary folders.
  flags="-Zmiri-disable-isolation -Zmiri-strict-provenance" name=rowdex-$package tests=("${@:2}") features=()
  case $package in
    order | index | rows) ;;
    # What threads do is tried in several orders.
    base) flags+=" -Zmiri-many-seeds=0..4" features=(--all-features) ;;
    rowdex)
      flags+=" -Zmiri-many-seeds=0..4" name=rowdex features=(--no-default-features --features capi)
      [ ${#tests[@]} -gt 0 ] || tests=(capi::tests::handles)
      ;;
    *) sed -n '6,7p' "${BASH_SOURCE[0]}" >&2; exit 2 ;;
  esac
  export MIRIFLAGS=$flags
  command=(nice cargo +nightly miri test --locked --lib -p "$name" "${features[@]}")
  "${command[@]}" --no-run
  log=$CARGO_TARGET_DIR/$package.log started=$SECONDS outcome=passed
  "${command[@]}" -- "${tests[@]}" 2>&1 | tee "$log" || outcome=FAILED failed=1
  took=$((SECONDS - started))
  # Each seed has a result, of the same tests.
  counts=$(sed -nE 's/^test result:.* ([0-9]+) passed;.* ([0-9]+) ignored;.* ([0-9]+) filtered out.*/\1 \2 \3/p' "$log")
  read -r ran ignored filtered <<<"$(tail -1 <<<"$counts")"
  table+=("$(printf '%-8s %-7s %9s %9s %9s %6d:%02d' "$package" $outcome "${ran:-?}" "${ignored:-?}" "${filtered:-?}" \
    $((took / 60)) $((took % 60)))")
  # Why tests are left out, and how many for each reason.
  table+=("$(sort -u "$log" | sed -n 's/^test .*ignored, /  /p' | sort | uniq -c | sort -rn)")
done
printf '\n%-8s %-7s %9s %9s %9s %9s\n' package outcome 'tests ran' 'left out' unasked minutes
printf '%s\n' "${table[@]}" | sed '/^$/d'
exit $failed
