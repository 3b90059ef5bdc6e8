#!/bin/sh
# offline.sh FOLDER [IMAGE...]: write FOLDER/gpuplatform-offline.tar, from which machines with this distribution and processor are
# installed without any network. Inside, as a source for apt: the platform's package, and all packages of the distribution that the
# steps of production/steps.toml ask for, from a machine that has none on; session images, those named or all that are here; and the
# bill of materials of all packages, but of no image.
set -eu
cd "$(dirname "$0")/../.."
python=$PWD/.venv/bin/python
folder=$(realpath -m "$1")
shift
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM HUP
out=$work/gpuplatform-offline
chmod 755 "$work"
mkdir -p "$folder" "$out/partial"
docker save ${*:-$(docker images --format '{{.Repository}}:{{.Tag}}' 'gpuplatform/*')} >"$work/images.tar"
gzip -1 <"$work/images.tar" >"$out/images.tar.gz"
rm "$work/images.tar"
sh gpuplatform/bootstrap/deb.sh "$out"
: >"$work/installed"
apt-get -qy -o Dir::State::status="$work/installed" -o Dir::Cache::archives="$out" -o APT::Sandbox::User= -o Debug::NoLocking=true \
    --download-only install --no-install-recommends caddy debootstrap docker.io iptables openssl postgresql python3 redis-server
rm -rf "$out/partial" "$out/lock"
seconds=$(git log -1 --format=%ct)
cd "$out"
for file in *.deb; do
    dpkg-deb -f "$file"
    printf 'Filename: ./%s\nSize: %s\nSHA256: %s\n\n' "$file" "$(stat -c %s "$file")" "$(sha256sum "$file" | cut -d ' ' -f 1)"
done >Packages
dpkg-deb -x gpuplatform_*.deb "$work/root"
"$python" "$work/root/usr/lib/gpuplatform/gpuplatform/bootstrap/sbom.py" "$(dpkg-deb -f gpuplatform_*.deb Version)" "$seconds" \
    --packages Packages >sbom.cdx.json
tar -C "$work" --owner root --group root --mode u=rwX,go=rX -cf "$folder/gpuplatform-offline.tar" gpuplatform-offline
