#!/usr/bin/env bash
# Builds the site of docs/ into build/site: scripts/site.sh [FOLDER]. A broken link, a page that docs/README.md does not
# list or a warning of Doxygen's is an error. The pages need no network; their search needs a web server, such as
#   python3 -m http.server --directory build/site
# scripts/site.sh --packages installs what the build needs, and no more.
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/setup.sh site
# The wheel of mermaid.min.js states a newer Python and packages that only its own tool needs.
scripts/venv.sh .venv-site tools/site/requirements.txt --no-deps --ignore-requires-python
[ "${1:-}" != --packages ] || exit 0
site=${1:-build/site}
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
{ cat tools/site/Doxyfile; echo "OUTPUT_DIRECTORY = $scratch"; } | doxygen -
TACTUS_SITE_API=$scratch/html NO_MKDOCS_2_WARNING=1 .venv-site/bin/mkdocs build --strict --site-dir "$site"
