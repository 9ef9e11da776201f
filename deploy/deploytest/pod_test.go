package deploytest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
	"unsafe"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"golang.org/x/sys/unix"
)

// A pod is run here as a kubelet and kube-proxy would: its containers' programs see the environment,
// the hosts file and the token volume of the pod, in a network where the Services' addresses lead to
// programs of this host. The test binary starts itself in namespaces of its own for that.

// podVariable has the file of a podRun. The test binary then runs as that pod.
const podVariable = "DEPLOYTEST_POD"

// inClusterClient is the command of a container that is a client of Go: readInCluster.
const inClusterClient = "in-cluster-client"

// podRun is what one container sees.
type podRun struct {
	Hosts    string            // file for /etc/hosts
	Account  string            // folder for the token volume
	Services map[string]string // sockets by IP address, for port 443
	Commands [][]string        // one after another
}

const accountPath = "/var/run/secrets/kubernetes.io/serviceaccount"

// services leads the addresses of Services to programs of this host, and counts connections.
type services struct {
	dir   string
	bound map[string]*service // by IP address
}

type service struct {
	target atomic.Pointer[string] // host and port
	opened atomic.Int64
}

func newServices(t *testing.T) *services {
	t.Helper()
	dir, err := os.MkdirTemp("", "pods") // short, because a socket's path is
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return &services{dir: dir, bound: make(map[string]*service)}
}

// bind leads addresses to a program.
func (s *services) bind(t *testing.T, target string, addresses ...string) *service {
	t.Helper()
	to := &service{}
	to.target.Store(&target)
	for _, address := range addresses {
		socket, err := net.Listen("unix", filepath.Join(s.dir, strings.ReplaceAll(address, ":", "_")))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = socket.Close() })
		go forward(socket, func() (net.Conn, error) {
			to.opened.Add(1)
			return net.Dial("tcp", *to.target.Load())
		})
		s.bound[address] = to
	}
	return to
}

// forward copies what comes to a listener to connections of its own, until the listener is closed.
func forward(from net.Listener, dial func() (net.Conn, error)) {
	for {
		near, err := from.Accept()
		if err != nil {
			return
		}
		go func() {
			defer near.Close()
			far, err := dial()
			if err != nil {
				return
			}
			defer far.Close()
			var copying sync.WaitGroup
			copying.Go(func() { _, _ = io.Copy(far, near); _ = far.SetDeadline(time.Now()) })
			_, _ = io.Copy(near, far)
			_ = near.SetDeadline(time.Now())
			copying.Wait()
		}()
	}
}

// run runs commands in a container of a pod, and returns what they print.
func (s *services) run(t *testing.T, c *cluster, pod *corev1.Pod, container corev1.Container,
	commands ...[]string) (string, error) {
	t.Helper()
	dir := t.TempDir()
	spec := podRun{Hosts: filepath.Join(dir, "hosts"), Account: filepath.Join(dir, "account"),
		Services: make(map[string]string), Commands: commands}
	for address := range s.bound {
		spec.Services[address] = filepath.Join(s.dir, strings.ReplaceAll(address, ":", "_"))
	}
	hosts := "127.0.0.1\tlocalhost\n"
	for _, alias := range pod.Spec.HostAliases {
		hosts += alias.IP + "\t" + strings.Join(alias.Hostnames, "\t") + "\n"
	}
	c.accountVolume(t, pod, container, spec.Account)
	content, err := json.Marshal(spec)
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string][]byte{"hosts": []byte(hosts), "run": content} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), podVariable + "=" + filepath.Join(dir, "run"),
		"KUBERNETES_SERVICE_HOST=10.0.0.1", "KUBERNETES_SERVICE_PORT=443"} // a kubelet's own, which the pod's win over
	for _, v := range container.Env {
		cmd.Env = append(cmd.Env, v.Name+"="+v.Value)
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET | syscall.CLONE_NEWNS,
		Pdeathsig: syscall.SIGKILL}
	if os.Geteuid() != 0 {
		cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}}
	}
	out, err := cmd.CombinedOutput()
	if errors.Is(err, syscall.EPERM) && cmd.ProcessState == nil {
		t.Skipf("no namespaces for pods: %v", err)
	}
	return string(out), err
}

// accountVolume writes what a container mounts at accountPath. A pod without it gets an empty folder.
func (c *cluster) accountVolume(t *testing.T, pod *corev1.Pod, container corev1.Container, dir string) {
	t.Helper()
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, mount := range container.VolumeMounts {
		for _, volume := range pod.Spec.Volumes {
			if mount.MountPath != accountPath || volume.Name != mount.Name || volume.Projected == nil {
				continue
			}
			for _, source := range volume.Projected.Sources {
				for name, content := range c.project(t, pod, source) {
					if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
						t.Fatal(err)
					}
				}
			}
		}
	}
}

