#!/usr/bin/env bash
# Installs what is missing, builds and runs the fast tests. More, by name:
#   scripts/test.sh            build + every fast test (unit, property, conformance, golden, lint, install, end to end)
#   scripts/test.sh slow       the slow tier: default-model goldens, every real chat template, tokeniser comparisons
#   scripts/test.sh asan       the fast tests under AddressSanitizer and UBSan
#   scripts/test.sh tsan       what has threads under ThreadSanitizer
#   scripts/test.sh fuzz [S]   every fuzzer for S seconds (default 60)
#   scripts/test.sh mutants    how many small bugs the fast tests notice (tools/mutants; half an hour on two cores)
#   scripts/test.sh ci         what CI runs: fast, warnings as errors, and each fuzzer for 10 s
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
cd "$root"
mode=${1:-fast}

python_venv() {  # the official clients and references of the Python tests, pinned in tests/e2e/requirements.txt
  if ! cmp -s tests/e2e/requirements.txt .venv/requirements.installed 2>/dev/null; then
    echo "test: installing the Python test packages into .venv" >&2
    python3 -m venv .venv
    .venv/bin/pip install --quiet --disable-pip-version-check -r tests/e2e/requirements.txt
    cp tests/e2e/requirements.txt .venv/requirements.installed
  fi
}

default_model() {  # the tests that want it skip, with the reason, where it cannot be had
  if model=$(scripts/get_default_model.sh); then export TACTUS_DEFAULT_MODEL=$model; fi
}

fuzz() {
  scripts/setup.sh build fuzz
  scripts/build.sh fuzz
  for fuzzer in build/fuzz/tests/fuzz/*_fuzz; do
    [ -x "$fuzzer" ] && [ -f "$fuzzer" ] || continue
    name=$(basename "$fuzzer")
    corpus=build/fuzz/corpus/$name
    mkdir -p "$corpus"
    seeds=tests/fuzz/corpus/${name%_fuzz}
    [ -d "$seeds" ] || seeds=
    echo "fuzz: $name for $1 s" >&2
    if ! "$fuzzer" -max_total_time="$1" -timeout=10 -rss_limit_mb=4096 -print_final_stats=1 "$corpus" $seeds > "build/fuzz/$name.log" 2>&1; then
      tail -40 "build/fuzz/$name.log" >&2
      return 1
    fi
    grep -E 'stat::number_of_executed_units' "build/fuzz/$name.log" >&2
  done
}

run_ctest() {  # preset, further arguments
  local preset=$1
  shift
  ctest --test-dir "build/$preset" --output-on-failure --no-tests=error -j "$(nproc)" "$@"
}

case $mode in
  fast|ci)
    scripts/setup.sh build test
    preset=release
    [ "$mode" = ci ] && preset=ci
    scripts/build.sh "$preset"
    default_model
    python_venv
    if [ "$mode" = ci ]; then fuzz 10; fi
    run_ctest "$preset" -L fast
    ;;
  slow)
    scripts/setup.sh build test
    scripts/build.sh release
    scripts/build.sh release jinja_render tokenize_lines
    default_model
    python_venv
    if ! cmp -s tools/requirements.txt .venv-tools/requirements.installed 2>/dev/null; then
      echo "test: installing the reference implementations into .venv-tools" >&2
      python3 -m venv .venv-tools
      .venv-tools/bin/pip install --quiet --disable-pip-version-check -r tools/requirements.txt
      cp tools/requirements.txt .venv-tools/requirements.installed
    fi
    echo "test: every chat template of the llama-cpp-python source package against transformers" >&2
    .venv-tools/bin/python tools/check_templates.py --render build/release/tests/text/jinja_render
    echo "test: tokenisers against their references on random odd strings" >&2
    .venv-tools/bin/python tools/compare_tokenizers.py build/release/tests/text/tokenize_lines --count 10000 --seed 1 \
      ${TACTUS_DEFAULT_MODEL:+--gguf "$TACTUS_DEFAULT_MODEL"}
    run_ctest release -L slow
    ;;
  asan)
    scripts/setup.sh build test
    scripts/build.sh asan
    default_model
    ASAN_OPTIONS=detect_leaks=1:allocator_may_return_null=1 UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1 \
      run_ctest asan -L fast -LE python
    ;;
  tsan)
    scripts/setup.sh build test
    scripts/build.sh tsan
    TSAN_OPTIONS=halt_on_error=1 run_ctest tsan -L fast -LE python \
      -R '(kernels|exec|engine|http|serve|facade|obs)'
    ;;
  fuzz) fuzz "${2:-60}" ;;
  mutants)
    shift
    scripts/setup.sh build test
    default_model
    python_venv
    if ! cmp -s tools/mutants/requirements.txt .venv-mutants/requirements.installed 2>/dev/null; then
      echo "test: installing libclang into .venv-mutants" >&2
      python3 -m venv .venv-mutants
      .venv-mutants/bin/pip install --quiet --disable-pip-version-check -r tools/mutants/requirements.txt
      cp tools/mutants/requirements.txt .venv-mutants/requirements.installed
    fi
    .venv-mutants/bin/python tools/mutants/mutants.py "$@"
    ;;
  *) echo "test: unknown mode '$mode'; the head of scripts/test.sh lists them" >&2; exit 2 ;;
esac
