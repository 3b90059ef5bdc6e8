#!/bin/sh
# venv.sh [REQUIREMENTS]: have .venv made by Python 3.11 or newer, with the packages that REQUIREMENTS pins.
# On Debian and Ubuntu as root a missing Python is installed; elsewhere the message says what to install.
set -eu
here=$(dirname "$0")
. "$here/python.sh"

apt_install() {
    sh "$here/step.sh" "Debian packages $*" sh -c '
        export DEBIAN_FRONTEND=noninteractive
        apt-get -q update && apt-get -qy -o DPkg::Lock::Timeout=300 install --no-install-recommends "$@"' apt "$@"
}

if [ ! -x .venv/bin/python ] || ! .venv/bin/python -c 'import pip' 2>/dev/null; then
    python=$(suitable_python)
    if [ -z "$python" ] && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
        apt_install python3 python3-venv || true
        python=$(suitable_python)
        if [ -z "$python" ]; then
            apt_install python3.11 python3.11-venv || true # Ubuntu 22.04 keeps it beside its 3.10
            python=$(suitable_python)
        fi
    fi
    if [ -z "$python" ]; then
        echo "GPU Platform needs Python 3.11 or newer with its venv module, and found none." >&2
        echo "On Debian 12, Ubuntu 24.04 or newer: sudo apt-get install python3 python3-venv" >&2
        echo "Found: $(python3 --version 2>&1 || true)" >&2
        exit 1
    fi
    sh "$here/step.sh" "Virtual environment .venv ($("$python" --version))" "$python" -m venv --clear .venv
fi
[ $# -gt 0 ] || exit 0
sh "$here/step.sh" "Python packages of $1 (a minute or two the first time)" \
    .venv/bin/python -m pip install --disable-pip-version-check --no-input -r "$1"
