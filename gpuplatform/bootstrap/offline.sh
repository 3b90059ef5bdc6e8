#!/bin/sh
# offline.sh FOLDER [IMAGE...]: write FOLDER/gpuplatform-offline.tar, from which machines with this distribution and processor are
# installed without any network. Inside, as a source for apt: the platform's package, and all packages of the distribution that the
# steps of production/steps.toml ask for, from a machine that has none on; and session images, those named or all that are here.
set -eu
cd "$(dirname "$0")/../.."
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
cd "$out"
for file in *.deb; do
    dpkg-deb -f "$file"
    printf 'Filename: ./%s\nSize: %s\nSHA256: %s\n\n' "$file" "$(stat -c %s "$file")" "$(sha256sum "$file" | cut -d ' ' -f 1)"
done >Packages
tar -C "$work" --owner root --group root --mode u=rwX,go=rX -cf "$folder/gpuplatform-offline.tar" gpuplatform-offline
