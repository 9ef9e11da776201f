package fanout_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/watchfan/watchfan/fanout"
	"github.com/watchfan/watchfan/framing"
)

// podTemplate is a pod of 3.7 KB as a ReplicaSet creates it and a kubelet reports it. The parts in
// braces differ from pod to pod, or from one report to the next.
const podTemplate = `{"kind":"Pod","apiVersion":"v1","metadata":{"name":"{app}-5f6d8c9b7-{suffix}",` +
	`"generateName":"{app}-5f6d8c9b7-","namespace":"{team}","uid":"{uid}","resourceVersion":"{rv}","generation":1,` +
	`"creationTimestamp":"{created}","labels":{"app.kubernetes.io/name":"{app}","app.kubernetes.io/part-of":"shop",` +
	`"pod-template-hash":"5f6d8c9b7"},"annotations":{"prometheus.io/scrape":"true","prometheus.io/port":"9090"},` +
	`"ownerReferences":[{"apiVersion":"apps/v1","kind":"ReplicaSet","name":"{app}-5f6d8c9b7","uid":"{owner}",` +
	`"controller":true,"blockOwnerDeletion":true}],` +
	`"managedFields":[{"manager":"kube-controller-manager","operation":"Update","apiVersion":"v1","time":"{created}",` +
	`"fieldsType":"FieldsV1","fieldsV1":{"f:metadata":{"f:generateName":{},"f:labels":{".":{},` +
	`"f:app.kubernetes.io/name":{},"f:pod-template-hash":{}},"f:ownerReferences":{".":{},` +
	`"k:{\"uid\":\"{owner}\"}":{}}},"f:spec":{"f:containers":{"k:{\"name\":\"main\"}":{".":{},"f:env":{".":{},` +
	`"k:{\"name\":\"PORT\"}":{".":{},"f:name":{},"f:value":{}}},"f:image":{},"f:imagePullPolicy":{},"f:name":{},` +
	`"f:ports":{".":{},"k:{\"containerPort\":8080,\"protocol\":\"TCP\"}":{".":{},"f:containerPort":{},` +
	`"f:protocol":{}}},"f:resources":{".":{},"f:limits":{".":{},"f:memory":{}},"f:requests":{".":{},"f:cpu":{},` +
	`"f:memory":{}}}}},"f:dnsPolicy":{},"f:enableServiceLinks":{},"f:restartPolicy":{},"f:schedulerName":{},` +
	`"f:securityContext":{},"f:terminationGracePeriodSeconds":{}}}},` +
	`{"manager":"kubelet","operation":"Update","apiVersion":"v1","time":"{now}","fieldsType":"FieldsV1",` +
	`"fieldsV1":{"f:status":{"f:conditions":{"k:{\"type\":\"ContainersReady\"}":{".":{},"f:lastProbeTime":{},` +
	`"f:lastTransitionTime":{},"f:status":{},"f:type":{}},"k:{\"type\":\"Ready\"}":{".":{},"f:lastProbeTime":{},` +
	`"f:lastTransitionTime":{},"f:status":{},"f:type":{}}},"f:containerStatuses":{},"f:hostIP":{},"f:phase":{},` +
	`"f:podIP":{},"f:podIPs":{".":{},"k:{\"ip\":\"{ip}\"}":{".":{},"f:ip":{}}},"f:startTime":{}}},` +
	`"subresource":"status"}]},"spec":{"volumes":[{"name":"kube-api-access-{suffix}",` +
	`"projected":{"sources":[{"serviceAccountToken":{"expirationSeconds":3607,"path":"token"}},` +
	`{"configMap":{"name":"kube-root-ca.crt","items":[{"key":"ca.crt","path":"ca.crt"}]}}],"defaultMode":420}}],` +
	`"containers":[{"name":"main","image":"registry.example.com/shop/{app}:1.42.0","ports":[{"containerPort":8080,` +
	`"protocol":"TCP"}],"env":[{"name":"PORT","value":"8080"}],"resources":{"limits":{"memory":"256Mi"},` +
	`"requests":{"cpu":"100m","memory":"128Mi"}},"terminationMessagePath":"/dev/termination-log",` +
	`"terminationMessagePolicy":"File","imagePullPolicy":"IfNotPresent"}],` +
	`"restartPolicy":"Always","terminationGracePeriodSeconds":30,"dnsPolicy":"ClusterFirst",` +
	`"serviceAccountName":"default","nodeName":"{node}","securityContext":{},"schedulerName":"default-scheduler"},` +
	`"status":{"observedGeneration":1,"phase":"Running","conditions":[{"type":"Ready","status":"True",` +
	`"lastProbeTime":null,"lastTransitionTime":"{now}"},{"type":"ContainersReady","status":"True",` +
	`"lastProbeTime":null,"lastTransitionTime":"{now}"}],` +
	`"hostIP":"192.168.1.7","podIP":"{ip}","podIPs":[{"ip":"{ip}"}],"startTime":"{created}",` +
	`"containerStatuses":[{"name":"main","state":{"running":{"startedAt":"{now}"}},` +
	`"ready":true,"restartCount":{restarts},"image":"registry.example.com/shop/{app}:1.42.0",` +
	`"imageID":"registry.example.com/shop/{app}@sha256:{image}","containerID":"containerd://{container}",` +
	`"started":true}],"qosClass":"Burstable"}}`

