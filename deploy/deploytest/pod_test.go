package deploytest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/watchfan/watchfan/proxy/suites/proxytest"
)

// inClusterClient is an argument of the test binary: it then is a client, see readInCluster.
const inClusterClient = "in-cluster-client"

// accountPath is where pods mount their token.
const accountPath = "/var/run/secrets/kubernetes.io/serviceaccount"

// services leads the addresses of Services to programs of this host.
type services struct{ flags []string }

// bind leads addresses to a program.
func (s *services) bind(t *testing.T, target string, addresses ...string) *proxytest.Relay {
	t.Helper()
	to := proxytest.NewRelay(t, target)
	for _, address := range addresses {
		s.flags = append(s.flags, "--service", address+"="+to.Address())
	}
	return to
}

// run runs a command in a container of a pod, and returns what it prints.
func (s *services) run(t *testing.T, c *cluster, pod *corev1.Pod, container string, command ...string) (string, error) {
	t.Helper()
	args := append([]string{"--kubeconfig", c.Ready.Kubeconfigs["admin"], "--container", container}, s.flags...)
	args = append(append(args, pod.Namespace+"/"+pod.Name, "--"), command...)
	out, err := exec.CommandContext(t.Context(), binary(t, "pod"), args...).CombinedOutput()
	return string(out), err
}

// client is the command of a container that reads as a controller does.
func client(namespace, configMap string) []string {
	return []string{os.Args[0], inClusterClient, namespace, configMap}
}

// readInCluster reads with client-go's in-cluster configuration: a list, and a watch until a ConfigMap
// that was listed.
func readInCluster(args []string) (code int) {
	err := func() error {
		cfg, err := rest.InClusterConfig()
		if err != nil {
			return err
		}
		client, err := kubernetes.NewForConfig(cfg)
		if err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		namespace, name := args[0], args[1]
		list, err := client.CoreV1().ConfigMaps(namespace).List(ctx, metav1.ListOptions{ResourceVersion: "0"})
		if err != nil {
			return err
		}
		w, err := client.CoreV1().ConfigMaps(namespace).Watch(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		defer w.Stop()
		for e := range w.ResultChan() {
			if m, ok := e.Object.(*corev1.ConfigMap); ok && m.Name == name {
				fmt.Printf("go: %s has %d ConfigMaps\n", cfg.Host, len(list.Items))
				return nil
			}
		}
		return errors.New("the watch ended")
	}()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}
