# client_wheels.sh: fetch the packages that the command line as one file has in it; those with compiled parts are refused.
set -eu
here=$(dirname "$0")
new=client/build/wheels.new # so that an interruption leaves what was there
rm -rf "$new"
sh "$here/step.sh" "Python packages of client/zipapp.txt" \
    .venv/bin/python -m pip download --disable-pip-version-check --no-input --quiet --no-deps --only-binary :all: \
    --platform any --implementation py --abi none --python-version 3.11 --dest "$new" -r client/zipapp.txt
rm -rf client/build/wheels
mv "$new" client/build/wheels
