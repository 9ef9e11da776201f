#!/usr/bin/env bash
# Builds a command with go build and shows how far it is: build.sh OUTPUT [FLAGS of go build] PACKAGE.
# It counts the packages that must be compiled, first and while they are. On a terminal it shows the
# progress in one line, and elsewhere it prints a line every 15 s.
set -euo pipefail
go=${GO:-go} output=$1
shift
name=bin/${output##*/}

# Modules are downloaded first, and each prints a line.
plan=$("$go" build -n -o "$output" "$@" 2>&1) || { echo "$plan" | tail -n 20 >&2; exit 1; }
total=$(grep -c '^# [^ ]*$' <<<"$plan" || true) # each package is named once
per_minute=$((270 * $(getconf _NPROCESSORS_ONLN 2>/dev/null || echo 1))) # packages, on a common server
[ "$total" -lt 50 ] || echo "Building $name: $total packages to compile, about $(((total + per_minute - 1) / per_minute)) min."

built=0 shown=$SECONDS
progress() {
	local left=
	if [ "$built" -ge $((total - 2)) ]; then
		left=", linking"
	elif [ "$SECONDS" -ge 5 ]; then
		left=", about $(((total - built) * SECONDS / (built + 1) + 10)) s left"
	fi
	if [ -t 1 ]; then
		printf '\r  %s: %d of %d packages, %d s%s\e[K' "$name" "$built" "$total" "$SECONDS" "$left"
	elif [ $((SECONDS - shown)) -ge 15 ]; then
		shown=$SECONDS
		echo "  $name: $built of $total packages, $SECONDS s$left"
	fi
}

exec 4< <("$go" build -v -o "$output" "$@" 2>&1 || echo "build.sh: failed")
failed=
while true; do
	if IFS= read -r -t 1 -u 4 line; then
		case $line in
		"build.sh: failed") failed=1 ;;
		*" "* | "#"* | "") echo "$line" >&2 ;; # not a package: a message of the compiler
		*) built=$((built + 1)) ;;
		esac
	elif [ $? -le 128 ]; then
		break # the build has ended
	fi
	progress
done
[ ! -t 1 ] || printf '\r\e[K'
[ -z "$failed" ] || exit 1
[ "$total" -lt 50 ] || echo "Built $name in $SECONDS s."
