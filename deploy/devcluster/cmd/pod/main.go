// Command pod runs a program as a container of a pod, where there is no kubelet and no kube-proxy: with
// the container's environment, the pod's hosts file and token volume, and a network in which the
// addresses of Services lead to programs of this host.
//
//	pod --kubeconfig FILE --service 10.0.0.7=127.0.0.1:8443 NAMESPACE/POD -- kubectl get configmaps
//
// Services with the annotation devcluster lead to the address that it names. Without a command it runs an
// informer of the namespace's ConfigMaps, which prints its requests.
//
// It needs Linux, and root or user namespaces.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

// addressAnnotation of a Service is an address of this host, HOST:PORT.
const addressAnnotation = "devcluster"

// accountPath is where a token volume is mounted.
const accountPath = "/var/run/secrets/kubernetes.io/serviceaccount"

func main() {
	if file := os.Getenv(insideVariable); file != "" {
		exit(runInside(file, os.Args[1:]))
	}
	exit(run())
}

func exit(err error) {
	var exited *exec.ExitError
	switch {
	case err == nil:
		os.Exit(0)
	case errors.As(err, &exited):
		os.Exit(max(exited.ExitCode(), 1))
	}
	fmt.Fprintf(os.Stderr, "pod: %v\n", err)
	os.Exit(1)
}

// container is a pod's container, and who runs it.
type container struct {
	client   kubernetes.Interface
	pod      *corev1.Pod
	name     string
	services map[string]string // addresses of this host by those of Services
}

func run() error {
	kubeconfig := flag.String("kubeconfig", os.Getenv("KUBECONFIG"), "`FILE` of who may read the pod and make its tokens")
	c := container{services: make(map[string]string)}
	flag.StringVar(&c.name, "container", "", "`NAME` of the container (default the first)")
	flag.Func("service", "`IP=HOST:PORT`: port 443 of a Service's address leads there; may be repeated", func(s string) error {
		ip, to, ok := strings.Cut(s, "=")
		if c.services[ip] = to; !ok {
			return errors.New("give IP=HOST:PORT")
		}
		return nil
	})
	flag.Parse()
	namespace, name, ok := strings.Cut(flag.Arg(0), "/")
	if !ok {
		return errors.New("usage: pod [flags] NAMESPACE/POD [-- COMMAND]")
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	config, err := clientcmd.BuildConfigFromFlags("", *kubeconfig)
	if err != nil {
		return err
	}
	if c.client, err = kubernetes.NewForConfig(config); err != nil {
		return err
	}
	if c.pod, err = c.client.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{}); err != nil {
		return err
	}
	server, err := c.findServices(ctx, strings.TrimPrefix(config.Host, "https://"))
	if err != nil {
		return err
	}
	command := flag.Args()[1:]
	if len(command) > 0 && command[0] == "--" {
		command = command[1:]
	}
	return c.run(ctx, server, command)
}

// findServices adds the Services that no flag names: kube-apiserver's, which leads to its own address, and
// those with the annotation. It returns kube-apiserver's.
func (c *container) findServices(ctx context.Context, apiserver string) (server string, err error) {
	list, err := c.client.CoreV1().Services("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return "", err
	}
	for _, s := range list.Items {
		to := s.Annotations[addressAnnotation]
		if s.Namespace == "default" && s.Name == "kubernetes" {
			server, to = s.Spec.ClusterIP, apiserver
		}
		if _, ok := c.services[s.Spec.ClusterIP]; !ok && to != "" {
			c.services[s.Spec.ClusterIP] = to
		}
	}
	return server, nil
}

// run runs a command in namespaces of its own, and returns its error.
func (c *container) run(ctx context.Context, server string, command []string) error {
	spec, err := c.chosen()
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "pod")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	in := inside{Hosts: filepath.Join(dir, "hosts"), Account: filepath.Join(dir, "account"), Services: make(map[string]string)}
	for ip, to := range c.services {
		socket := filepath.Join(dir, strings.ReplaceAll(ip, ":", "_"))
		in.Services[ip] = socket
		err = errors.Join(err, listenUnix(socket, to))
	}
	if err := errors.Join(err, c.writeFiles(ctx, spec, in)); err != nil {
		return err
	}
	content, err := json.Marshal(in)
	if err != nil {
		return err
	}
	file := filepath.Join(dir, "inside")
	if err := os.WriteFile(file, content, 0o600); err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, "/proc/self/exe", command...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), insideVariable + "=" + file,
		"KUBERNETES_SERVICE_HOST=" + server, "KUBERNETES_SERVICE_PORT=443"} // a kubelet's; the container's own win
	for _, v := range spec.Env { // without valueFrom
		cmd.Env = append(cmd.Env, v.Name+"="+v.Value)
	}
	cmd.SysProcAttr = namespaces()
	return cmd.Run()
}

// chosen returns the container.
func (c *container) chosen() (corev1.Container, error) {
	for _, spec := range append(c.pod.Spec.Containers, c.pod.Spec.InitContainers...) {
		if c.name == "" || spec.Name == c.name {
			return spec, nil
		}
	}
	return corev1.Container{}, fmt.Errorf("pod %s has no container %s", c.pod.Name, c.name)
}

// writeFiles writes the hosts file, and the token volume that the container mounts.
func (c *container) writeFiles(ctx context.Context, spec corev1.Container, in inside) error {
	hosts := "127.0.0.1\tlocalhost\n"
	for _, alias := range c.pod.Spec.HostAliases {
		hosts += alias.IP + "\t" + strings.Join(alias.Hostnames, "\t") + "\n"
	}
	err := errors.Join(os.WriteFile(in.Hosts, []byte(hosts), 0o600), os.Mkdir(in.Account, 0o700))
	for _, mount := range spec.VolumeMounts {
		for _, volume := range c.pod.Spec.Volumes {
			if mount.MountPath != accountPath || volume.Name != mount.Name || volume.Projected == nil {
				continue
			}
			for _, source := range volume.Projected.Sources {
				files, problem := c.project(ctx, source)
				err = errors.Join(err, problem)
				for name, content := range files {
					err = errors.Join(err, os.WriteFile(filepath.Join(in.Account, name), []byte(content), 0o600))
				}
			}
		}
	}
	return err
}

// project returns the files of one source of a token volume. Its downward API is the namespace.
func (c *container) project(ctx context.Context, source corev1.VolumeProjection) (map[string]string, error) {
	switch {
	case source.ServiceAccountToken != nil:
		r, err := c.client.CoreV1().ServiceAccounts(c.pod.Namespace).CreateToken(ctx, c.pod.Spec.ServiceAccountName,
			&authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
				ExpirationSeconds: source.ServiceAccountToken.ExpirationSeconds,
				BoundObjectRef: &authenticationv1.BoundObjectReference{Kind: "Pod", APIVersion: "v1", Name: c.pod.Name,
					UID: c.pod.UID}}}, metav1.CreateOptions{})
		if err != nil {
			return nil, err
		}
		return map[string]string{source.ServiceAccountToken.Path: r.Status.Token}, nil
	case source.ConfigMap != nil:
		m, err := c.client.CoreV1().ConfigMaps(c.pod.Namespace).Get(ctx, source.ConfigMap.Name, metav1.GetOptions{})
		if err != nil {
			return nil, err
		}
		files := make(map[string]string)
		for _, item := range source.ConfigMap.Items {
			files[item.Path] = m.Data[item.Key]
		}
		return files, nil
	}
	return map[string]string{"namespace": c.pod.Namespace}, nil
}