// pods returns the pods of fifty apps.
type pods struct {
	rng  *rand.Rand
	pods []*strings.Replacer
	now  time.Time
}

func newPods(n int) *pods {
	p := &pods{rng: rand.New(rand.NewPCG(1, 2)), now: time.Date(2026, 11, 21, 7, 0, 0, 0, time.UTC)}
	var owners, images [50]string
	for i := range owners {
		owners[i], images[i] = p.hex(36), p.hex(64)
	}
	for i := range n {
		app := i % len(owners)
		p.pods = append(p.pods, strings.NewReplacer("{app}", fmt.Sprint("app-", app),
			"{team}", fmt.Sprint("team-", app%7), "{suffix}", fmt.Sprintf("%05d", i), "{uid}", p.hex(36),
			"{owner}", owners[app], "{image}", images[app],
			"{ip}", fmt.Sprintf("10.%d.%d.%d", p.rng.IntN(256), p.rng.IntN(256), p.rng.IntN(256)),
			"{node}", fmt.Sprintf("node-%04d", p.rng.IntN(5000)),
			"{created}", p.now.Add(-time.Duration(p.rng.IntN(1e6))*time.Second).Format(time.RFC3339)))
	}
	return p
}

func (p *pods) hex(n int) string {
	b := make([]byte, n)
	for i := range b {
		b[i] = "0123456789abcdef"[p.rng.IntN(16)]
	}
	return string(b)
}

// event returns a report of pod i.
func (p *pods) event(typ string, i int, rv uint64) framing.Event {
	p.now = p.now.Add(100 * time.Millisecond)
	o := strings.NewReplacer("{rv}", fmt.Sprint(rv), "{now}", p.now.Format(time.RFC3339),
		"{restarts}", fmt.Sprint(p.rng.IntN(5)), "{container}", p.hex(64)).Replace(p.pods[i].Replace(podTemplate))
	ev, err := framing.NewScanner(framing.JSON, fieldPaths).Event([]byte(`{"type":"` + typ + `","object":` + o + "}\n"))
	if err != nil {
		panic(err)
	}
	return ev
}

// BenchmarkGzipApply is BenchmarkApply with pods, with and without gzip.
func BenchmarkGzipApply(b *testing.B) {
	for _, clients := range []int{1, 1000} {
		for _, encoding := range []string{"identity", "gzip"} {
			b.Run(fmt.Sprintf("clients=%d/encoding=%s", clients, encoding), func(b *testing.B) {
				all := everything(b)
				bm := newBench(b, clients, func(int) (selector, fanout.Request) {
					return all, fanout.Request{Gzip: encoding == "gzip"}
				})
				p := newPods(1000)
				var reports []framing.Event
				for range 1000 {
					reports = append(reports, p.event("MODIFIED", p.rng.IntN(1000), bm.rv))
				}
				_, before := bm.cache.Delivered()
				n := 0
				b.ReportAllocs()
				for b.Loop() {
					bm.rv++
					apply(b, bm.cache, again(reports[n%len(reports)], bm.rv))
					if n++; n%256 == 0 {
						await(bm.sinks[0], n-128)
					}
				}
				bm.drained(b, n)
				_, after := bm.cache.Delivered()
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(n*clients), "ns/delivery")
				b.ReportMetric(float64(after-before)/float64(n*clients), "B/delivery")
			})
		}
	}
}
