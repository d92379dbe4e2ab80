#!/usr/bin/env bash
# Time from a fresh clone to the first answer, for a new user: clone into an empty folder, no compiler cache, no cached
# model, what scripts/serve.sh does step by step, one question. Prints one line of JSON: seconds and CPU seconds of each
#   step and in total, and the sources that took longest to compile. Installed packages stay installed.
#   bench/time_to_first_answer.sh [PORT]
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
port=${1:-8017}
work=$(mktemp -d)
server=
trap '[ -z "$server" ] || { kill "$server" 2>/dev/null; wait "$server" 2>/dev/null || true; }; rm -rf "$work"' EXIT
export CCACHE_DISABLE=1 TACTUS_CACHE_DIR=$work/cache
TIMEFORMAT='%R %U %S'
start=$(date +%s.%N)

step() {  # name, command: writes its time to $work/steps, its output to $work/log
  local name=$1
  shift
  printf '%s ' "$name" >> "$work/steps"
  if ! { time "$@" >> "$work/log" 2>&1; } 2>> "$work/steps"; then tail -20 "$work/log" >&2; exit 1; fi
}
step clone git clone --quiet "$root" "$work/tactus"
cd "$work/tactus"
step packages scripts/setup.sh build
step build scripts/build.sh --serving release tactus
step model scripts/get_default_model.sh
step grammars scripts/get_llguidance.sh

begun=$(date +%s.%N)
scripts/serve.sh --port "$port" >> "$work/log" 2>&1 &
server=$!
until curl -sf "http://127.0.0.1:$port/ready" > /dev/null; do
  kill -0 "$server" 2>/dev/null || { tail -20 "$work/log" >&2; exit 1; }
  sleep 0.1
done
ready=$(date +%s.%N)
answer=$(curl -s "http://127.0.0.1:$port/v1/chat/completions" -H 'Content-Type: application/json' \
  -d '{"messages": [{"role": "user", "content": "What is the capital of France?"}], "temperature": 0}')
end=$(date +%s.%N)
# The server's CPU time so far; the server ends below.
read -r -a stat < "/proc/$server/stat"
python3 - "$work" "$start" "$begun" "$ready" "$end" "$answer" "$(git rev-parse --short=12 HEAD)" "${stat[13]} ${stat[14]} ${stat[15]} ${stat[16]}" <<'EOF'
import json, os, pathlib, sys
work, answer, commit = pathlib.Path(sys.argv[1]), sys.argv[6], sys.argv[7]
start, begun, ready, end = map(float, sys.argv[2:6])
steps = {}
for line in (work / "steps").read_text().splitlines():
    name, wall, user, system = line.split()
    steps[name] = {"s": round(float(wall), 1), "cpu_s": round(float(user) + float(system), 1)}
ticks = os.sysconf("SC_CLK_TCK")
steps["start"] = {"s": round(ready - begun, 1), "cpu_s": round(sum(map(int, sys.argv[8].split())) / ticks, 1)}
objects = {}
for line in (work / "tactus/build/release/.ninja_log").read_text().splitlines()[1:]:
    begin, finish, _, name, _ = line.split("\t")
    objects[name.replace("CMakeFiles/", "")] = round((int(finish) - int(begin)) / 1000, 1)
longest = dict(sorted(objects.items(), key=lambda item: -item[1])[:12])
print(json.dumps({"commit": commit, "cores": os.cpu_count(), "clone_to_ready_s": round(ready - start, 1), "answer_s": round(end - ready, 2),
                  "cpu_s": round(sum(step["cpu_s"] for step in steps.values()), 1), "steps": steps, "compiled": len(objects),
                  "longest_s": longest, "answer": json.loads(answer)["choices"][0]["message"]["content"]}))
EOF
