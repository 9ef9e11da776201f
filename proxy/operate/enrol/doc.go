// Package enrol lets pods that exist use watchfan, without a change of their configuration: it has the
// names of enrolment, the keeper of its bundles, and what kubectl watchfan does to workloads.
//
//	names.go    labels and names, which the chart has too (deploy/chart/templates/enrol.yaml)
//	bundle.go   what a namespace is given: whom to trust, and where the tier is
//	keeper.go   keeps the bundle in namespaces
//	command.go  the command watchfan keeper
//	workload.go enrols namespaces and workloads, by the label or by all that the policy would change
//	list.go     which workloads are enrolled
//
// # Parts
//
//	label on a namespace or pod ──▶ MutatingAdmissionPolicy ──▶ a pod that asks watchfan
//	             │                          ▲ parameter              │ mounts
//	             └────▶ keeper ──────▶ ConfigMap watchfan-enrol ◀─────┘
//
// A namespace may also have the label watchfan.io/view, which names the view in which its clients read, for a
// rule of clients with viewOf: namespace (package cached).
//
// The policy runs in kube-apiserver, so no webhook can be down. It sets KUBERNETES_SERVICE_HOST to
// kubernetes.default.svc, a host alias that leads from this name to the tier's Service, and the
// bundle in the place of kube-apiserver's CA. Both kube-apiserver's certificate and the tier's are
// valid for this name, and the bundle has both authorities, so either can answer the pod.
//
// # Which namespaces have a bundle
//
// Those with the label watchfan.io/enrol, whatever its value. Administrators label namespaces, so they
// decide where pods may enrol themselves, and other namespaces get nothing.
//
// A bundle is never deleted, because pods mount it: a pod whose ConfigMap is gone does not start again
// on its node. Without its namespace's label nothing reads it but such pods, and the keeper renews it
// as long as it exists. It is 2 KB. It goes with the namespace, or by hand.
//
// The keeper sees no pods and no other ConfigMap: kube-apiserver authorizes a list and a watch with
// the field selector metadata.name, and the creation by a server-side apply, by this name.
package enrol
