package fanout_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
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

// podReport returns the nth report, of one of a thousand pods of fifty apps.
func podReport(n int) framing.Event {
	rng := rand.New(rand.NewPCG(1, uint64(n)))
	hex := func(of string, seed, n int) []string {
		rng := rand.New(rand.NewPCG(uint64(seed), 0))
		var b strings.Builder
		for range n {
			fmt.Fprintf(&b, "%x", rng.IntN(16))
		}
		return []string{of, b.String()}
	}
	i := rng.IntN(1000)
	app, now := i%50, time.Date(2026, 11, 21, 7, 0, 0, 0, time.UTC)
	o := strings.NewReplacer(slices.Concat(hex("{uid}", i, 36), hex("{owner}", -app, 36), hex("{image}", -app, 64), hex("{container}", n, 64),
		[]string{"{app}", fmt.Sprint("app-", app), "{team}", fmt.Sprint("team-", app%7), "{suffix}", fmt.Sprintf("%05d", i),
			"{rv}", fmt.Sprint(100 + n), "{ip}", fmt.Sprintf("10.%d.%d.%d", i%251, i%241, i%239), "{node}", fmt.Sprintf("node-%04d", i*37%5000),
			"{restarts}", fmt.Sprint(rng.IntN(5)), "{created}", now.Add(-time.Duration(i*997) * time.Second).Format(time.RFC3339),
			"{now}", now.Add(time.Duration(n) * 100 * time.Millisecond).Format(time.RFC3339)})...).Replace(podTemplate)
	ev, err := framing.NewScanner(framing.JSON, fieldPaths).Event([]byte(`{"type":"MODIFIED","object":` + o + "}\n"))
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
				var reports []framing.Event
				for i := range 1000 {
					reports = append(reports, podReport(i))
				}
				n := bm.loop(b, reports...)
				bm.drained(b, n)
				_, bytes := bm.cache.Delivered()
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(n*clients), "ns/delivery")
				b.ReportMetric(float64(bytes)/float64(n*clients), "B/delivery")
			})
		}
	}
}
