#!/usr/bin/env bash
# Installs the missing Debian packages of the named groups (build, test, python, site, slow, fuzz, package, package_test). The group cuda is NVIDIA's
# tools and, if PATH has no nvcc, its compiler, as Python packages in .venv-cuda, where CMake finds them. The group
# flashinfer is FlashInfer's headers, likewise in .venv-flashinfer (for -DTACTUS_FLASHINFER=ON).
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)

# Installs groups of scripts/cuda_packages.txt into a virtual environment, without what the packages depend on.
packages() {  # folder, groups
  local venv=$root/$1 groups=$2 lists=$root/scripts/cuda_packages.txt wanted=$root/$1/wanted.txt
  [ -x "$venv/bin/pip" ] || python3 -m venv "$venv"
  awk -v groups=" $groups " '/^# group /{on = index(groups, " " $3 " "); next} /^#/ || NF == 0 {next} on' "$lists" >"$wanted"
  if ! cmp -s "$wanted" "$venv/installed.txt"; then
    echo "setup: installing $(grep -c . "$wanted") Python packages ($groups) into $1" >&2
    "$venv/bin/pip" install --quiet --disable-pip-version-check --no-compile --no-deps -r "$wanted" >&2
    cp "$wanted" "$venv/installed.txt"
  fi
}

cuda() {
  [ "$(uname -m)" = x86_64 ] || { echo "setup: NVIDIA's packages are installed on x86-64 only" >&2; return 1; }
  local groups=tools
  command -v nvcc >/dev/null || groups="compiler tools"
  packages .venv-cuda "$groups"
  # The compiler's profile names lib64; the packages have lib.
  for toolkit in "$root"/.venv-cuda/lib/python3*/site-packages/nvidia/cu13; do ln -sfn lib "$toolkit/lib64"; done
}

wanted=()
for group in "${@:-build}"; do
  if [ "$group" = cuda ]; then cuda; continue; fi
  if [ "$group" = flashinfer ]; then packages .venv-flashinfer flashinfer; continue; fi
  while read -r package; do wanted+=("$package"); done < <(
    awk -v g="$group" '/^# group /{on = ($3 == g); next} /^#/ || NF == 0 {next} on {print $1}' "$root/scripts/debian_packages.txt")
done
missing=()
for package in "${wanted[@]}"; do
  dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'install ok installed' || missing+=("$package")
done
[ ${#missing[@]} -eq 0 ] && exit 0

if ! command -v apt-get >/dev/null; then
  echo "setup: this is not a Debian or Ubuntu system. Install the packages of scripts/debian_packages.txt by hand, then run again." >&2
  exit 1
fi
as_root=()
if [ "$(id -u)" -ne 0 ]; then
  if command -v sudo >/dev/null; then as_root=(sudo); else
    echo "setup: packages are missing, and this user is not root and has no sudo. Run as root: apt-get install ${missing[*]}" >&2
    exit 1
  fi
fi
echo "setup: installing ${#missing[@]} packages: ${missing[*]}" >&2
export DEBIAN_FRONTEND=noninteractive
"${as_root[@]}" apt-get update -qq >&2 || echo "setup: apt-get update failed; trying with the existing lists" >&2
# The tests start Prometheus themselves: the package's service stays disabled if it did not exist before.
service=
case " ${missing[*]} " in *" prometheus "*) [ -d /run/systemd/system ] && service=prometheus.service ;; esac
[ -z "$service" ] || "${as_root[@]}" systemctl --quiet mask "$service"
status=0
"${as_root[@]}" apt-get install -y -qq --no-install-recommends "${missing[@]}" >&2 || status=$?
[ -z "$service" ] || { "${as_root[@]}" systemctl --quiet unmask "$service" && "${as_root[@]}" systemctl --quiet disable "$service"; }
exit $status
