#!/usr/bin/env bash
# Installs what is missing, builds, gets the default model and serves it: scripts/serve.sh [arguments of `tactus serve`].
# Then, in another terminal:
#   curl http://127.0.0.1:8000/v1/chat/completions -H 'Content-Type: application/json' \
#     -d '{"messages": [{"role": "user", "content": "What is the capital of France?"}]}'
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
"$root/scripts/setup.sh" build
# A first build makes what serves on this machine; `scripts/build.sh release programs` adds the other commands and kernels.
"$root/scripts/build.sh" --serving release tactus
"$root/scripts/get_llguidance.sh" > /dev/null || true   # it says what is missing then; all but structured output works

# A first argument that is no flag is the model; otherwise the default one is fetched.
if [ $# -eq 0 ] || [ "${1#-}" != "$1" ]; then
  case " $* " in
    *" --help "*|*" --print-config "*) ;;
    *)
      model=$("$root/scripts/get_default_model.sh")
      set -- "$model" "$@"   # by its place in the cache folder its name is smollm2-135m, where no other is given
      ;;
  esac
fi
exec "$root/build/release/tactus" serve "$@"