// project returns the files of one source of a token volume.
func (c *cluster) project(t *testing.T, pod *corev1.Pod, source corev1.VolumeProjection) map[string]string {
	t.Helper()
	switch {
	case source.ServiceAccountToken != nil:
		r, err := c.client.CoreV1().ServiceAccounts(pod.Namespace).CreateToken(t.Context(), pod.Spec.ServiceAccountName,
			&authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
				ExpirationSeconds: source.ServiceAccountToken.ExpirationSeconds,
				BoundObjectRef: &authenticationv1.BoundObjectReference{Kind: "Pod", APIVersion: "v1", Name: pod.Name,
					UID: pod.UID}}}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return map[string]string{source.ServiceAccountToken.Path: r.Status.Token}
	case source.ConfigMap != nil:
		m, err := c.client.CoreV1().ConfigMaps(pod.Namespace).Get(t.Context(), source.ConfigMap.Name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		files := make(map[string]string)
		for _, item := range source.ConfigMap.Items {
			files[item.Path] = m.Data[item.Key]
		}
		return files
	}
	return map[string]string{"namespace": pod.Namespace}
}

// runAsPod is the process in the namespaces: it makes them those of a pod, and runs its commands.
func runAsPod(file string) (code int) {
	var spec podRun
	content, err := os.ReadFile(file)
	if err == nil {
		err = json.Unmarshal(content, &spec)
	}
	if err == nil {
		err = errors.Join(spec.mount(), spec.connect())
	}
	for _, command := range spec.Commands {
		if err != nil {
			break
		}
		if command[0] == inClusterClient {
			err = readInCluster(command[1:])
			continue
		}
		cmd := exec.Command(command[0], command[1:]...)
		cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
		err = cmd.Run()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// mount puts the pod's files where its programs look for them.
func (p *podRun) mount() error {
	return errors.Join(
		unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""),
		unix.Mount(p.Hosts, "/etc/hosts", "", unix.MS_BIND, ""),
		unix.Mount("tmpfs", "/var/run", "tmpfs", 0, ""),
		os.MkdirAll(accountPath, 0o700),
		unix.Mount(p.Account, accountPath, "", unix.MS_BIND, ""))
}

// connect gives the loopback interface the Services' addresses, and connects their port 443 to the
// sockets.
func (p *podRun) connect() error {
	for address, socket := range p.Services {
		if err := addAddress(netip.MustParseAddr(address)); err != nil {
			return fmt.Errorf("add %s: %w", address, err)
		}
		l, err := (&net.ListenConfig{Control: freely}).Listen(context.Background(), "tcp", net.JoinHostPort(address, "443"))
		if err != nil {
			return err
		}
		go forward(l, func() (net.Conn, error) { return net.Dial("unix", socket) })
	}
	return nil
}

// freely lets a socket have an IPv6 address that the kernel still makes sure of (ip(7), IP_FREEBIND).
func freely(_, _ string, c syscall.RawConn) error {
	var set error
	err := c.Control(func(fd uintptr) { set = unix.SetsockoptInt(int(fd), unix.SOL_IP, unix.IP_FREEBIND, 1) })
	return errors.Join(err, set)
}

// addAddress adds an address to the loopback interface (netdevice(7)). An IPv4 address brings its
// whole class.
func addAddress(ip netip.Addr) error {
	family := unix.AF_INET
	if ip.Is6() {
		family = unix.AF_INET6
	}
	socket, err := unix.Socket(family, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(socket)
	lo, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	lo.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	if err := unix.IoctlIfreq(socket, unix.SIOCSIFFLAGS, lo); err != nil {
		return err
	}
	if ip.Is6() {
		request := struct {
			ip     [16]byte
			prefix uint32
			index  int32
		}{ip.As16(), 128, 1}
		at := uintptr(unsafe.Pointer(&request))
		if _, _, e := unix.Syscall(unix.SYS_IOCTL, uintptr(socket), unix.SIOCSIFADDR, at); e != 0 {
			return e
		}
		return nil
	}
	alias, err := unix.NewIfreq("lo:" + strings.ReplaceAll(ip.String()[len(ip.String())-2:], ".", "x"))
	if err == nil {
		err = alias.SetInet4Addr(ip.AsSlice())
	}
	if err != nil {
		return err
	}
	return unix.IoctlIfreq(socket, unix.SIOCSIFADDR, alias)
}

// readInCluster reads as a controller does, with client-go's in-cluster configuration: a list, and a
// watch until a ConfigMap that was listed.
func readInCluster(args []string) error {
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
}
