#!/usr/bin/env bash
# Time from a fresh clone to the first answer, as a new user has it: clone into an empty folder, no compiler cache, no cached
# model, scripts/serve.sh, one question. Prints one line of JSON. Packages that are installed already stay installed.
#   bench/time_to_first_answer.sh [PORT]
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
port=${1:-8017}
work=$(mktemp -d)
trap 'kill "$server" 2>/dev/null || true; wait "$server" 2>/dev/null || true; rm -rf "$work"' EXIT
server=
start=$(date +%s.%N)
git clone --quiet "$root" "$work/tactus"
cd "$work/tactus"
CCACHE_DISABLE=1 TACTUS_CACHE_DIR=$work/cache scripts/serve.sh --port "$port" > "$work/serve.out" 2> "$work/serve.err" &
server=$!
until curl -sf "http://127.0.0.1:$port/ready" > /dev/null; do
  kill -0 "$server" 2>/dev/null || { tail -20 "$work/serve.err" >&2; exit 1; }
  sleep 0.5
done
ready=$(date +%s.%N)
answer=$(curl -s "http://127.0.0.1:$port/v1/chat/completions" -H 'Content-Type: application/json' \
  -d '{"messages": [{"role": "user", "content": "What is the capital of France?"}], "temperature": 0}')
end=$(date +%s.%N)
python3 - "$start" "$ready" "$end" "$answer" "$(git rev-parse --short=12 HEAD)" <<'EOF'
import json, os, sys
start, ready, end = map(float, sys.argv[1:4])
print(json.dumps({"commit": sys.argv[5], "cores": os.cpu_count(), "clone_to_ready_s": round(ready - start, 1), "answer_s": round(end - ready, 2),
                  "answer": json.loads(sys.argv[4])["choices"][0]["message"]["content"]}))
EOF
