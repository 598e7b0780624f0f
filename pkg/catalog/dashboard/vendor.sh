#!/usr/bin/env bash
# Fetches the libraries of the dashboard anew, at pinned versions, into static/vendor. What changes on the way: Preact's
# hooks name the file that they import, because a browser does not know what "preact" is, and nothing points to source
# maps, which are not served. The test of this package has the sums of what must come out.
set -euo pipefail
cd "$(dirname "$0")/static/vendor"
PREACT=11.2.0
HTM=3.1.1

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
for package in preact@$PREACT htm@$HTM; do
  mkdir "$scratch/${package%@*}"
  tarball=$(cd "$scratch" && npm pack --silent "$package")
  tar -xzf "$scratch/$tarball" -C "$scratch/${package%@*}" --strip-components=1
done

take() { sed -e 's/from"preact"/from".\/preact.mjs"/' -e '/^\/\/# sourceMappingURL=/d' "$scratch/$1" > "$2"; }
take preact/dist/preact.mjs preact.mjs
take preact/hooks/dist/hooks.mjs hooks.mjs
take htm/dist/htm.mjs htm.mjs
cp "$scratch/preact/LICENSE" preact.LICENSE.txt
cp "$scratch/htm/LICENSE" htm.LICENSE.txt
printf 'preact %s (preact.mjs, hooks.mjs): MIT, see preact.LICENSE.txt\nhtm %s (htm.mjs): Apache-2.0, see htm.LICENSE.txt\n' \
  "$PREACT" "$HTM" > VERSIONS.txt
