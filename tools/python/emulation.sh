#!/usr/bin/env bash
# Unpacks qemu and an arm64 Python from the archive of Debian below target/, where tools/wheel_emulated.sh runs them.
# Does nothing if they are there. Nothing is installed, and one need not be root.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
[ ! -d target/emulation/machine ] || exit 0
made=$PWD/target/emulation/new
rm -rf "$made"
mkdir -p "$made/lists/partial" "$made/archives/partial" "$made/root"
# Nothing is installed, as this says to apt, so that all that Python needs comes along.
: >"$made/status"
apt=(-qq -o APT::Sandbox::User= -o "Dir::State::lists=$made/lists" -o "Dir::State::status=$made/status"
  -o "Dir::Cache=$made" -o "APT::Architectures::=$(dpkg --print-architecture)" -o APT::Architectures::=arm64)
apt-get "${apt[@]}" update
(cd "$made" && apt-get "${apt[@]}" download qemu-user-static)
apt-get "${apt[@]}" -o APT::Architecture=arm64 -y --no-install-recommends --download-only install python3 libstdc++6
for package in "$made"/archives/*.deb; do dpkg-deb -x "$package" "$made/root"; done
dpkg-deb --fsys-tarfile "$made"/qemu-user-static_*.deb | tar -x -O ./usr/bin/qemu-aarch64-static >"$made/qemu-aarch64"
chmod +x "$made/qemu-aarch64"
rm -rf "$made/lists" "$made/archives" "$made"/*.deb
mv "$made" target/emulation/machine
