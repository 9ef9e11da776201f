package cachesuite

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	goruntime "runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	examplev1 "k8s.io/apiserver/pkg/apis/example/v1"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"
)

// server is a server under test, as one process tells another about it.
type server struct {
	Name  string
	URL   string
	HTTP2 bool
	Crowd bool   // other clients read the resources all the time
	Group string // of its own custom resources
	Token string // an administrator's
	Truth string // kube-apiserver's URL
	Admin string // URL of the admin port; empty for kube-apiserver
	Etcd  string // etcd's URL
}

// stores returns a store of the namespaced and one of the cluster-scoped resource.
func (s *server) stores() (pods, clusterPods *store, err error) {
	var all [2]*store
	for i, c := range []custom{podKind, clusterPodKind} {
		truth, err := s.store(c, s.Truth, true)
		if err != nil {
			return nil, nil, err
		}
		truth.truth = truth
		if all[i], err = s.store(c, s.URL, s.HTTP2); err != nil {
			return nil, nil, err
		}
		all[i].truth = truth
	}
	all[0].etcd, err = dialEtcd(s.Etcd, all[0].truth)
	all[1].etcd = all[0].etcd
	return all[0], all[1], err
}

// store returns a store of a custom resource at server. All servers are on loopback and have certificates of
// their own.
func (s *server) store(c custom, server string, http2 bool) (*store, error) {
	version := schema.GroupVersion{Group: s.Group, Version: "v1"}
	types := runtime.NewScheme()
	types.AddKnownTypeWithName(version.WithKind(c.kind), &examplev1.Pod{})
	types.AddKnownTypeWithName(version.WithKind(c.kind+"List"), &examplev1.PodList{})
	metav1.AddToGroupVersion(types, version)
	content := rest.ClientContentConfig{GroupVersion: version, ContentType: "application/json", AcceptContentTypes: "application/json",
		Negotiator: runtime.NewClientNegotiator(serializer.NewCodecFactory(types).WithoutConversion(), version)}
	t := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, Protocols: new(http.Protocols),
		MaxIdleConnsPerHost: 100}
	t.Protocols.SetHTTP1(!http2)
	t.Protocols.SetHTTP2(http2)
	at, err := url.Parse(server)
	if err != nil {
		return nil, err
	}
	client, err := rest.NewRESTClient(at, "/apis/"+s.Group+"/v1", content, nil,
		&http.Client{Transport: transport.NewBearerAuthRoundTripper(s.Token, t)})
	return &store{custom: c, rest: client, parameters: runtime.NewParameterCodec(types)}, err
}

// definition is a custom resource with the fields and the field selectors of the suite's Pods.
const definition = `{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition",
"metadata":{"name":"PLURAL.GROUP"},"spec":{
"group":"GROUP","scope":"SCOPE","names":{"plural":"PLURAL","singular":"SINGULAR","kind":"KIND","listKind":"KINDList"},
"versions":[{"name":"v1","served":true,"storage":true,"selectableFields":[
{"jsonPath":".spec.nodeName"},{"jsonPath":".spec.restartPolicy"},{"jsonPath":".status.phase"}],
"schema":{"openAPIV3Schema":{"type":"object","properties":{
"spec":{"type":"object","x-kubernetes-preserve-unknown-fields":true,
"properties":{"nodeName":{"type":"string"},"restartPolicy":{"type":"string"}}},
"status":{"type":"object","x-kubernetes-preserve-unknown-fields":true,
"properties":{"phase":{"type":"string"}}}}}}}]}}`

