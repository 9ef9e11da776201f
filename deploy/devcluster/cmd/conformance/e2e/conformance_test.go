// Package e2e runs the conformance specs straight against a dev cluster's
// kube-apiserver, and then through watchfan.
//
// It skips unless DEVCLUSTER_BIN, WATCHFAN_BIN, CONFORMANCE_BIN and KUBECTL_BIN
// name the programs.
package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"
)

func TestConformance(t *testing.T) {
	devcluster, watchfan := program(t, "DEVCLUSTER_BIN"), program(t, "WATCHFAN_BIN")
	conformance, kubectl := program(t, "CONFORMANCE_BIN"), program(t, "KUBECTL_BIN")
	run := func(t *testing.T, kubeconfig, contentType string) {
		cmd := exec.CommandContext(t.Context(), conformance, "--kubeconfig", kubeconfig, "--content-type",
			contentType, "--kubectl", kubectl)
		cmd.Env = append(os.Environ(), detectors...)
		output, err := cmd.CombinedOutput()
		t.Logf("%s", output)
		if err != nil {
			t.Errorf("conformance: %v", err)
		}
	}

	// What fails here says nothing about watchfan.
	t.Run("kube-apiserver", func(t *testing.T) {
		cluster := startCluster(t, devcluster)
		run(t, cluster.Kubeconfigs["admin"], "application/json")
	})
	for _, format := range []string{"json", "vnd.kubernetes.protobuf"} {
		t.Run("watchfan/"+format, func(t *testing.T) {
			kubeconfig, admin := startWatchfan(t, watchfan, startCluster(t, devcluster))
			run(t, kubeconfig, "application/"+format)
			if deliveredEvents(t, admin) == 0 {
				t.Error("watchfan has delivered no event from its caches: the specs have not tested it")
			}
		})
	}
}

// detectors let client-go, in the specs and in kubectl, compare its watch-lists
// with lists of exactly that version. It panics if they differ, and then the
// specs of that worker have not passed.
var detectors = []string{"KUBE_WATCHLIST_INCONSISTENCY_DETECTOR=true", "KUBE_LIST_FROM_CACHE_INCONSISTENCY_DETECTOR=true"}

// program returns the absolute path that an environment variable holds.
func program(t *testing.T, variable string) string {
	t.Helper()
	path := os.Getenv(variable)
	if path == "" {
		t.Skipf("%s is not set: make conformance builds what this needs and sets it", variable)
	}
	path, err := filepath.Abs(path)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// cluster is what a dev cluster writes into its file ready.
type cluster struct {
	Kubeconfigs, TokenFiles map[string]string
}

func startCluster(t *testing.T, program string) cluster {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "conformance-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	start(t, program, "--dir", dir, "--unsafe-no-fsync")
	var c cluster
	waitForJSON(t, time.Minute, filepath.Join(dir, "ready"), &c)
	return c
}

// startWatchfan starts a watchfan in front of a cluster and returns a kubeconfig
// for the cluster's admin to go through it, and the address of its admin port.
func startWatchfan(t *testing.T, program string, c cluster) (kubeconfig, admin string) {
	t.Helper()
	dir := t.TempDir()
	portsFile := filepath.Join(dir, "ports")
	start(t, program, "--kubeconfig", c.Kubeconfigs["admin"], "--insecure-port=0", "--secure-port=-1",
		"--bind-address=127.0.0.1", "--admin-port=-1", "--cert-dir", dir, "--ports-file", portsFile)
	var ports struct{ Secure, Admin string }
	waitForJSON(t, 20*time.Second, portsFile, &ports)

	config := api.NewConfig()
	config.Clusters["watchfan"] = &api.Cluster{Server: "https://" + ports.Secure,
		CertificateAuthority: filepath.Join(dir, "watchfan.crt")}
	config.AuthInfos["admin"] = &api.AuthInfo{TokenFile: c.TokenFiles["admin"]}
	config.Contexts["watchfan"] = &api.Context{Cluster: "watchfan", AuthInfo: "admin"}
	config.CurrentContext = "watchfan"
	kubeconfig = filepath.Join(dir, "kubeconfig")
	if err := clientcmd.WriteToFile(*config, kubeconfig); err != nil {
		t.Fatal(err)
	}
	return kubeconfig, ports.Admin
}

// start runs a program until the test ends, and then shows what it said if the
// test has failed.
func start(t *testing.T, program string, args ...string) {
	t.Helper()
	var log bytes.Buffer
	cmd := exec.Command(program, args...)
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		if err := cmd.Wait(); err != nil {
			t.Errorf("%s: %v", program, err)
		}
		if t.Failed() {
			lines := strings.Split(strings.TrimSpace(log.String()), "\n")
			t.Logf("%s said at last:\n%s", program, strings.Join(lines[max(0, len(lines)-40):], "\n"))
		}
	})
}

// waitForJSON waits until a file is there and holds a JSON object.
func waitForJSON(t *testing.T, timeout time.Duration, path string, into any) {
	t.Helper()
	//testlint:allow timer the condition is looked at again
	for deadline := time.Now().Add(timeout); ; time.Sleep(20 * time.Millisecond) {
		content, err := os.ReadFile(path)
		if err == nil {
			err = json.Unmarshal(content, into)
		}
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
}

var deliveredEventsTotal = regexp.MustCompile(`(?m)^watchfan_delivered_events_total\{.*\} (\S+)$`)

// deliveredEvents returns how many events watchfan has sent from its caches.
func deliveredEvents(t *testing.T, admin string) float64 {
	t.Helper()
	resp, err := http.Get(fmt.Sprintf("http://%s/metrics", admin))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var text bytes.Buffer
	if _, err := text.ReadFrom(resp.Body); err != nil {
		t.Fatal(err)
	}
	matches := deliveredEventsTotal.FindAllStringSubmatch(text.String(), -1)
	if matches == nil {
		t.Fatalf("no watchfan_delivered_events_total in:\n%s", text.String())
	}
	var n float64
	for _, match := range matches {
		one, err := strconv.ParseFloat(match[1], 64)
		if err != nil {
			t.Fatal(err)
		}
		n += one
	}
	return n
}
