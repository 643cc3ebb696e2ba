#!/usr/bin/env bash
# Builds the C library and installs header, shared and static library and the pkg-config file below a directory:
#   tools/install.sh PREFIX
# It has what the wheel has. ROWDEX_PROFILE (dist) and ROWDEX_FLAGS (--features full) say how it is built; with
# ROWDEX_MALLOC=1 it allocates with malloc alone, which sanitizers and valgrind watch.
set -euo pipefail
if [ $# -ne 1 ]; then sed -n '2,5s/^# //p' "${BASH_SOURCE[0]}" >&2; exit 2; fi
mkdir -p "$1"
prefix="$(cd "$1" && pwd)"
cd "$(dirname "${BASH_SOURCE[0]}")/.."

profile="${ROWDEX_PROFILE:-dist}"
read -ra flags <<<"${ROWDEX_FLAGS:---features full}"
version="$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -1)"
abi="$(sed -n 's/^#define ROWDEX_ABI_VERSION //p' include/rowdex.h)"
case "$profile" in dev) built=debug ;; *) built="$profile" ;; esac
built="${CARGO_TARGET_DIR:-target}/$built"

# The crate type is given here and not in Cargo.toml, where every build would make libraries that few need.
crate() {
  cargo rustc --locked -p rowdex --lib --profile "$profile" "${flags[@]}" --crate-type "$@" \
    ${allocator[@]+"${allocator[@]}"} ${linker[@]+"${linker[@]}"}
}
allocator=(--cfg rowdex_library)
if [ -n "${ROWDEX_MALLOC:-}" ]; then allocator=(); fi
linker=(${ROWDEX_LINKER:+-C "linker=$ROWDEX_LINKER"})
if [ "$(uname)" = Darwin ]; then
  shared="librowdex.$abi.dylib" link=librowdex.dylib
  crate cdylib,staticlib -- -C "link-arg=-Wl,-install_name,$prefix/lib/$shared"
else
  shared="librowdex.so.$abi" link=librowdex.so
  crate cdylib,staticlib -- -C "link-arg=-Wl,-soname,$shared"
fi

mkdir -p "$prefix/include" "$prefix/lib/pkgconfig"
install -m 644 include/rowdex.h "$prefix/include/"
install -m 755 "$built/$link" "$prefix/lib/$shared"
ln -sf "$shared" "$prefix/lib/$link"
install -m 644 "$built/librowdex.a" "$prefix/lib/"
cat > "$prefix/lib/pkgconfig/rowdex.pc" <<PC
prefix=\${pcfiledir}/../..
includedir=\${prefix}/include
libdir=\${prefix}/lib

Name: rowdex
Description: Parquet files as a map-style dataset for distributed training
Version: $version
Cflags: -I\${includedir}
Libs: -L\${libdir} -lrowdex
Libs.private: -lgcc_s -lutil -lrt -lpthread -lm -ldl -lc
PC
