#!/usr/bin/env bash
# Runs a command, and says how long that usually takes, and each half minute for how long it has run.
# What go test says of failed tests is printed once more at the end, where it is found:
# progress.sh NAME USUALLY COMMAND...
set -uo pipefail
name=$1 usually=$2
shift 2
echo "$name: usually $usually on 2 cores" >&2
(
	while sleep 30 >/dev/null 2>&1; do
		echo "$name: $((SECONDS / 60))m$((SECONDS % 60))s, usually $usually on 2 cores" >&2
	done
) &
log=$(mktemp)
trap 'kill $! 2>/dev/null; rm -f "$log"' EXIT
"$@" 2>&1 | tee "$log"
status=${PIPESTATUS[0]}
if [ "$status" != 0 ]; then
	echo "$name failed:"
	awk '/^ *--- FAIL/ { failed = 1; print; next }
		/^[IWE][0-9][0-9][0-9][0-9] / { next } # lines of klog
		/^panic: |^WARNING: DATA RACE/ { failed = 1 }
		/^(---|===|ok|FAIL|PASS)/ { failed = 0 }
		failed && !/^time=/' "$log" | tail -n 200
fi
exit "$status"
