#!/usr/bin/env bash
# Says which imports within proxy lead upwards. A package may import those of the wings in front of
# its own, and those in front of it in its wing, and no others.
# Only http1 knows fasthttp, and only proxy itself knows http1 and http2.
set -euo pipefail
cd "$(dirname "$0")"
wings=(base wire gate pass store operate)
declare -A rooms=(
	[base]="machine semaphore account option exposition files"
	[wire]="exchange websocket downstream http1 http2"
	[gate]="remember apistatus view request fairness auth audit admission consumers"
	[pass]="upstream passthrough fallback"
	[store]="seed reflector fresh lane watchers selfcheck registry observe sharedlist cached"
	[operate]="logging diagnose assess preview enrol plugin admin"
)
suites="suites" # what tests share, and tests of the whole

wrong=0
complain() { echo "proxy/$1: see proxy/rooms.sh" >&2; wrong=1; }

packages=$(go list -f '{{.ImportPath}}{{range .Imports}} {{.}}{{end}}' ./...)
declare -A imports
while read -r package list; do
	imports[$package]=$list
done <<<"$packages"
proxy=github.com/watchfan/watchfan/proxy

allowed=" "
check() { # a room by its folder, or . for package proxy
	local import package=$proxy/$1
	for import in ${imports[${package%/.}]}; do
		case $import in
		"$proxy"/*)
			[[ $allowed == *" ${import#"$proxy"/} "* ]] || complain "$1 imports $import, which is not below it" ;;
		github.com/valyala/fasthttp*)
			[[ $1 == wire/http1 ]] || complain "$1 imports fasthttp, which is wire/http1's alone" ;;
		esac
	done
}
for wing in "${wings[@]}"; do
	for room in ${rooms[$wing]}; do
		check "$wing/$room"
		allowed+="$wing/$room "
	done
	for dir in "$wing"/*/; do
		[[ " ${rooms[$wing]} " == *" $(basename "$dir") "* ]] || complain "$dir has no place"
	done
	[[ -e $wing/doc.go ]] || complain "$wing has no doc.go"
done
check .
for dir in */; do
	[[ " ${wings[*]} $suites " == *" ${dir%/} "* ]] || complain "$dir has no place"
done
exit $wrong
