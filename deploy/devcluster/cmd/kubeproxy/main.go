// Command kubeproxy follows a cluster with kube-proxy's own server, as kube-proxy does on one node.
// In place of rules in the kernel it writes what it knows to a file, a line for each Service,
// EndpointSlice, ServiceCIDR and topology label of the node: kubeproxy KUBECONFIG NODE FILE. With flags
// in place of these, it is kube-proxy itself.
package main

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/events"
	"k8s.io/kubernetes/cmd/kube-proxy/app"
	"k8s.io/kubernetes/pkg/proxy"
	proxyconfig "k8s.io/kubernetes/pkg/proxy/apis/config"
)

func main() {
	if len(os.Args) > 1 && strings.HasPrefix(os.Args[1], "--") {
		if app.NewProxyCommand().Execute() != nil { // says why
			os.Exit(1)
		}
		return
	}
	if len(os.Args) != 4 {
		fail(fmt.Errorf("usage: kubeproxy KUBECONFIG NODE FILE, or kube-proxy's flags"))
	}
	fail(run(os.Args[1], os.Args[2], os.Args[3]))
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

// run returns only with an error.
func run(kubeconfig, node, file string) error {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	config.ContentType = runtime.ContentTypeProtobuf // as kube-proxy's configuration has it by default
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	ctx := context.Background()
	kubeProxy := &proxyconfig.KubeProxyConfiguration{
		Mode:             "none",
		ConfigSyncPeriod: metav1.Duration{Duration: 15 * time.Minute}, // as kube-proxy's default
	}
	nodes, err := proxy.NewNodeManager(ctx, client, node, kubeProxy)
	if err != nil {
		return err
	}
	server := &app.ProxyServer{
		Config:      kubeProxy,
		Client:      client,
		Recorder:    events.NewFakeRecorder(10), // it records only that kube-proxy starts
		NodeRef:     &corev1.ObjectReference{Kind: "Node", Name: node},
		NodeName:    node,
		NodeManager: nodes,
		Proxier:     &rules{file: file, lines: make(map[string]string)},
	}
	return server.Run(ctx)
}

// rules are what kube-proxy would write to the kernel.
type rules struct {
	file string

	mu    sync.Mutex
	lines map[string]string // by kind and name
}

// set replaces the line of an object and writes the file.
func (r *rules) set(key, line string) {
	r.change(func() { r.lines[key] = key + " " + line })
}

func (r *rules) remove(key string) {
	r.change(func() { delete(r.lines, key) })
}

func (r *rules) change(do func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	do()
	text := strings.Join(slices.Sorted(maps.Values(r.lines)), "\n") + "\n"
	err := os.WriteFile(r.file+".new", []byte(text), 0o600)
	if err == nil {
		err = os.Rename(r.file+".new", r.file)
	}
	if err != nil {
		fail(err)
	}
}

func serviceKey(s *corev1.Service) string { return "service " + s.Namespace + "/" + s.Name }

// OnServiceAdd and the other methods are called as for each of kube-proxy's modes.
func (r *rules) OnServiceAdd(s *corev1.Service) {
	line := strings.Join(s.Spec.ClusterIPs, " ")
	for _, port := range s.Spec.Ports {
		line += fmt.Sprintf(" %s/%d", port.Protocol, port.Port)
	}
	r.set(serviceKey(s), line)
}
func (r *rules) OnServiceUpdate(_, s *corev1.Service) { r.OnServiceAdd(s) }
func (r *rules) OnServiceDelete(s *corev1.Service)    { r.remove(serviceKey(s)) }
func (r *rules) OnServiceSynced()                     {}

func sliceKey(s *discoveryv1.EndpointSlice) string { return "slice " + s.Namespace + "/" + s.Name }

func (r *rules) OnEndpointSliceAdd(s *discoveryv1.EndpointSlice) {
	var addresses []string
	for _, e := range s.Endpoints {
		addresses = append(addresses, e.Addresses...)
	}
	r.set(sliceKey(s), strings.Join(addresses, " "))
}
func (r *rules) OnEndpointSliceUpdate(_, s *discoveryv1.EndpointSlice) { r.OnEndpointSliceAdd(s) }
func (r *rules) OnEndpointSliceDelete(s *discoveryv1.EndpointSlice)    { r.remove(sliceKey(s)) }
func (r *rules) OnEndpointSlicesSynced()                               {}

func (r *rules) OnServiceCIDRsChanged(cidrs []string) {
	r.set("cidrs", strings.Join(slices.Sorted(slices.Values(cidrs)), " "))
}

func (r *rules) OnTopologyChange(labels map[string]string) {
	r.set("topology", fmt.Sprint(labels)) // fmt sorts the keys
}

func (r *rules) Sync()     {}
func (r *rules) SyncLoop() { select {} }
