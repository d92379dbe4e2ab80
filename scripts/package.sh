#!/usr/bin/env bash
# Makes packages of the programs for all CPUs of this architecture: scripts/package.sh [deb|archive|image|wheel|all] [FOLDER].
#   deb       a Debian package: programs, man pages, completion, systemd units, configuration in /etc/tactus
#   archive   a relocatable .tar.gz with every library but glibc's, licences and an SPDX list; needs no installation
#   image     an OCI image (docker load, podman load), made without a daemon
#   wheel     the Python package with the programs in it, for the python3 of this machine
# FOLDER: dist. TACTUS_PACKAGE_BUILD: a build folder whose programs are packed, instead of build/package.
# Equal sources give equal packages on equal systems: times are the commit's (SOURCE_DATE_EPOCH), paths
# are relative.
set -euo pipefail
umask 022  # modes in packages
root=$(cd "$(dirname "$0")/.." && pwd)
kind=${1:-all}
case $kind in
  deb | archive | image | wheel | all) ;;
  *) echo "package: '$kind' is no kind of package; give deb, archive, image, wheel or all" >&2; exit 2 ;;
esac
out=$(mkdir -p "${2:-$root/dist}" && cd "${2:-$root/dist}" && pwd)
"$root/scripts/setup.sh" build package
"$root/scripts/get_llguidance.sh" > /dev/null || echo "package: without the library for structured output" >&2
cd "$root"
: "${SOURCE_DATE_EPOCH:=$(git log -1 --format=%ct 2>/dev/null || date +%s)}"
export SOURCE_DATE_EPOCH
build=${TACTUS_PACKAGE_BUILD:-build/package}
makes() { [ "$kind" = all ] || [[ " $* " = *" $kind "* ]]; }  # kinds: whether one of them is wanted
configure() {  # options of cmake
  mkdir -p "$build"
  cmake -B "$build" "$@" > "$build/configure.log" || { cat "$build/configure.log" >&2; exit 1; }
}
targets=programs
[ -f "$build/build.ninja" ] || configure --preset package
if makes wheel; then
  "$root/scripts/setup.sh" python
  scripts/venv.sh .venv-package tools/package/requirements.txt
  targets+=" tactus_python"
  grep -q '^TACTUS_PYTHON:.*=/' "$build/CMakeCache.txt" || configure "-DTACTUS_PYTHON=$root/.venv-package/bin/python"
fi
echo "package: building the programs with all kernel sets" >&2
# shellcheck disable=SC2086  # several words
cmake --build "$build" -j "${TACTUS_BUILD_JOBS:-$(nproc)}" --target $targets >&2
version=$(sed -n 's/^CMAKE_PROJECT_VERSION:STATIC=//p' "$build/CMakeCache.txt")
name=tactus-$version-linux-$(uname -m)

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
install() {  # component
  cmake --install "$build" --component "$1" --strip --prefix "$work/stage" > "$work/install.log" ||
    { cat "$work/install.log" >&2; exit 1; }
}

if makes wheel archive image; then install program; fi
if makes wheel; then
  echo "package: wheel" >&2
  install python
  .venv-package/bin/python tools/package/python_wheel.py "$work/stage" "$out" --version "$version" --time "$SOURCE_DATE_EPOCH"
  rm -rf "$work/stage/tactus"
fi
if makes archive image; then
  echo "package: archive" >&2
  # Bundles into the stage, from which the image is made too.
  python3 tools/package/archive.py "$work/stage" "$out/$name.tar.gz" --version "$version" --time "$SOURCE_DATE_EPOCH"
fi
if makes image; then
  echo "package: image" >&2
  python3 tools/package/image.py "$work/stage" "$out/$name.oci.tar" --version "$version" --time "$SOURCE_DATE_EPOCH"
fi
if makes deb; then
  echo "package: deb" >&2
  cpack --config "$build/CPackConfig.cmake" -G DEB -B "$work/deb" > "$work/cpack.log" 2>&1 ||
    { cat "$work/cpack.log" >&2; exit 1; }
  mv "$work"/deb/*.deb "$out/"
  (cd "$out" && sha256sum ./tactus_*.deb)
fi
