#!/usr/bin/env bash
# Checks the C API: the header against the sources, and the C and C++ programs of tests/capi, examples and
# docs/how-to/cpp.md with the library, those of tests/capi plain, under ASan and UBSan, and under valgrind. What cannot
# be had is skipped aloud; with CI=true that is a failure.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
work="$PWD/target/capi"
# A panic that is caught tells where it was otherwise, and what finds that out keeps memory that counts as leaked.
export RUST_BACKTRACE=0
strict=(-Wall -Wextra -Wredundant-decls -Werror -pedantic -g -I"$work/include" -Itests/capi)

tell() { printf -- '-- %s\n' "$*"; }
missing() {
  if [ "${CI:-}" = true ]; then printf 'missing: %s\n' "$*" >&2; exit 1; fi
  tell "SKIPPED, because there is no $*"
}
# Debian packages, where we may install them.
want() {
  command -v "$1" >/dev/null && return
  if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    # Another program may be installing.
    apt="apt-get -qq -o DPkg::Lock::Timeout=300 -o Acquire::Retries=3"
    { $apt -y install "$2" || { $apt update && $apt -y install "$2"; }; } >/dev/null 2>&1 || true
  fi
  command -v "$1" >/dev/null
}

tell "the header is what the sources say, and is C11 and C++17"
rustfmt --check --edition 2024 tools/header/main.rs
bash tools/header.sh --check
if ! want gcc gcc || ! want g++ g++; then missing "C and C++ compiler"; exit 0; fi
gcc -std=c11 -Wall -Wextra -Wredundant-decls -Werror -pedantic -fsyntax-only -x c include/rowdex.h
g++ -std=c++17 -Wall -Wextra -Wredundant-decls -Werror -pedantic -fsyntax-only -x c++ include/rowdex.h

tell "the library, installed"
# With the features and the profile that the other checks have built already, and with malloc, which valgrind and the
# sanitizers watch. The library with its own allocator is what the tests of the Python package use.
ROWDEX_MALLOC=1 ROWDEX_PROFILE=dev ROWDEX_FLAGS=--all-features bash tools/install.sh "$work"
exported="$(nm -D --defined-only "$work/lib/librowdex.so" | awk '{print $3}' | sort)"
declared="$(grep -o '\browdex_[a-z0-9_]*(' include/rowdex.h | tr -d '(' | sort -u)"
missing_symbols="$(comm -13 <(printf '%s\n' "$exported") <(printf '%s\n' "$declared"))"
if [ "$(grep -c '^rowdex_' <<<"$exported")" -ne "$(wc -l <<<"$declared")" ] || [ -n "$missing_symbols" ]; then
  printf 'the library exports other functions than the header declares:\n' >&2
  diff <(grep '^rowdex_' <<<"$exported") <(printf '%s\n' "$declared") >&2 || true
  exit 1
fi

tell "the dataset that the programs read"
data="$work/data"
rm -rf "$data"
cargo build --locked --quiet --workspace --all-features --bin rowdex
"${CARGO_TARGET_DIR:-target}/debug/rowdex" demo --keep "$data" >/dev/null
# Ranks that share a reader start the command.
PATH="$(realpath "${CARGO_TARGET_DIR:-target}/debug"):$PATH"

