#!/usr/bin/env bash
# Runs watchfan in front of a cluster until Ctrl-C. It takes the kubeconfig's current context only if
# that is a dev cluster, if CLUSTER=1 says so, or if the user agrees on the terminal. Otherwise, or
# with WATCHFAN_DEV=1, it starts a dev cluster, and Ctrl-C stops that too. With TRY=1 the dev cluster has
# the chart: see try.sh and TRY.md.
set -euo pipefail
set -m # children have process groups of their own: only this script gets Ctrl-C, and it stops them in order
cd "$(dirname "$0")/.."
insecure=${INSECURE_PORT:-8001} secure=${SECURE_PORT:-8443} admin=${ADMIN_PORT:-8002}

# A port that is taken has nothing to do with the cluster, and is told before anything is built.
for port in "INSECURE_PORT $insecure" "SECURE_PORT $secure" "ADMIN_PORT $admin"; do
	read -r name number <<<"$port"
	if (exec 3<>"/dev/tcp/127.0.0.1/$number") 2>/dev/null; then
		echo "Port $number is taken by another program, perhaps kubectl proxy or another watchfan."
		echo "Stop that, or choose another port: make $([ -z "${TRY:-}" ] && echo run || echo try) $name=$((number < 50000 ? number + 10000 : number - 10000))"
		exit 1
	fi
done

# In memory if possible, because etcd waits for its disk.
state=$(mktemp -d -p "$([ -w /dev/shm ] && echo /dev/shm || echo "${TMPDIR:-/tmp}")")
children=()
try= # not one of the environment: stop removes it

# again passes a second Ctrl-C on: watchfan does not wait for its clients then, and devcluster ends at once.
again() {
	for child in "${children[@]}"; do
		kill -- "-$child" 2>/dev/null || true
	done
}

# stop ends all children, the last first, and waits for each.
stop() {
	trap - EXIT
	trap again INT TERM HUP
	for ((i = ${#children[@]} - 1; i >= 0; i--)); do
		kill -- "-${children[i]}" 2>/dev/null || true
		while kill -0 "${children[i]}" 2>/dev/null; do
			wait "${children[i]}" 2>/dev/null || true # a trap ends it
		done
	done
	rm -rf "$state" ${try:+"$try"}
}
trap 'stop; exit 0' INT TERM HUP
trap stop EXIT

# build makes targets. It is a child, so that Ctrl-C ends it.
build() {
	make --silent --no-print-directory "$@" &
	children+=($!)
	wait "${children[-1]}" || { echo "The build failed."; exit 1; }
	unset 'children[-1]'
}

# ready reports whether watchfan answers ok on its admin port.
ready() {
	exec 3<>"/dev/tcp/127.0.0.1/$admin" || return 1
	printf 'GET /readyz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n' >&3
	local status
	read -r _ status _ <&3
	exec 3>&-
	[ "$status" = 200 ]
} 2>/dev/null

# serve starts watchfan with flags and waits until it is ready.
serve() {
	bin/watchfan "$@" &
	watchfan=$!
	children+=("$watchfan")
	for _ in $(seq 50); do
		kill -0 "$watchfan" 2>/dev/null || { echo "watchfan did not start: see its last line above."; exit 1; }
		ready && return
		sleep 0.2
	done
	echo "watchfan did not become ready: curl http://127.0.0.1:$admin/readyz?verbose says why."
	exit 1
}

# meanwhile shows what can be tried while kube-apiserver is built.
meanwhile() {
	cat <<TRY

etcd and kube-apiserver are built now. Meanwhile, try in another terminal, in $PWD:

  bin/watchfan help            the commands, and the flags with their defaults
  bin/watchfan help caching    one group of flags
  bin/watchfan config          the same as a configuration file
  bin/watchfan assess --help   how to ask whether watchfan would help a cluster of yours
  less README.md               when you need it, and what it promises

TRY
}

# choose sets cluster to configured or dev, and says why. The codes are those of watchfan check.
choose() {
	local found code=0
	cluster=dev
	[ "${WATCHFAN_DEV:-}" != 1 ] && [ -z "${TRY:-}" ] || return 0
	found=$(bin/watchfan check 2>&1) || code=$?
	case $code in
	0) ;;
	3)
		[ "${CLUSTER:-}" != 1 ] || { echo "CLUSTER=1, but $found"; exit 1; }
		echo "No cluster is configured: a dev cluster is started."
		return
		;;
	2)
		echo "$found"
		echo "Correct the kubeconfig, or run make run WATCHFAN_DEV=1 for a dev cluster."
		exit 1
		;;
	*)
		echo "The configured cluster does not answer:"
		echo "$found"
		[ "${CLUSTER:-}" != 1 ] || exit 1
		echo "A dev cluster is started instead."
		return
		;;
	esac
	echo "This cluster is configured:"
	echo "$found"
	if grep -q '^context: devcluster$' <<<"$found" || [ "${CLUSTER:-}" = 1 ]; then
		cluster=configured
	elif [ -t 0 ] && [ -t 1 ]; then
		echo "watchfan would serve it on this host's loopback, and every program on this host could use it there with the rights of this user."
		read -r -p "Serve it? y, or n for a dev cluster of its own [n] " answer
		[[ $answer != [yY]* ]] || cluster=configured
	else
		echo "It is left alone, and a dev cluster is started. CLUSTER=1 serves it, with the rights of this user."
	fi
}

