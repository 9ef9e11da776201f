#!/usr/bin/env bash
# Says which imports within proxy lead upwards. Each package may import those in front of it, and no others.
# Only http1 knows fasthttp, and only proxy itself knows http1 and http2.
set -euo pipefail
cd "$(dirname "$0")"
rooms=(semaphore account option exposition exchange files remember websocket downstream apistatus view request fairness auth audit upstream seed passthrough reflector lane selfcheck registry watchers diagnose assess plugin cached admin http1 http2)

allowed=" " wrong=0
for room in "${rooms[@]}" .; do
	for import in $(go list -f '{{join .Imports "\n"}}' "./$room" | sed -n 's|^github.com/watchfan/watchfan/proxy/||p'); do
		if [[ $allowed != *" $import "* ]]; then
			echo "proxy/$room imports proxy/$import, which is not below it: see proxy/rooms.sh" >&2
			wrong=1
		fi
	done
	if [[ $room != http1 ]] && go list -f '{{join .Imports "\n"}}' "./$room" | grep -q '^github.com/valyala/fasthttp'; then
		echo "proxy/$room imports fasthttp, which is proxy/http1's alone" >&2
		wrong=1
	fi
	allowed+="$room "
done
known=" ${rooms[*]} proxytest e2e chaos attack statustest "
for dir in */; do
	[[ $known == *" ${dir%/} "* ]] || { echo "proxy/${dir%/} has no place in proxy/rooms.sh" >&2; wrong=1; }
done
exit $wrong
