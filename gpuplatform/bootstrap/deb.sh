#!/bin/sh
# deb.sh FOLDER: build the Debian package into FOLDER, for this machine's distribution and processor. A server with it needs
# neither git nor npm nor a compiler nor a network: its Python packages, front-end packages and compiled programs are inside.
# `make deb` runs it; everything comes by the targets of the Makefile, so the package has what `make ready` sets up.
# Two builds of a commit are equal to the byte: times are those of the commit, and no name of the folder of the build is inside.
set -eu
cd "$(dirname "$0")/../.."
folder=$(realpath -m "$1")
python=$PWD/.venv/bin/python
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
export SOURCE_DATE_EPOCH PYTHONHASHSEED=0
version=$(TZ=UTC git log -1 --date=format-local:%Y%m%d.%H%M%S --format=%cd+%h)
architecture=$(dpkg --print-architecture)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM HUP
root=$work/root lib=$work/root/usr/lib/gpuplatform
chmod 755 "$work"
mkdir -p "$lib" "$root/DEBIAN" "$root/usr/sbin" "$root/usr/share/doc/gpuplatform" "$folder"

git ls-files -z -- ':!:**/tests/**' ':!:tests' ':!:bench' ':!:conftest.py' ':!:.ci' ':!:requirements-dev.txt' |
    tar --null --files-from - --owner root --group root -c | tar -C "$lib" --no-same-owner -x
make -s -C "$lib" .venv/stamp-requirements client/build/wheels/stamp node_modules/stamp fgpu

cd "$lib"
rm -rf .venv/node .venv/lib/python3*/site-packages/pip* .venv/lib/python3*/site-packages/ziglang* # the compiler
find .venv/bin ! -type d \( ! -name 'python*' -o -name python-zig \) -delete # scripts that name the folder of the build
sed -i '/^command = /d' .venv/pyvenv.cfg
sed -i '/^\.\.\/\.\.\/\.\.\/bin\//d' .venv/lib/python3*/site-packages/*.dist-info/RECORD
find . -name __pycache__ -prune -exec rm -r {} +
# Nobody who runs it may write here, so modules are compiled now. By their content: times differ where they are unpacked.
/usr/bin/python3 -m compileall -q -j 0 --invalidation-mode unchecked-hash -s "$root" . >/dev/null || true
ln -s /etc/gpuplatform/gpuplatform.env .env
ln -s /etc/gpuplatform/host.env host.env

"$python" "$lib/gpuplatform/bootstrap/sbom.py" "$version" "$SOURCE_DATE_EPOCH" >"$root/usr/share/doc/gpuplatform/sbom.cdx.json"
# In KiB, of each file by itself: what a file system takes for them differs.
size=$(find "$root" \( -type f -printf '%s\n' -o -printf '1\n' \) | awk '{ kib += int(($1 + 1023) / 1024) } END { print kib }')
minor=$(.venv/bin/python -c 'import sys; print(sys.version_info.minor)')
sed -e "s/@VERSION@/$version/; s/@ARCHITECTURE@/$architecture/; s/@SIZE@/$size/" \
    -e "s/@PYTHON@/python3 (>= 3.$minor), python3 (<< 3.$((minor + 1)))/" deploy/debian/control >"$root/DEBIAN/control"
install -m 755 deploy/debian/prerm deploy/debian/postrm "$root/DEBIAN/"
install -m 755 deploy/debian/gpuplatform-manage "$root/usr/sbin/"
chmod -R u=rwX,go=rX "$root"
dpkg-deb --root-owner-group -Zzstd -z9 --build "$root" "$folder"
