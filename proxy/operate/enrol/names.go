package enrol

// Names of enrolment.
const (
	// Label of a namespace: "true" enrols its pods, and any other value only those that have it
	// themselves. Of a pod: "true" asks, and any other value refuses.
	Label = "watchfan.io/enrol"
	// EnrolledLabel is on each pod that the policy has changed.
	EnrolledLabel = "watchfan.io/enrolled"
	// BundleName is the name of the ConfigMap, in each namespace.
	BundleName = "watchfan-enrol"
	// PolicyName is the name of the MutatingAdmissionPolicy.
	PolicyName = "enrol.watchfan.io"
	// Host is how enrolled pods name their API server.
	Host = "kubernetes.default.svc"
)
