#!/bin/sh
# machine.sh: before anything is installed, say all that this machine lacks and that cannot be installed by this user.
# Prints nothing where nothing is in the way. As root on Debian and Ubuntu, later steps install what is missing.
set -eu
here=$(dirname "$0")
. "$here/python.sh"
PATH=$PATH:/usr/sbin:/sbin
missing='' packages='' advice=''

lacks() { # WHAT [PACKAGES]
    missing="$missing
  $1"
    packages="$packages${2:+ $2}"
}

advise() {
    advice="$advice
  $1"
}

refuse() {
    echo "GPU Platform runs on Linux, on Debian, Ubuntu, or one of them under WSL 2. $1" >&2
    exit 1
}

setting() { # NAME: as it is in the environment, else in .env
    eval "value=\${$1:-}"
    [ -n "$value" ] || [ ! -r .env ] || value=$(sed -n "s/^$1=//p" .env | tail -n 1)
    printf '%s' "$value"
}

check_engine() {
    url=$(setting COMPUTE_DOCKER_URL)
    socket=${url:-unix:///var/run/docker.sock}
    case $socket in unix://*) socket=${socket#unix://} ;; *) return ;; esac
    if [ ! -e "$socket" ]; then
        if command -v dockerd >/dev/null; then
            lacks "a Docker Engine that runs: $socket is not there"
            advise "sudo service docker start"
        else
            lacks "a Docker Engine" docker.io
        fi
    elif [ -r "$socket" ] && [ -w "$socket" ]; then
        return
    else
        lacks "the right to use the Docker Engine at $socket"
    fi
    group=$(stat -c %G "$socket" 2>/dev/null || echo docker)
    case " $(id -nG) " in *" $group "*) return ;; esac
    if getent group "$group" | cut -d: -f4 | tr , '\n' | grep -qx "$(id -un)"; then
        advise "sign in to this machine again: you are in the group $group, but were not when you signed in"
    else
        advise "sudo usermod -aG $group $(id -un), and sign in to this machine again"
    fi
}

[ "$(uname -s)" = Linux ] || refuse "This is $(uname -s)."
case $(uname -r) in *-Microsoft) refuse "This is WSL 1; 'wsl --set-version <distribution> 2' turns it into WSL 2." ;; esac
case $(uname -m) in x86_64 | aarch64) ;; *) refuse "It needs an x86-64 or arm64 machine; this is $(uname -m)." ;; esac

system=$(sed -n 's/^PRETTY_NAME=//p' /etc/os-release 2>/dev/null | tr -d '"')
apt=$(command -v apt-get || true)
[ "$(id -u)" != 0 ] || [ -z "$apt" ] || exit 0

python=python3
case $system in "Ubuntu 22.04"*) python=python3.11 ;; esac # beside its 3.10
[ -x .venv/bin/python ] || [ -n "$(suitable_python)" ] || lacks "Python 3.11 or newer, with venv" "$python $python-venv"
command -v iptables >/dev/null || lacks iptables iptables
[ "$(id -u)" = 0 ] || [ -x /usr/bin/nsenter ] || lacks nsenter util-linux
check_engine

if [ -n "$missing" ]; then
    [ -z "$apt" ] || [ -z "$packages" ] || advice="
  sudo apt-get install$packages$advice"
    {
        echo "GPU Platform cannot start here yet. Missing, and not to be installed by $(id -un):$missing"
        [ -n "$apt" ] || printf '%s\n' "" "This is ${system:-an unknown system}, neither Debian nor Ubuntu: install these with its package manager."
        [ -z "$advice" ] || printf '%s\n' "" "To be done once, by whoever administrates this machine:$advice"
        printf '%s\n' "" "Then run 'make up' again. Or run it as root, on Debian and Ubuntu: it installs all of this."
    } >&2
    exit 1
fi
[ -n "$apt" ] || echo "NOTE: this is ${system:-an unknown system}, neither Debian nor Ubuntu, and untried; nothing is installed for you."
