#!/bin/sh
# packages.sh: as root on Debian or Ubuntu, install the Docker Engine and the programs that build images, where missing.
# `manage.py up` needs them and would install them too; here it happens while pip and npm work. A failure is told there.
set -eu
here=$(dirname "$0")
PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin

[ "$(id -u)" = 0 ] && command -v apt-get >/dev/null || exit 0
url=${COMPUTE_DOCKER_URL:-$(sed -n 's/^COMPUTE_DOCKER_URL=//p' .env 2>/dev/null | tail -n 1)}
missing=''
case ${url:-unix:///var/run/docker.sock} in
    unix:///var/run/docker.sock) [ -S /var/run/docker.sock ] || command -v dockerd >/dev/null || missing="docker.io iptables" ;;
esac
command -v debootstrap >/dev/null || missing="$missing debootstrap"
[ -n "$missing" ] || exit 0
# shellcheck disable=SC2086 # a list of words
sh "$here/step.sh" "Debian packages $missing" sh -c '
    export DEBIAN_FRONTEND=noninteractive
    apt-get -q update && apt-get -qy -o DPkg::Lock::Timeout=300 install --no-install-recommends "$@"' apt $missing || true
