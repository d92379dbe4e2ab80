#!/usr/bin/env bash
# Installs what is missing, builds, gets the default model and serves it N times, on ports 8001, 8002, ...:
#   scripts/fleet.sh [N] [arguments of `tactus serve` for all]
# Then, in another terminal, the router that it names. Ctrl-C stops all.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
count=2
case "${1:-}" in -*|'') ;; *) count=$1; shift ;; esac
case "$count" in *[!0-9]*|0|'') echo "fleet: '$count' is not a number of replicas; say scripts/fleet.sh 4" >&2; exit 2 ;; esac
"$root/scripts/setup.sh" build
"$root/scripts/build.sh" release tactus tactus-tools
model=$("$root/scripts/get_default_model.sh")

# The machine's cores and a GiB of KV memory are shared out.
threads=$(($(nproc) / count)); [ "$threads" -ge 1 ] || threads=1
replicas=
pids=()
stop() { trap - INT TERM; kill -TERM "${pids[@]}" 2>/dev/null || true; wait; exit 0; }
trap stop INT TERM
for ((i = 1; i <= count; i++)); do
  port=$((8000 + i))
  # A session of its own: Ctrl-C reaches this script alone, which stops each once.
  setsid "$root/build/release/tactus" serve "$model" --served-model-name smollm2-135m --port $port --threads "$threads" \
    --kv-cache-memory $((1024 / count))MiB "$@" 2> >(sed -u "s/^/[$port] /" >&2) &
  pids+=($!)
  replicas+="${replicas:+,}http://127.0.0.1:$port"
done
echo "fleet: $count replicas start; in another terminal: build/release/tactus route --replicas $replicas" >&2
status=0
for i in "${!pids[@]}"; do
  wait "${pids[$i]}" || { echo "fleet: the replica on port $((8001 + i)) has ended (status $?)" >&2; status=1; }
done
exit $status
