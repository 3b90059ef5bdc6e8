#!/bin/sh
# step.sh LABEL COMMAND...: announce a step, run it quietly and say how long it took. Its output is shown if it fails.
# Steps may run at the same time, so each line names its step. Nothing may outlive a step: what it leaves behind holds the
# descriptors of make's job server, and make waits for their end.
label=$1
shift
started=$(date +%s)
log=$(mktemp)
printf '==> %s\n' "$label"
(
    trap 'kill -KILL "$!" 2>/dev/null; exit' TERM  # a child that has not become sleep yet would keep SIGTERM for later
    while sleep 10 </dev/null >/dev/null 2>&1 & wait "$!" && kill -0 $$ 2>/dev/null; do
        printf '    %s: still at it after %s s\n' "$label" $(($(date +%s) - started))
    done
) &
ticker=$!
trap 'kill "$ticker" 2>/dev/null; rm -f "$log"' EXIT
trap 'exit 130' INT TERM HUP
if "$@" >"$log" 2>&1; then
    printf '    %s: done in %s s\n' "$label" $(($(date +%s) - started))
else
    status=$?
    cat "$log" >&2
    printf '    FAILED after %s s: %s\n' $(($(date +%s) - started)) "$label" >&2
    exit "$status"
fi
