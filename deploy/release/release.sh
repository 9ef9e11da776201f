#!/usr/bin/env bash
# Makes the files of a release: release.sh VERSION DIRECTORY PLATFORM..., for example
#
#   release.sh 0.2.0 bin/release linux/amd64 darwin/arm64
#
# For each platform there are an archive with the static binary and a bill of materials. Then come the
# chart, the provenance, and the checksums of all. The same commit gives the same bytes, in any folder of
# any machine: the version of Go is fixed here, and Go fetches it where it is not installed. GO and HELM
# name the programs to use. GNU tar packs.
set -euo pipefail
toolchain=go1.26.8
root=$(cd "$(dirname "$0")/../.." && pwd)
go=${GO:-go} helm=${HELM:-$root/bin/helm}
version=${1:-} out=${2:-}
shift $(($# < 2 ? $# : 2))
fail() {
	echo "$2" >&2
	exit "$1"
}
[[ $version =~ ^[0-9]+\.[0-9]+\.[0-9]+(-[0-9A-Za-z.-]+)?$ ]] ||
	fail 2 "VERSION=$version is no version: give one as 0.2.0 or 0.2.0-rc.1, without a v"
grep -qxF "## ${version%%-*}" "$root/CHANGELOG.md" ||
	fail 1 "CHANGELOG.md has no section \"## ${version%%-*}\": say there what is new."
commit=$(git -C "$root" rev-parse -q --verify HEAD 2>/dev/null) ||
	fail 1 "This is no checkout of git: a release names its commit."
[ -z "$(git -C "$root" status --porcelain)" ] ||
	fail 1 "The working tree differs from its commit: commit or stash the changes first."
epoch=$(git -C "$root" log -1 --format=%ct)

# What the environment, or `go env -w`, could change in a binary. GOTOOLCHAIN comes last: without it any
# Go may answer.
unset GOEXPERIMENT GODEBUG
export LC_ALL=C GOFLAGS=-trimpath GOWORK=off CGO_ENABLED=0 GOAMD64=v1 GOARM64=v8.0 GOFIPS140=off GOTOOLCHAIN=$toolchain

mkdir -p "$out"
out=$(cd "$out" && pwd)
rm -f "$out"/watchfan_* "$out"/watchfan-*.tgz* "$out"/SHA256SUMS*
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
(cd "$root/deploy/release" && "$go" build -o "$work/papers" .)

# pack FOLDER ARCHIVE packs all files of a folder, with nothing of this machine.
pack() {
	(cd "$1" && tar --sort=name --format=gnu --owner=0 --group=0 --numeric-owner --mtime="@$epoch" \
		--mode=u=rwX,go=rX -cf - *) | gzip -n >"$2"
}

for platform in "$@"; do
	name=watchfan_${version}_${platform%/*}_${platform#*/}
	echo "$name"
	mkdir "$work/$name"
	cp "$root/LICENSE" "$root/README.md" "$root/CHANGELOG.md" "$work/$name"
	(cd "$root" && GOOS=${platform%/*} GOARCH=${platform#*/} "$go" build -buildvcs=false \
		-ldflags "-s -w -buildid= -X main.release=$version -X main.gitCommit=$commit" -o "$work/$name/watchfan" .)
	"$work/papers" bill "$version" "$work/$name/watchfan" >"$out/$name.cdx.json"
	"$work/papers" licences "$work/$name/watchfan" >"$work/$name/LICENSES.txt"
	pack "$work/$name" "$out/$name.tar.gz"
done

# Helm puts the time into its archive, so its files are packed anew.
"$helm" package "$root/deploy/chart" --version "$version" --app-version "$version" -d "$work" >/dev/null
mkdir "$work/chart"
tar -C "$work/chart" -xzf "$work/watchfan-$version.tgz"
pack "$work/chart" "$out/watchfan-$version.tgz"
echo "watchfan-$version.tgz"

cd "$out"
"$work/papers" provenance "$version" "$commit" "$work"/watchfan_*/watchfan -- watchfan_* watchfan-* >"$work/provenance"
mv "$work/provenance" "watchfan_$version.intoto.json"
echo "watchfan_$version.intoto.json"
sha256sum watchfan_* watchfan-* >SHA256SUMS
echo SHA256SUMS
