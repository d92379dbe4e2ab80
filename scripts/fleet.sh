#!/usr/bin/env bash
# Installs missing packages, builds, fetches the default model and serves it N times, on ports 8001, 8002, ...:
#   scripts/fleet.sh [N] [arguments of `tactus serve` for all]
# Prints the router command for another terminal. Ctrl-C stops all replicas.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
count=2
case "${1:-}" in -*|'') ;; *) count=$1; shift ;; esac
case "$count" in *[!0-9]*|0|'') echo "fleet: '$count' is not a number of replicas; use for example scripts/fleet.sh 4" >&2; exit 2 ;; esac
"$root/scripts/setup.sh" build
"$root/scripts/build.sh" release tactus tactus-tools
model=$("$root/scripts/get_default_model.sh")

# Divides the machine's cores and one GiB of KV memory among the replicas.
threads=$(($(nproc) / count)); [ "$threads" -ge 1 ] || threads=1
replicas=
pids=()
stop() { trap - INT TERM; kill -TERM "${pids[@]}" 2>/dev/null || true; wait; exit 0; }
trap stop INT TERM
for ((i = 1; i <= count; i++)); do
  port=$((8000 + i))
  # A separate session: Ctrl-C reaches only this script, which stops each replica once.
  setsid "$root/build/release/tactus" serve "$model" --served-model-name smollm2-135m --port $port --threads "$threads" \
    --kv-cache-memory $((1024 / count))MiB "$@" 2> >(sed -u "s/^/[$port] /" >&2) &
  pids+=($!)
  replicas+="${replicas:+,}http://127.0.0.1:$port"
done
echo "fleet: starting $count replicas; in another terminal run: build/release/tactus route --replicas $replicas" >&2
status=0
for i in "${!pids[@]}"; do
  wait "${pids[$i]}" || { echo "fleet: the replica on port $((8001 + i)) has ended (status $?)" >&2; status=1; }
done
exit $status
