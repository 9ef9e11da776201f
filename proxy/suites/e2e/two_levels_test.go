package e2e_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd/api"

	"github.com/watchfan/watchfan/proxy/suites/proxytest"
)

// levels are a watchfan whose upstream is a watchfan.
type levels struct {
	cluster      *cluster
	upper, lower *watchfan
	front        *proxytest.Relay // of the lower
}

func newLevels(t *testing.T, c *cluster, upperFlags ...string) *levels {
	t.Helper()
	s := &levels{cluster: c}
	s.startLower(t)
	s.front = proxytest.NewRelay(t, s.lower.Ports.Secure)
	over := programWay{target: &target{base: "https://" + s.front.Address()}}
	s.upper = privateWatchfan(t, c, append([]string{"--kubeconfig=" + over.kubeconfig(t, &api.AuthInfo{TokenFile: c.Ready.TokenFiles["admin"]})}, upperFlags...)...)
	s.upper.waitReady(t)
	return s
}

func (s *levels) startLower(t *testing.T) {
	t.Helper()
	s.lower = privateWatchfan(t, s.cluster, "--drain-duration=1s", "--shutdown-timeout=3s")
	s.lower.waitReady(t)
}

// TestTwoLevelsReads: reads through two watchfans show every write before them, and rights are
// decided as by kube-apiserver, for tokens and for certificates. A certificate becomes an
// impersonation on the way.
func TestTwoLevelsReads(t *testing.T) {
	parallel(t)
	c := sharedCluster(t)
	users := c.authority(t)
	s := newLevels(t, c, "--client-ca-file="+users.File)
	direct := c.direct(t)
	const ns = "levels-reads"
	createNamespaces(t, direct, ns)
	uri := "/api/v1/namespaces/" + ns + "/configmaps"
	for i := range 8 { // a smaller list would be passed through
		direct.create(t, uri, fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"c%d"},"data":{"pad":%q}}`, i,
			strings.Repeat("x", 40<<10)))
	}
	var boss, jane [2]*target
	certified := &certified{cluster: c, proxy: s.upper}
	boss[0], boss[1] = certified.ways(t, users.client(t, "boss", "system:masters"))
	jane[0], jane[1] = certified.ways(t, users.client(t, "jane"))
	warm(t, []*target{s.upper.secure(t, c.token(t, "admin"))}, uri) // a short watch is refused meanwhile
	for name, ways := range map[string][2]*target{
		"reader":              {s.upper.secure(t, c.token(t, "reader")), c.as(t, "reader")},
		"nobody":              {s.upper.secure(t, ""), c.as(t, "")},
		"admin's certificate": boss,
		"other certificate":   jane,
	} {
		watch := uri + "?watch=1&resourceVersion=0&timeoutSeconds=5" //testlint:allow timeout whole answers are compared
		var rows []row
		for _, path := range []string{uri, uri + "/c3", uri + "?resourceVersion=0", strings.Replace(uri, "configmaps", "secrets", 1), watch} {
			rows = append(rows, row{id: name, uri: path})
		}
		checkAll(t, rows, ways[1], ways[0])
	}

	way := s.upper.plain(t)
	for i := range 12 {
		rv := direct.patch(t, uri+"/c1", fmt.Sprintf(`{"data":{"n":"%d"}}`, i))
		if i%4 == 0 {
			time.Sleep(1200 * time.Millisecond) //testlint:allow timer the stream of a resource that is quiet for a while proves nothing
		}
		resp := way.get(t, uri)
		if got := listVersion(t, resp.body); got < rv || !strings.Contains(string(resp.body), fmt.Sprintf(`"n":"%d"`, i)) {
			t.Errorf("a list at %d behind a write at %d does not show it", got, rv)
		}
	}
}
