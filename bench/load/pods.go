package load

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"path"
	"regexp"
	"strings"
	"time"
)

// podNamespaces is the number of namespaces that share the pods.
const podNamespaces = 50

// A Pod is a running pod with the fields that a Deployment, the scheduler and a kubelet set, 3.7 KB
// of JSON in a list. The values that differ between real pods differ here too: the lists compress
// as well as real ones.
type Pod struct{ namespace, name, Json string }

const podForm = `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"$NAME","namespace":"$NAMESPACE",` +
	`"labels":{"app":"$APP","pod-template-hash":"$HASH","team":"$NAMESPACE"},` +
	`"annotations":{"checksum/config":"$CHECKSUM"},` +
	`"ownerReferences":[{"apiVersion":"apps/v1","kind":"ReplicaSet","name":"$APP-$HASH",` +
	`"uid":"$OWNER","controller":true,"blockOwnerDeletion":true}]},` +
	`"spec":{"serviceAccountName":"$APP","nodeName":"$NODE",` +
	`"containers":[{"name":"$APP","image":"registry.example.com/$NAMESPACE/$APP:$VERSION",` +
	`"env":[{"name":"LOG_LEVEL","value":"info"}],"resources":{"requests":{"cpu":"100m","memory":"256Mi"}}}]},` +
	`"status":{"phase":"Running","hostIP":"10.0.$A.$B","podIP":"10.2$A.$B.$C","startTime":"$TIME","conditions":[` +
	`{"type":"Ready","status":"True","lastProbeTime":null,"lastTransitionTime":"$TIME"},` +
	`{"type":"PodScheduled","status":"True","lastProbeTime":null,"lastTransitionTime":"$TIME"}],` +
	`"containerStatuses":[{"name":"$APP","state":{"running":{"startedAt":"$TIME"}},"lastState":{},` +
	`"ready":true,"started":true,"restartCount":0,` +
	`"image":"registry.example.com/$NAMESPACE/$APP:$VERSION",` +
	`"imageID":"registry.example.com/$NAMESPACE/$APP@sha256:$DIGEST",` +
	`"containerID":"containerd://$CONTAINER"}]}}`

// Managers of a pod's fields. A Deployment's pods have these two: kube-apiserver lists the fields of
// each in metadata.managedFields.
const (
	specManager   = "kube-controller-manager"
	statusManager = "kubelet"
)

// NewPod returns the i-th pod, the same in every run. Each application has ten replicas.
func NewPod(i int) Pod {
	random := rand.NewChaCha8(seed(i))
	app := rand.NewChaCha8(seed(-1 - i/10)) // for the values that replicas share
	appName, hash := fmt.Sprintf("service-%03d", i/10), hex(app, 5)
	p := Pod{namespace: podNamespace(i / 10 % podNamespaces)}
	p.name = fmt.Sprintf("%s-%s-%s%d", appName, hash, hex(random, 2), i%10)
	p.Json = strings.NewReplacer(
		"$NAMESPACE", p.namespace, "$NAME", p.name, "$APP", appName, "$HASH", hash,
		"$VERSION", fmt.Sprintf("v1.%d.%d", app.Uint64()%40, app.Uint64()%10),
		"$CHECKSUM", hex(app, 32), "$DIGEST", hex(app, 32),
		"$OWNER", fmt.Sprintf("%s-%s-4%s-8%s-%s", hex(app, 4), hex(app, 2), hex(app, 2)[1:], hex(app, 2)[1:], hex(app, 6)),
		"$NODE", PodNode(int(random.Uint64()%100)), "$CONTAINER", hex(random, 32),
		"$A", fmt.Sprint(random.Uint64()%50), "$B", fmt.Sprint(random.Uint64()%250), "$C", fmt.Sprint(random.Uint64()%250),
		"$TIME", time.Unix(1_790_000_000+int64(random.Uint64()%1_000_000), 0).UTC().Format(time.RFC3339),
	).Replace(podForm)
	return p
}

func podNamespace(i int) string { return fmt.Sprintf("team-%02d", i) }

func (p Pod) path() string { return "/api/v1/namespaces/" + p.namespace + "/pods/" + p.name }

// statusPath returns the path to update the pod's status, as its kubelet.
func (p Pod) statusPath() string { return p.path() + "/status?fieldManager=" + statusManager }

var podNode = regexp.MustCompile(`"nodeName":"[^"]*"`)

// PodNode returns the name of node i.
func PodNode(i int) string { return fmt.Sprintf("node-%03d", i) }

func (p Pod) On(node string) Pod {
	p.Json = podNode.ReplaceAllString(p.Json, `"nodeName":"`+node+`"`)
	return p
}

// Labelled returns the pod with one more label.
func (p Pod) Labelled(key, value string) Pod {
	p.Json = strings.Replace(p.Json, `"labels":{`, fmt.Sprintf(`"labels":{"%s":"%s",`, key, value), 1)
	return p
}

// written returns the pod after write number seq, with a number of restarts of its container.
func (p Pod) written(seq uint64, restarts int) Pod {
	p.Json = strings.NewReplacer(`"annotations":{`, fmt.Sprintf(`"annotations":{"%s":"%d",`, seqAnnotation, seq),
		`"restartCount":0`, fmt.Sprintf(`"restartCount":%d`, restarts)).Replace(p.Json)
	return p
}

func seed(i int) (s [32]byte) {
	binary.LittleEndian.PutUint64(s[:], uint64(i))
	return s
}

func hex(r *rand.ChaCha8, n int) string {
	p := make([]byte, n)
	r.Read(p)
	return fmt.Sprintf("%x", p)
}

// CreatePods creates the pods from first up to n through the API, a few at once, and reports its
// progress. form makes a pod. With the first pod it creates the namespaces of all.
func CreatePods(ctx context.Context, w *Writer, first, n int, form func(i int) Pod, say func(string, ...any)) error {
	for i := 0; first == 0 && i < podNamespaces; i++ {
		if err := w.CreateNamespace(ctx, podNamespace(i)); err != nil {
			return err
		}
	}
	return InParallel(ctx, first, n, func(ctx context.Context, i int) error {
		if step := max(1000, n/10); i%step == 0 {
			say("creating pods: %d of %d", i, n)
		}
		return form(i).create(ctx, w)
	})
}

// create creates the pod and then sets its status, which a create ignores.
func (p Pod) create(ctx context.Context, w *Writer) error {
	if _, err := w.Send(ctx, "POST", path.Dir(p.path())+"?fieldManager="+specManager, p.Json); err != nil {
		return err
	}
	_, err := w.Send(ctx, "PUT", p.statusPath(), p.Json)
	return err
}

// PodPath returns the path of the i-th pod.
func PodPath(i int) string { return NewPod(i).path() }
