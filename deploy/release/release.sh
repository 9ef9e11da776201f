#!/usr/bin/env bash
# Makes the files of a release: release.sh VERSION DIRECTORY PLATFORM..., for example
#
#   release.sh 0.2.0 bin/release linux/amd64 darwin/arm64
#
# For each platform there are an archive with the static binary and a bill of materials. Then come the
# chart, and the checksums of all. The same commit gives the same bytes, on any machine. GO and HELM
# name the programs to use.
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
go=${GO:-go} helm=${HELM:-$root/bin/helm}
version=${1:-} out=${2:-}
shift $(($# < 2 ? $# : 2))
if ! [[ $version =~ ^[0-9]+\.[0-9]+\.[0-9]+(-[0-9A-Za-z.-]+)?$ ]]; then
	echo "VERSION=$version is no version: give one as 0.2.0 or 0.2.0-rc.1, without a v" >&2
	exit 2
fi
commit=unknown epoch=0
if git -C "$root" rev-parse -q --verify HEAD >/dev/null 2>&1; then
	commit=$(git -C "$root" rev-parse HEAD) epoch=$(git -C "$root" log -1 --format=%ct)
	if [ -n "$(git -C "$root" status --porcelain)" ]; then
		echo "The working tree differs from its commit: commit or stash the changes first." >&2
		exit 1
	fi
fi

mkdir -p "$out"
out=$(cd "$out" && pwd)
rm -f "$out"/watchfan_* "$out"/watchfan-*.tgz "$out"/SHA256SUMS
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
(cd "$root/deploy/release" && "$go" build -o "$work/bill" .)

# pack FOLDER ARCHIVE packs all files of a folder, with nothing of this machine.
pack() {
	tar -C "$1" --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$epoch" --mode=u=rwX,go=rX -cf - . | gzip -n >"$2"
}

for platform in "$@"; do
	name=watchfan_${version}_${platform%/*}_${platform#*/}
	echo "$name"
	mkdir "$work/$name"
	cp "$root/LICENSE" "$root/README.md" "$root/CHANGELOG.md" "$work/$name"
	(cd "$root" && CGO_ENABLED=0 GOOS=${platform%/*} GOARCH=${platform#*/} "$go" build -trimpath -buildvcs=false \
		-ldflags "-s -w -buildid= -X main.release=$version -X main.gitCommit=$commit" -o "$work/$name/watchfan" .)
	"$work/bill" "$work/$name/watchfan" "$version" >"$out/$name.cdx.json"
	pack "$work/$name" "$out/$name.tar.gz"
done

# Helm puts the time into its archive, so its files are packed anew.
"$helm" package "$root/deploy/chart" --version "$version" --app-version "$version" -d "$work" >/dev/null
mkdir "$work/chart"
tar -C "$work/chart" -xzf "$work/watchfan-$version.tgz"
(cd "$work/chart" && tar --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$epoch" --mode=u=rwX,go=rX -cf - watchfan) |
	gzip -n >"$out/watchfan-$version.tgz"
echo "watchfan-$version.tgz"
(cd "$out" && sha256sum watchfan_* watchfan-*.tgz >SHA256SUMS)
echo SHA256SUMS
