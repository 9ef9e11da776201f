# Part of run.sh, for make try: installs the chart in the dev cluster, and runs on this host what its pods
# would run, with their arguments, accounts and files. bin/try has a kubeconfig, the programs and the files.
try=$PWD/bin/try
export KUBECONFIG=$try/kubeconfig

# account writes the kubeconfig of a service account of the release.
account() {
	local token
	token=$(bin/kubectl --namespace watchfan create token "$1" --duration 24h)
	sed "s/token: .*/token: $token/" "$KUBECONFIG" >"$try/$1.kubeconfig"
}

# arguments sets args to those of a workload's container, with the files of this host.
arguments() {
	readarray -t args < <(bin/kubectl --namespace watchfan get "$1" \
		--output jsonpath='{range .spec.template.spec.containers[0].args[*]}{@}{"\n"}{end}')
	args=("${args[@]//\/etc\/watchfan/$try}")
}

# write_config writes the configuration file, as a kubelet does.
write_config() {
	bin/kubectl --namespace watchfan get configmap watchfan --output 'jsonpath={.data.config\.yaml}' >"$try/config/new"
	mv "$try/config/new" "$try/config/config.yaml"
}

# follow_config writes it whenever it changes. kube-apiserver ends a watch within an hour, and kubectl with it.
follow_config() {
	while true; do
		bin/kubectl --namespace watchfan get configmap watchfan --watch --output name |
			while read -r _; do write_config; done || sleep 1
	done
}

# background runs a command until the end, with its output in a log.
background() {
	"${@:2}" >"$try/$1.log" 2>&1 &
	children+=($!)
}

install_chart() {
	rm -rf "$try"
	mkdir -m 700 "$try"
	mkdir "$try/tls" "$try/config"
	cp "$state/cluster/kubeconfig" "$KUBECONFIG"
	ln -s ../kubectl ../helm ../pod ../watchfan "$try"
	ln -s ../watchfan "$try/kubectl-watchfan"
	bin/helm install watchfan deploy/chart --namespace watchfan --create-namespace --set enrol.enabled=true --set replicas=1 \
		--set 'cache.resident={configmaps}' --set 'clients[0].mode=observe' \
		--set "service.annotations.devcluster=127.0.0.1:$secure" >"$try/helm.log"
	local file
	for file in tls.crt tls.key ca.crt; do
		bin/kubectl --namespace watchfan get secret watchfan-tls --output "jsonpath={.data.${file/./\\.}}" | base64 -d >"$try/tls/$file"
	done
	for name in watchfan watchfan-keeper watchfan-fallback; do
		account $name
	done
	# The right to read ConfigMaps, for the pods that are tried.
	bin/kubectl create clusterrole try --verb list,watch --resource configmaps >"$try/rights.log"
	bin/kubectl create clusterrolebinding try --clusterrole try --group system:serviceaccounts >>"$try/rights.log"
}

# start_release runs the tier, its fall-back and the keeper.
start_release() {
	install_chart
	write_config
	background config follow_config
	arguments deployment/watchfan
	serve --kubeconfig "$try/watchfan.kubeconfig" "${args[@]}" --permit-port-sharing \
		--secure-port "$secure" --admin-port "$admin" --bind-address 127.0.0.1 --admin-bind-address 127.0.0.1 \
		--shutdown-delay-duration 0s --drain-duration 0s
	echo "$watchfan" >"$try/watchfan.pid"
	background fallback bin/watchfan --kubeconfig "$try/watchfan-fallback.kubeconfig" \
		--fallback-for "http://127.0.0.1:$admin/readyz" --secure-port "$secure" --bind-address 127.0.0.1 --insecure-port 0 \
		--admin-port 0 --tls-cert-file "$try/tls/tls.crt" --tls-private-key-file "$try/tls/tls.key"
	arguments deployment/watchfan-keeper
	background keeper bin/watchfan "${args[@]}" --kubeconfig "$try/watchfan-keeper.kubeconfig"
}
