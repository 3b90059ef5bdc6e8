#!/bin/sh
# tests.sh short|long|images: run one tier of the tests. Short is everything but the campaigns, which are marked `long`,
# and building all images from nothing, which is marked `rebuild`: meanwhile no other test could use them.
# Both parts run; the exit status is 1 if either failed.
cd "$(dirname "$0")/../.." || exit 1
failed=0
unset PYTHONDONTWRITEBYTECODE # where it is set, each of the many processes that tests start compiles the modules anew

# On two cores: half of the time goes by in waiting for containers and browsers; campaigns run whole platforms.
processes=4
if [ "$1" = images ]; then
    selected=rebuild
elif [ "$1" = long ]; then
    selected="long and not rebuild"
    processes=3
else
    selected="not long and not rebuild"
    sh gpuplatform/bootstrap/step.sh "Tests of the JavaScript" sh gpuplatform/bootstrap/with_node.sh --test tests/js/*.test.js ||
        failed=1
fi
.venv/bin/python -m pytest --numprocesses "$processes" --dist loadfile --no-loadscope-reorder -m "$selected" --durations 25 || failed=1
exit $failed
