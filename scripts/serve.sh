#!/usr/bin/env bash
# Installs missing packages, builds, fetches the default model and serves it: scripts/serve.sh [arguments of `tactus
# serve`]. Then, in another terminal:
#   curl http://127.0.0.1:8000/v1/chat/completions -H 'Content-Type: application/json' \
#     -d '{"messages": [{"role": "user", "content": "What is the capital of France?"}]}'
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
"$root/scripts/setup.sh" build
# A first build contains only the server for this machine; `scripts/build.sh release programs` adds the other commands
# and kernels.
"$root/scripts/build.sh" --serving release tactus
# The page's simulations and `tactus top` need tactus-tools. It is built while the server runs, and only on cores that
# are idle; the log is build/release/tools.log. Ctrl-C ends that build too, and the next start goes on with it.
( idle=(nice -n 19)
  ! chrt --idle 0 true 2> /dev/null || idle=(chrt --idle 0)
  "${idle[@]}" "$root/scripts/build.sh" --serving release tactus-tools < /dev/null > "$root/build/release/tools.log" 2>&1 & )
"$root/scripts/get_llguidance.sh" > /dev/null || true   # optional: prints the reason on failure; only structured output needs it

# A first argument that is not a flag is the model; otherwise the default model is fetched.
if [ $# -eq 0 ] || [ "${1#-}" != "$1" ]; then
  case " $* " in
    *" --help "*|*" --help-all "*|*" --print-config "*) ;;
    *)
      model=$("$root/scripts/get_default_model.sh")
      set -- "$model" "$@"   # named smollm2-135m after its cache folder, unless another name is given
      ;;
  esac
fi
exec "$root/build/release/tactus" serve "$@"
