package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

// binEnv names a devcluster to test. Without it, this test binary plays it.
const binEnv = "DEVCLUSTER_BIN"

// devcluster returns the command that runs devcluster with args.
func devcluster(t *testing.T, args ...string) *exec.Cmd {
	path := os.Getenv(binEnv)
	if path == "" {
		var err error
		if path, err = os.Executable(); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command(path, args...)
	cmd.Env = append(os.Environ(), mainEnv+"=1")
	return cmd
}

// mustRun runs devcluster with args and returns what it printed.
func mustRun(t *testing.T, args ...string) string {
	t.Helper()
	out, err := devcluster(t, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("devcluster %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// running is a devcluster that is ready.
type running struct {
	Ready
	dir Dir
	cmd *exec.Cmd
}

// up starts devcluster in dir and waits for the line that says it is ready.
func up(t *testing.T, dir string, args ...string) *running {
	t.Helper()
	cmd := devcluster(t, append([]string{"--dir", dir}, args...)...)
	cmd.Stderr = t.Output()
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		t.Fatalf("devcluster ended before it was ready: %v", err)
	}
	r := &running{dir: Dir(dir), cmd: cmd}
	r.readReady(t)
	if want := "devcluster ready: " + r.Server + " kubeconfig=" + r.Kubeconfigs["admin"] + "\n"; line != want {
		t.Errorf("got line %q, want %q", line, want)
	}
	return r
}

// readReady waits for the file ready and reads it.
func (r *running) readReady(t *testing.T) {
	t.Helper()
	var data []byte
	eventually(t, "file ready", func() (err error) {
		data, err = os.ReadFile(r.dir.file(readyFile))
		return err
	})
	r.Ready = Ready{}
	if err := json.Unmarshal(data, &r.Ready); err != nil {
		t.Fatal(err)
	}
	for name, pid := range r.Pids {
		if fromFile, err := r.dir.readPid(name); err != nil || fromFile != pid {
			t.Errorf("%s.pid: got %d, %v, want %d as in ready", name, fromFile, err, pid)
		}
		if err := syscall.Kill(pid, 0); err != nil {
			t.Errorf("%s, pid %d: %v", name, pid, err)
		}
	}
}

// client returns a client that is user: admin, user or reader.
func (r *running) client(t *testing.T, user string) *kubernetes.Clientset {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", r.Kubeconfigs[user])
	if err != nil {
		t.Fatal(err)
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// checkGone fails the test unless every process of r ends soon.
func (r *running) checkGone(t *testing.T) {
	t.Helper()
	for name, pid := range r.Pids {
		eventually(t, name+" is gone", func() error {
			if syscall.Kill(pid, 0) == nil {
				return errors.New("still there")
			}
			return nil
		})
	}
}

// eventually retries f for two minutes.
func eventually(t *testing.T, what string, f func() error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	if err := poll(ctx, func(context.Context) error { return f() }); err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

// TestEndToEnd is the life of one cluster, told in order.
func TestEndToEnd(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a cluster several times")
	}
	dir := filepath.Join(t.TempDir(), strings.Repeat("long", 30)) // longer than a socket address can be
	r := up(t, dir, "--unsafe-no-fsync")
	admin := r.client(t, "admin")
	if got, err := admin.Discovery().ServerVersion(); os.Getenv(binEnv) != "" && (err != nil || got.GitVersion != "v1.37.2") {
		t.Errorf("version: got %v, %v", got, err)
	}

	step(t, "files", func(t *testing.T) {
		private := []string{caKeyFile, servingKeyFile, accountKeyFile, tokenAuthFile}
		for _, u := range users {
			private = append(private, u.kubeconfigFile(), u.tokenFile())
		}
		for _, name := range private {
			checkPrivate(t, r.dir.file(name))
		}
	})
	step(t, "rights", func(t *testing.T) { checkRights(t, r) })
	configMap := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "e2e"}}
	if _, err := admin.CoreV1().ConfigMaps("default").Create(t.Context(), configMap, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	step(t, "one at a time", func(t *testing.T) {
		if out, err := devcluster(t, "--dir", dir).CombinedOutput(); err == nil ||
			!strings.Contains(string(out), "in use") {
			t.Errorf("a second devcluster on the same directory: got %v %q", err, out)
		}
	})
	step(t, "children come back", func(t *testing.T) {
		for _, name := range []string{"kube-apiserver", "etcd"} {
			before := r.Pids
			if err := syscall.Kill(before[name], syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			eventually(t, "notice", func() error {
				if exists(r.dir.file(readyFile)) {
					return errors.New("file ready is still there")
				}
				return nil
			})
			r.readReady(t)
			if r.Pids[name] == before[name] {
				t.Errorf("%s is the same process as before it was killed", name)
			}
			checkObject(t, admin)
		}
	})
	step(t, "stop", func(t *testing.T) {
		// A stopped etcd must not be in the way.
		if err := syscall.Kill(r.Pids["etcd"], syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		mustRun(t, "stop", "--dir", dir)
		if err := r.cmd.Wait(); err != nil {
			t.Errorf("devcluster: got %v, want exit code 0", err)
		}
		r.checkGone(t)
		for _, name := range []string{"ready", "control.sock", "devcluster.pid", "etcd.pid", "kube-apiserver.pid"} {
			if exists(r.dir.file(name)) {
				t.Errorf("%s is still there", name)
			}
		}
		if out := mustRun(t, "stop", "--dir", dir); !strings.Contains(out, "not running") {
			t.Errorf("stop again: got %q", out)
		}
	})
	whole := t // a devcluster lives until the end of the test that started it
	step(t, "continue", func(t *testing.T) {
		before := r.Ready
		r = up(whole, dir)
		if r.Server != before.Server || r.EtcdEndpoint != before.EtcdEndpoint {
			t.Errorf("got %s and %s, want the same as before", r.Server, r.EtcdEndpoint)
		}
		checkObject(t, admin) // so certificates and tokens are the same too
	})
	step(t, "killed parent", func(t *testing.T) {
		if err := r.cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		r.cmd.Wait()
		r.checkGone(t)
		r = up(whole, dir)
		checkObject(t, admin)
		if err := r.cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		if err := r.cmd.Wait(); err != nil {
			t.Errorf("devcluster: got %v, want exit code 0", err)
		}
		r.checkGone(t)
	})
}

// step runs f as a subtest that the following steps rely on.
func step(t *testing.T, name string, f func(*testing.T)) {
	t.Helper()
	if !t.Run(name, f) {
		t.FailNow()
	}
}

// checkPrivate fails the test if others can read path.
func checkPrivate(t *testing.T, path string) {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if mode := info.Mode().Perm(); mode&0o077 != 0 {
		t.Errorf("%s: got mode %v, want none for others", path, mode)
	}
}

// checkObject fails the test unless what it has created is there.
func checkObject(t *testing.T, client kubernetes.Interface) {
	t.Helper()
	if _, err := client.CoreV1().ConfigMaps("default").Get(t.Context(), "e2e", metav1.GetOptions{}); err != nil {
		t.Error(err)
	}
}

func checkRights(t *testing.T, r *running) {
	paths := []string{
		"/api/v1/pods", "/api/v1/nodes", "/apis/apps/v1/deployments", "/apis/rbac.authorization.k8s.io/v1/clusterroles", "/api/v1/secrets",
	}
	allowed := map[string][]string{"admin": paths, "user": nil, "reader": paths[:len(paths)-1]}
	for user, want := range allowed {
		client := r.client(t, user).Discovery().RESTClient()
		for _, path := range paths {
			err := client.Get().AbsPath(path).Do(t.Context()).Error()
			if slices.Contains(want, path) && err != nil ||
				!slices.Contains(want, path) && !apierrors.IsForbidden(err) {
				t.Errorf("%s gets %s: %v", user, path, err)
			}
		}
	}
	err := r.client(t, "reader").CoreV1().Pods("default").Delete(t.Context(), "e2e", metav1.DeleteOptions{})
	if !apierrors.IsForbidden(err) {
		t.Errorf("reader deletes a pod: got %v, want 403", err)
	}
}

// TestTemporary: without --dir nothing is left behind, and the log of a child
// that cannot start is shown.
func TestTemporary(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a cluster")
	}
	temp, kubeconfig := t.TempDir(), filepath.Join(t.TempDir(), "kubeconfig")
	start := func(args ...string) (*exec.Cmd, *bufio.Reader, *strings.Builder) {
		cmd := devcluster(t, append([]string{"up", "--kubeconfig", kubeconfig, "--memory"}, args...)...)
		cmd.Env = append(cmd.Env, "TMPDIR="+temp)
		stdout, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		var stderr strings.Builder
		cmd.Stderr = io.MultiWriter(&stderr, t.Output())
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { cmd.Process.Kill() })
		return cmd, bufio.NewReader(stdout), &stderr
	}
	checkNothingLeft := func(stderr string) {
		t.Helper()
		if entries, err := os.ReadDir(temp); err != nil || len(entries) > 0 {
			t.Errorf("left in the temporary directory: %v, %v", entries, err)
		}
		if exists(kubeconfig) {
			t.Error("the kubeconfig is still there")
		}
		_, data, found := strings.Cut(stderr, "data in ")
		data, _, _ = strings.Cut(data, "\n")
		if !found || exists(data) {
			t.Errorf("etcd's data %q is still there", data)
		}
	}

	cmd, stdout, stderr := start()
	line, err := stdout.ReadString('\n')
	if err != nil || !strings.HasSuffix(line, " kubeconfig="+kubeconfig+"\n") {
		t.Fatalf("got line %q, %v", line, err)
	}
	if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("devcluster: got %v, want exit code 0", err)
	}
	checkNothingLeft(stderr.String())

	cmd, _, stderr = start("--apiserver-arg", "no-such-flag=1")
	if err := cmd.Wait(); err == nil || !strings.Contains(stderr.String(), "unknown flag: --no-such-flag") {
		t.Errorf("bad kube-apiserver flag: got %v, %s", err, stderr)
	}
	checkNothingLeft(stderr.String())
}