// define creates the custom resource and waits until kube-apiserver serves its watches.
func (s *store) define(ctx context.Context) error {
	body := strings.NewReplacer("PLURAL", s.resource, "GROUP", s.rest.APIVersion().Group, "SCOPE", s.scope,
		"SINGULAR", strings.ToLower(s.kind), "KIND", s.kind).Replace(definition)
	create := s.rest.Post().AbsPath("/apis/apiextensions.k8s.io/v1/customresourcedefinitions")
	if err := create.SetHeader("Content-Type", "application/json").Body([]byte(body)).Do(ctx).Error(); err != nil {
		return err
	}
	for {
		short, cancel := context.WithTimeout(ctx, time.Second)
		w, err := s.watch(short, place{}, storage.ListOptions{})
		cancel()
		if err == nil {
			for range w.ResultChan() {
			}
			return nil
		}
		if ctx.Err() != nil {
			return err
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// need returns the absolute path of a program. Without it the test is skipped, or fails where CI is
// set.
func need(t testing.TB, variable, name string) string {
	t.Helper()
	path, err := filepath.Abs(cmp.Or(os.Getenv(variable), filepath.Join("..", "..", "..", "..", "bin", name)))
	if err == nil {
		_, err = os.Stat(path)
	}
	switch {
	case err != nil && os.Getenv("CI") != "":
		t.Fatal(err)
	case err != nil:
		t.Skipf("%v: make cachesuite builds it", err)
	}
	return path
}

// start runs a program until the test ends, and returns once the program has written the JSON file
// ready, which start reads into v.
func start(t testing.TB, ready string, v any, program string, args ...string) {
	t.Helper()
	var output bytes.Buffer
	ctx, stop := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.Stdout, cmd.Stderr = &output, &output
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	var ended error // of the program, once exited is closed
	exited := make(chan struct{})
	go func() {
		defer close(exited)
		goruntime.LockOSThread() // the program dies with the thread that started it
		ended = cmd.Run()
	}()
	t.Cleanup(func() {
		stop()
		<-exited
		if !errors.Is(ended, context.Canceled) || strings.Contains(output.String(), "DATA RACE") {
			t.Errorf("%s: %v, or a data race", program, ended)
		}
		if t.Failed() {
			t.Logf("%s: %.20000s", program, output.String())
		}
	})
	for late := time.After(5 * time.Minute); ; {
		content, err := os.ReadFile(ready)
		if err == nil {
			err = json.Unmarshal(content, v)
		}
		if err == nil {
			return
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-exited:
			t.Fatalf("%s ended before it was ready: %v", program, ended)
		case <-late:
			t.Fatalf("start %s: %v", program, err)
		}
	}
}

// startServers starts etcd, kube-apiserver and a watchfan, and returns the servers under test:
// kube-apiserver first, then watchfan over each protocol. watchfan passes a few small reads at a time
// on to kube-apiserver, and answers those of a crowd itself. Nothing writes to etcd but kube-apiserver
// when it starts, because the suite expects resourceVersions without gaps.
func startServers(t testing.TB) []server {
	t.Helper()
	devcluster, watchfan := need(t, "DEVCLUSTER_BIN", "devcluster"), need(t, "WATCHFAN_BIN", "watchfan")
	dir := t.TempDir()
	var cluster struct {
		Server, EtcdEndpoint    string
		Kubeconfigs, TokenFiles map[string]string
	}
	start(t, filepath.Join(dir, "ready"), &cluster, devcluster, "up", "--dir", dir, "--unsafe-no-fsync",
		"--apiserver-arg", "feature-gates=APIServerIdentity=false,UnknownVersionInteroperabilityProxy=false",
		"--apiserver-arg", "etcd-compaction-interval=24h",
		"--apiserver-arg", "disable-admission-plugins=ServiceAccount,NamespaceLifecycle",
		"--apiserver-arg", "shutdown-watch-termination-grace-period=2s")
	token, err := os.ReadFile(cluster.TokenFiles["admin"])
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "ports")
	var ports struct{ Insecure, Secure, Admin string }
	start(t, file, &ports, watchfan, "--kubeconfig", cluster.Kubeconfigs["admin"], "--bind-address=127.0.0.1",
		"--insecure-port=-1", "--secure-port=-1", "--admin-port=-1", "--cert-dir", dir, "--ports-file", file)
	servers := []server{
		{Name: "kube-apiserver", URL: cluster.Server, HTTP2: true},
		{Name: "watchfan over HTTP/2, in a crowd", URL: "https://" + ports.Secure, HTTP2: true, Crowd: true,
			Admin: "http://" + ports.Admin},
		{Name: "watchfan over HTTP/1.1", URL: "http://" + ports.Insecure, Admin: "http://" + ports.Admin},
	}
	for i := range servers {
		s := &servers[i]
		s.Group = fmt.Sprintf("group%d.cachesuite.watchfan.dev", i)
		s.Token, s.Truth, s.Etcd = strings.TrimSpace(string(token)), cluster.Server, cluster.EtcdEndpoint
	}
	return servers
}

// metric returns the sum of a counter of watchfan over the lines that contain all of labels.
func (s *server) metric(t testing.TB, name string, labels ...string) (sum float64) {
	t.Helper()
	resp, err := http.Get(s.Admin + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	content, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(content)) {
		without := func(label string) bool { return !strings.Contains(line, label) }
		if !strings.HasPrefix(line, name+"{") || slices.ContainsFunc(labels, without) {
			continue
		}
		var value float64
		if _, err := fmt.Sscan(line[strings.LastIndex(line, " "):], &value); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		sum += value
	}
	return sum
}