compile() { # SOURCE OUTPUT FLAGS...
  case "$1" in
    *.cpp) g++ -std=c++17 "${strict[@]}" "$1" -o "$2" "${@:3}" ;;
    *) gcc -std=c11 "${strict[@]}" "$1" -o "$2" "${@:3}" ;;
  esac
}
shared=(-L"$work/lib" "-Wl,-rpath,$work/lib" -lrowdex -pthread)
programs=(tests/capi/*.c tests/capi/*.cpp)

tell "plain"
mkdir -p "$work/bin"
for source in "${programs[@]}"; do
  name="$(basename "${source%.*}")"
  compile "$source" "$work/bin/$name" "${shared[@]}"
  timeout 300 "$work/bin/$name" "$data"
  tell "  $name: ok"
done

tell "a rewrite into a store"
if store="$(sh tools/stores/setup.sh)"; then
  rm -rf "$work/store"
  mkdir -p "$work/store/bucket"
  for _ in $(seq 20); do
    port=$((20000 + RANDOM % 12000))
    "$store" --host 127.0.0.1 --port "$port" --access-key key --secret-key secret "$work/store" &>"$work/store.log" &
    server=$!
    trap 'kill "$server" 2>/dev/null || true' EXIT
    # Another program may have the port: then the server ends, and another port is tried.
    for _ in $(seq 300); do
      if ! kill -0 "$server" 2>/dev/null || (: >"/dev/tcp/127.0.0.1/$port") 2>/dev/null; then break; fi
      sleep 0.1
    done
    if kill -0 "$server" 2>/dev/null; then break; fi
  done
  AWS_ENDPOINT_URL="http://127.0.0.1:$port" AWS_ALLOW_HTTP=true AWS_REGION=us-east-1 AWS_ACCESS_KEY_ID=key \
    AWS_SECRET_ACCESS_KEY=secret timeout 300 "$work/bin/rewrite" "$data" s3://bucket/out
  kill "$server"
  tell "  rewrite: ok"
else
  missing "S3 server"
fi

tell "with address, undefined-behaviour and leak sanitizers"
for source in "${programs[@]}"; do
  name="$(basename "${source%.*}")"
  # gcc's ASan does not take its allocator's locks before a fork, so a child that allocates waits for ever if another
  # thread held one.
  case "$name" in *forks) continue ;; esac
  compile "$source" "$work/bin/$name.asan" -fsanitize=address,undefined -fno-sanitize-recover=all "${shared[@]}"
  # More than there is may be asked for; the library refuses it, and the sanitizer must let malloc say no.
  ASAN_OPTIONS=allocator_may_return_null=1 timeout 300 "$work/bin/$name.asan" "$data"
  tell "  $name: ok"
done

if want valgrind valgrind; then
  tell "under valgrind"
  # It reads what debuggers would, a hundred megabytes, once a program. The names of functions stay.
  mkdir -p "$work/stripped"
  strip --strip-debug -o "$work/stripped/$(readlink "$work/lib/librowdex.so")" "$work/lib/librowdex.so"
  # Whether a child hangs is seen without valgrind, which would run the server and all children too. Rewriting is one
  # call, which `select` makes, too, and minutes of sorting.
  names="$(basename -a "${programs[@]%.*}" | grep -vxE 'store_forks|rewrite')"
  export work data
  # A forked child leaves what it inherited alone, which valgrind would call a leak. Valgrind runs one thread at a time,
  # and unless it is fair, threads that try again for ever let no other run.
  # shellcheck disable=SC2016
  xargs -P 2 -I NAME bash -c '
    leaks="--leak-check=full --errors-for-leak-kinds=definite --show-leak-kinds=definite"
    if [ NAME = forks ]; then leaks=; fi
    LD_LIBRARY_PATH="$work/stripped" timeout 1800 \
      valgrind --quiet --fair-sched=yes --error-exitcode=9 $leaks "$work/bin/NAME" "$data" &&
      printf -- "--   NAME: ok\n"' <<<"$names"
else
  missing valgrind
fi

tell "the examples, as pkg-config says, with the shared library, and one with the static"
if want pkg-config pkg-config; then
  export PKG_CONFIG_PATH="$work/lib/pkgconfig"
  for source in examples/*.c; do
    name="$(basename "${source%.*}")"
    # shellcheck disable=SC2046
    gcc -std=c11 -Wall -Wextra -Werror -pedantic "$source" -o "$work/bin/$name" $(pkg-config --cflags --libs rowdex)
    LD_LIBRARY_PATH="$work/lib" timeout 300 "$work/bin/$name" "$data/train.rdx" >"$work/$name.txt"
    tell "  $name: ok"
  done
  # shellcheck disable=SC2046
  gcc -std=c11 examples/train_loop.c -o "$work/bin/train_loop.static" $(pkg-config --cflags rowdex) -Wl,--strip-debug \
    "$work/lib/librowdex.a" $(pkg-config --static --libs-only-l rowdex | sed 's/-lrowdex //')
  timeout 300 "$work/bin/train_loop.static" "$data/train.rdx" | cmp - "$work/train_loop.txt"
  tell "  train_loop, static: ok"

  tell "the trainer of docs/how-to/cpp.md"
  page="$work/page"
  rm -rf "$page"
  mkdir -p "$page/run"
  block() { sed -n "/^\`\`\`$1\$/,/^\`\`\`\$/{/^\`\`\`/d;p}" docs/how-to/cpp.md; }
  block cpp >"$page/train.cpp"
  block cmake >"$page/CMakeLists.txt"
  grep -q 'how.epochs = 2;' "$page/train.cpp"
  sed 's/how.epochs = 2;/how.epochs = 1;/' "$page/train.cpp" >"$page/train_less.cpp"
  for source in "$page"/*.cpp; do
    # shellcheck disable=SC2046
    g++ -std=c++17 -Wall -Wextra -Werror -pedantic "$source" -o "${source%.cpp}" $(pkg-config --cflags --libs rowdex)
  done
  trainer() { (cd "$page/run" && LD_LIBRARY_PATH="$work/lib" timeout 300 "../$1" "$data/train.rdx"); }
  trainer train >"$page/whole.txt"
  rm "$page/run/checkpoint.txt"
  # Its last checkpoint is within the first epoch.
  { trainer train_less; trainer train; } | cmp - "$page/whole.txt"
  if command -v cmake >/dev/null; then
    cmake -S "$page" -B "$page/build" >/dev/null
    cmake --build "$page/build" >/dev/null
    rm "$page/run/checkpoint.txt"
    trainer build/train | cmp - "$page/whole.txt"
  else
    tell "  without CMake, which is not here"
  fi
  tell "  train: ok"
else
  missing pkg-config
fi
