# python.sh, to be sourced: which Python to make .venv with.

# Print the name of a Python 3.11 or newer that can make virtual environments; nothing where there is none.
# The distribution's comes first: it has the system's security updates, and is built with profile-guided optimization,
# which those compiled by version managers often are not; they take half as much CPU time again.
suitable_python() {
    for name in /usr/bin/python3 python3 python3.14 python3.13 python3.12 python3.11; do
        if "$name" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then
            printf '%s\n' "$name"
            return
        fi
    done
}