echo "This runs watchfan in front of a cluster, until Ctrl-C."
if [ -x bin/watchfan ] && [ -x bin/devcluster ]; then
	echo "It starts in seconds. If sources have changed, they are built first."
else
	echo "The first run builds watchfan and, unless a cluster of yours is served, a real etcd and kube-apiserver:"
	echo "about 4 minutes on 2 cores. Later runs start in seconds."
fi
build bin/watchfan
choose
on_host=(--insecure-port "$insecure" --secure-port "$secure" --admin-port "$admin" --bind-address 127.0.0.1
	--cert-dir "$state/certificates")
kubectl=kubectl
flags=
if [ "$cluster" = dev ]; then
	[ -x bin/devcluster ] || meanwhile
	build bin/devcluster bin/kubectl ${TRY:+bin/helm bin/pod}
	echo "Starting etcd and kube-apiserver."
	bin/devcluster up --dir "$state/cluster" --unsafe-no-fsync ${TRY:+--service-accounts} &
	children+=($!)
	until [ -e "$state/cluster/ready" ]; do
		kill -0 "${children[0]}" 2>/dev/null || { echo "The dev cluster did not start."; exit 1; }
		sleep 0.2
	done
	kubectl=bin/kubectl
	flags=" --kubeconfig $state/cluster/kubeconfig"
	if [ -n "${TRY:-}" ]; then
		. deploy/try.sh
		start_release
	else
		serve "${on_host[@]}" --kubeconfig "$state/cluster/kubeconfig"
	fi
else
	serve "${on_host[@]}"
fi

if [ -n "${TRY:-}" ]; then
	cat <<TRY

watchfan is ready, and nobody uses it. deploy/TRY.md goes on in other terminals, in $PWD. Stop: Ctrl-C

TRY
	wait "$watchfan" || true
	echo "watchfan has ended, and its fall-back answers. Stop: Ctrl-C"
	wait
fi

cat <<TRY

watchfan is ready. Try, each in a terminal of its own, in $PWD:

  list    curl 'http://127.0.0.1:$insecure/api/v1/namespaces/default/configmaps?resourceVersion=0&pretty=false'
  watch   curl -N 'http://127.0.0.1:$insecure/api/v1/namespaces/default/configmaps?watch=1'
TRY
if [ "$cluster" = dev ]; then
	echo "  write   $kubectl$flags create configmap hello --from-literal=who=world"
fi
echo "  top     bin/watchfan top$([ "$admin" = 8002 ] || echo " --admin http://127.0.0.1:$admin")"
if [ "$cluster" != dev ]; then
	echo
	echo "Requests without a token have your rights, writes too: http://127.0.0.1:$insecure serves programs on this host only."
fi
cat <<TRY

Any client works: $kubectl --server http://127.0.0.1:$insecure get configmaps --watch
Status page: http://127.0.0.1:$admin/   Metrics: http://127.0.0.1:$admin/metrics   Stop: Ctrl-C

TRY
while kill -0 "$watchfan" 2>/dev/null; do
	wait "$watchfan" || { echo "watchfan has ended: see its last line above."; exit 1; }
done
