#!/usr/bin/env bash
# Makes packages of the programs for all CPUs of this architecture: scripts/package.sh [deb|archive|image|all] [FOLDER].
#   deb       a Debian package: programs, man pages, completion, systemd units, configuration in /etc/tactus
#   archive   a relocatable .tar.gz with every library but glibc's, licences and an SPDX list; needs no installation
#   image     an OCI image (docker load, podman load), made without a daemon
# FOLDER: dist. Equal sources give equal packages on equal systems: times are the commit's (SOURCE_DATE_EPOCH), paths
# are relative.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
kind=${1:-all}
case $kind in
  deb | archive | image | all) ;;
  *) echo "package: '$kind' is no kind of package; give deb, archive, image or all" >&2; exit 2 ;;
esac
out=$(mkdir -p "${2:-$root/dist}" && cd "${2:-$root/dist}" && pwd)
"$root/scripts/setup.sh" build package
"$root/scripts/get_llguidance.sh" > /dev/null || echo "package: without the library for structured output" >&2
cd "$root"
: "${SOURCE_DATE_EPOCH:=$(git log -1 --format=%ct 2>/dev/null || date +%s)}"
export SOURCE_DATE_EPOCH
build=${TACTUS_PACKAGE_BUILD:-build/package}
if [ ! -f "$build/build.ninja" ]; then
  mkdir -p "$build"
  cmake --preset release -B "$build" -DTACTUS_BUILD_TESTS=OFF -DTACTUS_CUDA=OFF \
    "-DCMAKE_CXX_FLAGS=-ffile-prefix-map=$root/= -ffile-prefix-map=$(cd "$build" && pwd)/=build/" > "$build/configure.log" ||
    { cat "$build/configure.log" >&2; exit 1; }
fi
echo "package: building the programs with all kernel sets" >&2
cmake --build "$build" -j "${TACTUS_BUILD_JOBS:-$(nproc)}" --target programs >&2
version=$(sed -n 's/^CMAKE_PROJECT_VERSION:STATIC=//p' "$build/CMakeCache.txt")
name=tactus-$version-linux-$(uname -m)

stage=
if [ "$kind" != deb ]; then
  echo "package: archive" >&2
  stage=$(mktemp -d)
  trap 'rm -rf "$stage"' EXIT
  cmake --install "$build" --component program --strip --prefix "$stage" > /dev/null
  # Bundles into the stage, from which the image is made too.
  python3 tools/package/archive.py "$stage" "$out/$name.tar.gz" --version "$version" --time "$SOURCE_DATE_EPOCH"
fi
if [ "$kind" = image ] || [ "$kind" = all ]; then
  echo "package: image" >&2
  python3 tools/package/image.py "$stage" "$out/$name.oci.tar" --version "$version" --time "$SOURCE_DATE_EPOCH"
fi
if [ "$kind" = deb ] || [ "$kind" = all ]; then
  echo "package: deb" >&2
  log=$build/cpack.log
  cpack --config "$build/CPackConfig.cmake" -G DEB -B "$out/cpack" > "$log" 2>&1 || { cat "$log" >&2; exit 1; }
  mv "$out"/cpack/*.deb "$out/"
  rm -rf "$out/cpack"
  (cd "$out" && sha256sum ./*.deb)
fi
