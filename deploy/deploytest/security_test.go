package deploytest

import (
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/watchfan/watchfan/proxy/suites/proxytest"
	"github.com/watchfan/watchfan/proxy/suites/proxytest/steady"
)

// TestRestricted: a namespace that enforces the Pod Security Standard restricted takes every pod of the
// chart, and no longer without their seccomp profile. Root file systems are read-only, which the standard
// leaves open.
func TestRestricted(t *testing.T) {
	c := theCluster(t)
	c.must(t, `
apiVersion: v1
kind: Namespace
metadata: {name: restricted, labels: {pod-security.kubernetes.io/enforce: restricted}}
`)
	valueSets(t, func(t *testing.T, text string) {
		pods := 0
		for _, o := range render(t, text) {
			template, found, _ := unstructured.NestedMap(o.Object, "spec", "template")
			if !found {
				template, found, _ = unstructured.NestedMap(o.Object, "spec", "jobTemplate", "spec", "template")
			}
			if !found {
				continue
			}
			pods++
			pod := &unstructured.Unstructured{Object: template}
			pod.SetAPIVersion("v1")
			pod.SetKind("Pod")
			pod.SetName("pod")
			pod.SetNamespace("restricted")
			if err := c.apply(t.Context(), pod, true); err != nil {
				t.Errorf("%s %s: %v", o.GetKind(), o.GetName(), err)
			}
			spec, _, _ := unstructured.NestedMap(pod.Object, "spec")
			for _, container := range containers(spec) {
				if readOnly, _, _ := unstructured.NestedBool(container, "securityContext", "readOnlyRootFilesystem"); !readOnly {
					t.Errorf("%s %s may write to its root", o.GetKind(), o.GetName())
				}
			}
			unstructured.RemoveNestedField(pod.Object, "spec", "securityContext", "seccompProfile")
			err := c.apply(t.Context(), pod, true)
			if err == nil || !strings.Contains(err.Error(), `violates PodSecurity "restricted`) {
				t.Errorf("%s %s without seccomp: %v", o.GetKind(), o.GetName(), err)
			}
		}
		if pods == 0 {
			t.Error("the chart has no pods")
		}
	})
}

// TestContained: the program serves with the Deployment's flags as in its image. It sees nothing but itself,
// its certificate and its service account, can write nowhere, and has no capability. Its user is none that
// the chart names.
func TestContained(t *testing.T) {
	c := theCluster(t)
	c.must(t, paints)
	c.install(t, "{replicas: 1, log: {format: text}}")
	secret, err := c.client.CoreV1().Secrets(namespace).Get(t.Context(), "watchfan-tls", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	const account, certificate, user = "/var/run/secrets/kubernetes.io/serviceaccount/", "/etc/watchfan/tls/", 4242
	root := filepath.Join(t.TempDir(), "root")
	for name, content := range map[string]string{
		"/watchfan":                 readFile(t, binary(t, "watchfan")),
		account + "token":           c.token(t, namespace, "watchfan"),
		account + "ca.crt":          readFile(t, c.Ready.CAFile),
		certificate + "tls.crt":     string(secret.Data["tls.crt"]),
		certificate + "tls.key":     string(secret.Data["tls.key"]),
		certificate + "config.yaml": c.configuration(t),
	} {
		file := filepath.Join(root, name)
		err := os.MkdirAll(filepath.Dir(file), 0o755)
		if err == nil {
			err = os.WriteFile(file, []byte(content), 0o555)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	chmod(t, root, 0o555)
	t.Cleanup(func() { chmod(t, root, 0o755) })

	upstream, err := url.Parse(c.config.Host)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("/watchfan", append(c.flags(t, "watchfan", "/etc/watchfan/tls"), "--shutdown-delay-duration=0s")...)
	cmd.Env = []string{"KUBERNETES_SERVICE_HOST=" + upstream.Hostname(), "KUBERNETES_SERVICE_PORT=" + upstream.Port()}
	cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: root, Credential: &syscall.Credential{Uid: user, Gid: user}}
	if uid := os.Geteuid(); uid != 0 { // a namespace in which this user is that one
		cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: root, Cloneflags: syscall.CLONE_NEWUSER,
			UidMappings: []syscall.SysProcIDMap{{ContainerID: user, HostID: uid, Size: 1}},
			GidMappings: []syscall.SysProcIDMap{{ContainerID: user, HostID: os.Getegid(), Size: 1}}}
	}
	process, err := proxytest.StartProcess(cmd, filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := process.End(syscall.SIGTERM, steady.Patience); err != nil {
			t.Error(err)
		}
	})
	w := &watchfan{token: c.token(t, "apps", "client"), log: process.Log, client: trusting(t, secret.Data["ca.crt"])}
	addresses := regexp.MustCompile(`msg="Serving (TLS|health) .* address=(\S+)`)
	if err := process.Await(steady.Patience, func() error {
		for _, m := range addresses.FindAllStringSubmatch(readFile(t, process.Log), -1) {
			if m[1] == "TLS" {
				w.secure = m[2]
			} else {
				w.admin = m[2]
			}
		}
		if w.secure == "" || w.admin == "" {
			return errors.New("it does not serve")
		}
		return nil
	}); err != nil {
		t.Fatalf("%v\n%s", err, proxytest.Tail(process.Log, 20))
	}
	awaitReady(t, w.admin+"/readyz")
	w.served(t, 1, "configmaps", configMaps+"?resourceVersion=0", "first")
	w.watched(t, c)
	w.consistent(t, c)
	status := readFile(t, fmt.Sprintf("/proc/%d/status", cmd.Process.Pid))
	for _, line := range []string{"CapPrm:\t0000000000000000\n", "CapEff:\t0000000000000000\n"} {
		if !strings.Contains(status, line) {
			t.Errorf("it has capabilities:\n%s", status)
		}
	}
	missed := regexp.MustCompile("permission denied|no such file|read-only")
	for line := range strings.Lines(readFile(t, process.Log)) {
		if missed.MatchString(line) && !strings.Contains(line, "/proc/self/") { // which a container has
			t.Error(line)
		}
	}
}

// chmod sets the mode of a folder and all that are in it.
func chmod(t *testing.T, root string, mode os.FileMode) {
	t.Helper()
	if err := filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			err = os.Chmod(path, mode)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
}
