#!/usr/bin/env bash
# Builds a command with go build and shows how far it is: build.sh OUTPUT [FLAGS of go build] PACKAGE.
# It counts the packages that must be compiled, first and while they are. On a terminal it shows the
# progress in one line, and elsewhere it prints a line every 15 s.
set -euo pipefail
go=${GO:-go} output=$1
shift
name=bin/${output##*/}

command -v "$go" >/dev/null || { echo "There is no $go here: install Go, https://go.dev/doc/install" >&2; exit 1; }

# show draws a line of progress over the last one on a terminal, and elsewhere prints one every 15 s.
shown=$SECONDS
show() {
	if [ -t 1 ]; then
		printf '\r  %s: %s\e[K' "$name" "$1"
	elif [ $((SECONDS - shown)) -ge 15 ]; then
		shown=$SECONDS
		echo "  $name: $1"
	fi
}

# The plan names each package that must be compiled. Before it, modules are downloaded, a line for each.
plan=$(mktemp)
trap 'rm -f "$plan"' EXIT
"$go" build -n -o "$output" "$@" >"$plan" 2>&1 &
planning=$! modules=0
while kill -0 "$planning" 2>/dev/null; do
	sleep 0.2
	before=$modules
	modules=$(head -c 1000000 "$plan" | grep -c '^go: downloading ' || true)
	[ "$before" -gt 0 ] || [ "$modules" -eq 0 ] || echo "Downloading the modules of $name."
	[ "$modules" -eq 0 ] || show "$modules modules downloaded, $SECONDS s"
done
[ ! -t 1 ] || printf '\r\e[K'
wait "$planning" || { tail -n 20 "$plan" >&2; exit 1; }
total=$(grep -c '^# [^ ]*$' "$plan" || true) # each package is named once
per_minute=$((270 * $(getconf _NPROCESSORS_ONLN 2>/dev/null || echo 1))) # packages, on a common server
[ "$total" -lt 50 ] || echo "Building $name: $total packages to compile, about $(((total + per_minute - 1) / per_minute)) min."

built=0
progress() {
	local left=
	if [ "$built" -ge $((total - 2)) ]; then
		left=", linking"
	elif [ "$SECONDS" -ge 5 ]; then
		left=", about $(((total - built) * SECONDS / (built + 1) + 10)) s left"
	fi
	show "$built of $total packages, $SECONDS s$left"
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
