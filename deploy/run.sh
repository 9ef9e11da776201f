#!/usr/bin/env bash
# Runs watchfan in front of the current kubeconfig's cluster. If no cluster answers, or with
# WATCHFAN_DEV=1, it starts a dev cluster and runs watchfan in front of that. Ctrl-C stops both.
set -euo pipefail
set -m # children have process groups of their own: only this script gets Ctrl-C, and it stops them in order
cd "$(dirname "$0")/.."
insecure=${INSECURE_PORT:-8001} secure=${SECURE_PORT:-8443} admin=${ADMIN_PORT:-8002}
# In memory if possible, because etcd waits for its disk.
state=$(mktemp -d -p "$([ -w /dev/shm ] && echo /dev/shm || echo "${TMPDIR:-/tmp}")")
children=()

# stop_children ends all children, the last first, and ignores their exit codes.
stop_children() {
	for ((i = ${#children[@]} - 1; i >= 0; i--)); do
		kill "${children[i]}" 2>/dev/null && wait "${children[i]}" 2>/dev/null || true
	done
	children=()
}

stop() {
	trap - EXIT INT TERM
	stop_children
	rm -rf "$state"
}
trap 'stop; exit 0' INT TERM
trap stop EXIT

# ready reports whether watchfan answers ok on its admin port.
ready() {
	exec 3<>"/dev/tcp/127.0.0.1/$admin" || return 1
	printf 'GET /readyz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n' >&3
	local status
	read -r _ status _ <&3
	exec 3>&-
	[ "$status" = 200 ]
} 2>/dev/null

# serve starts watchfan with the given flags and waits until it is ready.
serve() {
	bin/watchfan --insecure-port "$insecure" --secure-port "$secure" --admin-port "$admin" \
		--bind-address 127.0.0.1 --cert-dir "$state/certificates" "$@" &
	watchfan=$!
	children+=("$watchfan")
	for _ in $(seq 50); do
		kill -0 "$watchfan" 2>/dev/null || { wait "$watchfan" || true; return 1; }
		ready && return
		sleep 0.2
	done
	return 1
}

kubectl=kubectl
flags=
if [ "${WATCHFAN_DEV:-}" = 1 ] || ! serve; then
	if [ "${WATCHFAN_DEV:-}" != 1 ]; then
		echo "No reachable cluster is configured. Starting a dev cluster instead."
		stop_children
	fi
	make --no-print-directory bin/devcluster bin/kubectl
	bin/devcluster up --dir "$state/cluster" --unsafe-no-fsync &
	children+=($!)
	until [ -e "$state/cluster/ready" ]; do
		kill -0 "${children[0]}" 2>/dev/null || { echo "The dev cluster did not start."; exit 1; }
		sleep 0.2
	done
	serve --kubeconfig "$state/cluster/kubeconfig" || { echo "watchfan did not become ready."; exit 1; }
	kubectl=bin/kubectl
	flags=" --kubeconfig $state/cluster/kubeconfig"
fi

cat <<TRY

watchfan is ready. Try, each in a terminal of its own, in $PWD:

  list    curl 'http://127.0.0.1:$insecure/api/v1/namespaces/default/configmaps?resourceVersion=0&pretty=false'
  watch   curl -N 'http://127.0.0.1:$insecure/api/v1/namespaces/default/configmaps?watch=1'
  write   $kubectl$flags create configmap hello --from-literal=who=world

Any client works: $kubectl --server http://127.0.0.1:$insecure get configmaps --watch
Metrics: http://127.0.0.1:$admin/metrics   Stop: Ctrl-C

TRY
wait "$watchfan"
