//testlint:allow timeout whole answers to watches are compared

package e2e_test

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"encoding/base64"
	bigendian "encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/watchfan/watchfan/proxy/proxytest"
	"github.com/watchfan/watchfan/proxy/proxytest/steady"
)

// quietCluster returns a cluster in which nobody writes what others read in all namespaces, and the
// watchfan in front of it. It has the objects of contract.md 8.1.
func quietCluster(t *testing.T) (c *cluster, p *watchfan) {
	t.Helper()
	quiet.mu.Lock()
	defer quiet.mu.Unlock()
	if first := quiet.proxy == nil; first {
		makeFixtures(t, quiet.clusterLocked(t).direct(t))
	}
	p = quiet.watchfanLocked(t)
	p.waitReady(t)
	return quiet.cluster, p
}

func makeFixtures(t *testing.T, d *target) {
	t.Helper()
	createNamespaces(t, d, "a", "a-b", "b", "big")
	for _, ns := range []string{"b", "a", "a-b"} {
		for _, name := range []string{"y", "x"} {
			d.create(t, "/api/v1/namespaces/"+ns+"/configmaps",
				fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":%q,"labels":{"l":"1",`+
					`"n":"%d"}},"data":{"k":"<&>\u2028é😀","e":""},"binaryData":{"b":"AAEC/w=="}}`, name, len(ns)))
		}
	}
	for _, n := range []int{129_000, 130_900, 200_000} { // around the threshold of compression
		d.create(t, "/apis/apps/v1/namespaces/big/controllerrevisions",
			fmt.Sprintf(`{"metadata":{"name":"big-%d"},"revision":1,"data":{"k":%q}}`, n, strings.Repeat("x", n)))
	}
	d.create(t, "/api/v1/namespaces/a/endpoints", `{"apiVersion":"v1","kind":"Endpoints","metadata":{"name":"e"}}`)
	d.create(t, "/api/v1/namespaces/a/pods", podBody("p", "n1"))
	for _, name := range oddNames {
		d.create(t, "/apis/rbac.authorization.k8s.io/v1/namespaces/a/roles", fmt.Sprintf(`{"metadata":{"name":%q}}`, name))
	}
	createCRD(t, d, "ex.io", "Foo", "Namespaced")
	for _, name := range []string{"f1", "f2"} {
		d.create(t, "/apis/ex.io/v1/namespaces/a/foos",
			fmt.Sprintf(`{"apiVersion":"ex.io/v1","kind":"Foo","metadata":{"name":%q},`+
				`"spec":{"c":"red","n":9007199254740993}}`, name))
	}
	for uri, last := range map[string]string{"/openapi/v3": "apis/ex.io/v1", "/apis": "ex.io/v1"} { // published late
		steady.Until(t, last+" in "+uri, func() error {
			if resp := d.get(t, uri); !bytes.Contains(resp.body, []byte(last)) {
				return fmt.Errorf("%d bytes without it", len(resp.body))
			}
			return nil
		})
	}
}

// oddNames are names that only RBAC's kinds may have. They mean something in URLs and selectors.
var oddNames = []string{"a=b", "a,b", `a\b`, "a b", "a+b&c;d#e?f", "é😀"}

const (
	jsonType  = "application/json"
	protoType = "application/vnd.kubernetes.protobuf"
	tableType = "application/json;as=Table;v=v1;g=meta.k8s.io"
	partial   = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
	partials  = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
)

// row is one request of contract.md 8, sent both ways.
type row struct {
	id     string
	method string // GET if empty
	uri    string // C, Ca, F and R0 as there
	header http.Header
	body   string
	table  bool // ages differ
	half   bool // of the lower half, and kube-apiserver ignores shardSelector
	cached bool // watchfan has to answer itself
	asker  asker
}

func accept(types ...string) http.Header { return http.Header{"Accept": {strings.Join(types, ",")}} }

func rows() []row {
	var rows []row
	add := func(id, uri string, header ...http.Header) {
		r := row{id: id, uri: uri}
		if len(header) > 0 {
			r.header = header[0]
		}
		rows = append(rows, r)
	}
	add("C01", "C")
	add("C02", "C/")
	add("C02", "/api/v1/namespaces/a/configmaps/x/")
	add("C03", "Ca/x?watch=1")
	add("C04", "C?watch=&resourceVersion=R0&timeoutSeconds=10")
	add("C05", "C?watch=banana&resourceVersion=R0&timeoutSeconds=10")
	add("C06", "C?watch=False")
	add("C06", "C?watch=0")
	add("C07", "C?watch=false&watch=true")
	add("C08", "C?foo=bar&Watch=true")
	add("C09", "C?limit=1;labelSelector=zz")
	add("C10", "/api/v1/watch/configmaps?timeoutSeconds=10&labelSelector=l%3D1")
	add("C11", "/api/v1/watch/namespaces/a/configmaps/x?timeoutSeconds=10")
	add("C12", "/api/v1/watch/namespaces/a/configmaps/x?fieldSelector=metadata.name%3Dy")
	add("C13", "/api/v1/watch/configmaps?sendInitialEvents=true&resourceVersionMatch=NotOlderThan")
	add("C14", "/apis/ex.io/v1/watch/foos?timeoutSeconds=10")
	add("C15", "/api/v1/watch")
	rows = append(rows, row{id: "C16", method: "HEAD", uri: "C"}, row{id: "C16", method: "HEAD", uri: "F"},
		row{id: "C16", method: "HEAD", uri: "F?resourceVersion=0"},
		row{id: "C17", method: "POST", uri: "/api/v1/watch/configmaps", body: "{}"})
	add("C18", "/api/v1/nosuch")
	add("C18", "/api/v1/nosuch?watch=1&timeoutSeconds=10")
	add("C18", "/apis/nosuch.io/v1/x")
	add("C18", "/apis/ex.io/v1/bars")
	add("C19", "/api/v1/namespaces/zzz/configmaps")
	add("C19", "/api/v1/namespaces/zzz/configmaps?resourceVersion=0")
	add("C20", "/api/v1/namespaces/a/nodes")
	add("C20", "/api/v1/namespaces/a/nodes?watch=1&timeoutSeconds=10")
	add("C20", "/api/v1/configmaps/x?resourceVersion=0")
	add("C21", "/api/v1/componentstatuses?watch=1")
	for _, q := range []string{"", "?resourceVersion=0", "?resourceVersion=R0"} {
		add("C22", "Ca/nope"+q)
		add("C22", "/apis/ex.io/v1/namespaces/a/foos/nope"+q)
		add("get", "Ca/x"+q)
		add("get", "/apis/ex.io/v1/namespaces/a/foos/f1"+q)
		add("get", "/api/v1/namespaces/a"+q)
	}
	for _, q := range []string{
		"labelSelector=a+b", "labelSelector=a%3D%21", "labelSelector=a%3D-x", "fieldSelector=foo",
		"fieldSelector=a%3Db%5Cx", "fieldSelector=a%3Db%3Dc",
		"fieldSelector=spec.x%3D1", "timeoutSeconds=abc", "limit=abc", "resourceVersion=abc",
		"resourceVersion=-1", "resourceVersion=007",
		"resourceVersionMatch=Exact", "resourceVersionMatch=Foo&resourceVersion=1",
		"resourceVersionMatch=Exact&resourceVersion=0", "sendInitialEvents=true",
		"resourceVersionMatch=NotOlderThan&sendInitialEvents=true",
		"continue=abc&resourceVersionMatch=Exact&resourceVersion=1", "continue=abc",
		"continue=%21%21", "continue=abc&resourceVersion=5", "resourceVersion=0&resourceVersionMatch=Foo", "limit=-1",
		"timeout=abc", "resourceVersion=0&timeout=abc",
		"resourceVersion=0&labelSelector=a+b", "resourceVersion=0&fieldSelector=spec.x%3D1",
		"resourceVersion=0&limit=x", "shardSelector=x",
		"continue=" + token("meta.k8s.io/v1", 0, "a"), "continue=" + token("meta.k8s.io/v1", 5, ""), "continue=" +
			token("x", 5, "a"), "continue=" + token("meta.k8s.io/v1", 5, "../y"),
	} {
		add("C23/L13", "C?"+q)
		if !strings.HasPrefix(q, "continue") {
			add("C23", "C?watch=1&"+q+"&timeoutSeconds=10")
		}
	}
	add("C23", "C?watch=1&sendInitialEvents=true&timeoutSeconds=10")
	add("C23", "C?watch=1&sendInitialEvents=true&resourceVersionMatch=Exact&timeoutSeconds=10")
	add("C23", "C?watch=1&resourceVersionMatch=NotOlderThan&resourceVersion=0&timeoutSeconds=10")
	add("C23", "C?watch=1&resourceVersionMatch=NotOlderThan&sendInitialEvents=1&continue=x&timeoutSeconds=10")
	add("C23", "Ca/x?resourceVersion=abc")
	add("C23", "Ca/x?export=1")
	add("C23", "F?fieldSelector=spec.x%3D1&resourceVersion=0")
	add("C23", "/api/v1/pods?fieldSelector=spec.x%3D1&resourceVersion=0")
	add("C25", "C?watch=1&resourceVersion=R0&timeoutSeconds=-5")
	add("C27", "C?watch=1&timeout=abc&timeoutSeconds=10&labelSelector=l")
	for _, uri := range []string{"C?resourceVersion=0", "C", "C?watch=1&timeoutSeconds=10&resourceVersion=R0", "Ca/nope",
		"Ca/nope?resourceVersion=0", "/api/v1/nosuch", "C?limit=x"} {
		add("C28", uri, http.Header{"Audit-Id": {"my-id"}})
	}
	add("C29", "C?limit=-1&resourceVersion=0")
	add("//", "/api//v1/configmaps")
	add("//", "//api/v1/configmaps")
	add("//", "/api/v1/namespaces//configmaps?resourceVersion=0")

	add("L02", "C?resourceVersion=0&limit=2")
	add("L03", "C?resourceVersion=0&resourceVersionMatch=NotOlderThan&limit=2")
	add("L05", "C?limit=2&labelSelector=l%3D1")
	add("L05", "C?limit=2&labelSelector=l%3D1&resourceVersion=R0&resourceVersionMatch=NotOlderThan")
	add("L14", "C?resourceVersion=R0&resourceVersionMatch=Exact")
	add("L15", "C?resourceVersion=R0&limit=1")
	add("L16", "C?resourceVersion=R0")
	add("L17", "C?resourceVersion=R0&resourceVersionMatch=NotOlderThan&limit=1")
	add("L17", "Ca?resourceVersion=R0&resourceVersionMatch=NotOlderThan&limit=1")
	add("L18", "C?resourceVersion=99999999")
	add("L19", "C?resourceVersion=99999999&resourceVersionMatch=Exact")
	add("L19", "Ca/x?resourceVersion=99999999")
	add("L20", "/api/v1/events?resourceVersion=99999999")
	add("L22", "/api/v1/namespaces?fieldSelector=metadata.name%3Da&limit=1&resourceVersion=R0&resourceVersionMatch=NotOlderThan")
	for _, rv := range []string{"", "&resourceVersion=0", "&resourceVersion=R0"} {
		add("L22", "Ca?fieldSelector=metadata.name%3Dx&limit=1"+rv)
		add("L23", "C?fieldSelector=metadata.name%3Dx"+rv)
		add("L24", "C?fieldSelector=metadata.name%3Dx,metadata.namespace%3Da"+rv)
		for _, f := range []string{"metadata.name%21%3Dx", "metadata.name%3D", "%2C", "metadata.name%3D.."} {
			add("L25", "C?fieldSelector="+f+rv)
		}
		for _, l := range []string{"l", "%21l", "l%3D1", "l%3D%3D1", "l%21%3D1", "l+in+%281%2C2%29", "l+in+%28%29",
			"l+notin+%281%29", "l%3E0", "n%3E2", "n%3C2,l", "l%3D", ""} {
			add("L26", "C?labelSelector="+l+rv)
		}
		add("L27", "F?fieldSelector=spec.c%3Dred"+rv)
		add("L28", "F?x=y"+rv)
		for _, f := range []string{"spec.nodeName%3Dn1", "spec.nodeName%21%3Dn1", "spec.host%3Dn1",
			"spec.restartPolicy%3DAlways", "spec.schedulerName%3Ddefault-scheduler",
			"spec.serviceAccountName%3D", "spec.hostNetwork%3Dfalse", "status.phase%3DPending",
			"status.nominatedNodeName%3D", "status.podIP%3D", "status.podIPs%3D1.2.3.4", "status.podIPs%21%3D1.2.3.4"} {
			add("L29", "/api/v1/pods?fieldSelector="+f+rv)
		}
		add("L30", "/apis/rbac.authorization.k8s.io/v1/clusterroles?fieldSelector=metadata.namespace%3Dfoo"+rv)
		add("L30", "/api/v1/nodes?fieldSelector=metadata.namespace%3Dfoo"+rv)
		for _, f := range []string{"spec.type%3DClusterIP", "spec.clusterIP%21%3DNone,metadata.namespace%3Ddefault"} {
			add("L32", "/api/v1/services?fieldSelector="+f+rv) // an error in 1.30
		}
		add("L31", "C?shardSelector=shardRange%28object.metadata.uid,%270x0000000000000000%27,%270x8000000000000000%27%29"+rv)
	}
	add("L31", "C?watch=1&timeoutSeconds=10&resourceVersion=0&shardSelector=shardRange%28object.metadata.uid,"+
		"%270x0000000000000000%27,%270x8000000000000000%27%29")
	add("L28", "F?limit=1")
	add("L28", "F?limit=1&resourceVersion=R0&resourceVersionMatch=NotOlderThan")

	for _, rv := range []string{"", "?resourceVersion=0"} {
		for _, a := range []string{"*/*", jsonType, "application/json;charset=utf-8", "text/html,application/json",
			"application/json;q=0.5,application/yaml;q=0.9",
			"*/*;q=1,application/yaml;q=0.1", "application/json;q=0,application/vnd.kubernetes.protobuf;q=0",
			"text/html", "application/*", protoType,
			protoType + "," + jsonType, "application/yaml", "application/json;stream=watch", "application/cbor",
			"application/json;pretty=1", partials, partial,
			"application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1",
			"application/json;as=Foo", "", "application/json;q=bad"} {
			add("N01-N13", "C"+rv, accept(a))
			add("N01-N13", "F"+rv, accept(a))
		}
		rows = append(rows,
			row{id: "N14", uri: "C" + rv, header: accept(tableType), table: true},
			row{id: "N14", uri: "F" + rv, header: accept(tableType), table: true},
			row{id: "N14", uri: "/api/v1/pods" + rv, header: accept(tableType, jsonType), table: true})
	}
	add("N14", "C?includeObject=X", accept(tableType))
	rows = append(rows, row{id: "N14", uri: "Ca/x", header: accept(tableType), table: true},
		row{id: "N14", uri: "Ca?includeObject=Object", header: accept(tableType), table: true},
		row{id: "N14", uri: "C?watch=1&timeoutSeconds=10&resourceVersion=0&includeObject=None",
			header: accept(tableType), table: true})
	add("N06", "Ca/x?resourceVersion=0", accept(protoType))
	add("N06", "Ca/nope", accept(protoType))
	add("N06", "C?watch=1&timeoutSeconds=10&resourceVersion=1", accept(protoType))
	add("N08", "C?watch=1&timeoutSeconds=10", accept("application/yaml"))
	add("N09", "C?watch=1&timeoutSeconds=10&resourceVersion=R0", accept("application/json;stream=watch"))
	add("N12", "Ca?watch=1&timeoutSeconds=10&allowWatchBookmarks=1&resourceVersion=0", accept(partial))
	add("N13", "C?watch=1&timeoutSeconds=10", accept(partials))
	add("N13", "Ca/x", accept(partials))
	add("N16", "Ca/nope", accept(tableType))
	add("N17", "Ca/nope", accept(tableType, jsonType))
	for _, q := range []string{"resourceVersion=0", "resourceVersion=0&pretty=false", "resourceVersion=0&pretty=",
		"resourceVersion=x", "watch=1&timeoutSeconds=10&labelSelector=l"} {
		add("N18", "C?"+q, http.Header{"User-Agent": {"curl/8"}})
		add("N18", "Ca/x?"+q, http.Header{"User-Agent": {"Mozilla/5.0 x"}})
	}
	add("N18", "C?resourceVersion=0&pretty=true")
	add("N18", "Ca/nope?resourceVersion=0&pretty=1")
	add("N18", "Ca/nope?resourceVersion=0", http.Header{"User-Agent": {"curl/8"}})
	for _, e := range []string{"gzip", "br, gzip", "gzip;q=1.0", "deflate", "", "gzip;q=0", "identity"} {
		for _, uri := range []string{"C?resourceVersion=0", "C", "C?resourceVersion=0&fieldSelector=metadata.name%3Dx",
			"/apis/apps/v1/namespaces/big/controllerrevisions/big-129000?resourceVersion=0",
			"/apis/apps/v1/namespaces/big/controllerrevisions/big-130900?resourceVersion=0",
			"/apis/apps/v1/namespaces/big/controllerrevisions/big-200000?resourceVersion=0",
			"/apis/apps/v1/namespaces/big/controllerrevisions?resourceVersion=0&fieldSelector=metadata.name%3Dbig-130900",
			"/apis/apps/v1/namespaces/big/controllerrevisions?resourceVersion=0&fieldSelector=metadata.name%3Dbig-129000"} {
			add("N19/N20", uri, http.Header{"Accept-Encoding": {e}})
		}
	}
	add("N21", "C?watch=1&timeoutSeconds=10&allowWatchBookmarks=1", http.Header{"Accept-Encoding": {"gzip"}})
	add("N24", "/api/v1/endpoints")
	add("N24", "/api/v1/endpoints?resourceVersion=0")
	add("N24", "/api/v1/namespaces/a/endpoints/e?resourceVersion=0")
	add("N24", "/api/v1/namespaces/a/endpoints/nope?resourceVersion=0")
	add("N24", "/api/v1/endpoints?watch=1&timeoutSeconds=10&resourceVersion=0")

	add("W05", "C?watch=1&timeoutSeconds=10")
	add("W06", "C?watch=1&allowWatchBookmarks=true&timeoutSeconds=10")
	add("W07", "C?watch=1&resourceVersion=0&allowWatchBookmarks=true&timeoutSeconds=10&labelSelector=zz")
	add("W10", "C?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&timeoutSeconds=10")
	add("W13", "C?watch=1&sendInitialEvents=false&resourceVersionMatch=NotOlderThan&resourceVersion=0&timeoutSeconds=10")
	add("W14", "C?watch=1&sendInitialEvents=&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=&timeoutSeconds=10")
	add("W15",
		"C?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&resourceVersion=99999999"+
			"&allowWatchBookmarks=1&timeoutSeconds=10")
	add("W16", "C?watch=1&resourceVersion=99999999&timeoutSeconds=10")
	add("W17", "C?watch=1&resourceVersion=1&timeoutSeconds=10")
	add("W18", "C?watch=1&resourceVersion=abc&timeoutSeconds=10")
	add("W21", "C?watch=1&resourceVersion=NOW&allowWatchBookmarks=1&timeoutSeconds=10")
	add("W24", "C?watch=1&resourceVersion=R0&allowWatchBookmarks=1&timeoutSeconds=10")
	for _, q := range []string{"", "&resourceVersion=0", "&resourceVersion=R0",
		"&sendInitialEvents=false&resourceVersionMatch=NotOlderThan"} {
		add("W41", "C?watch=1&limit=1&continue=zz&timeoutSeconds=10"+q)
	}
	for _, uri := range []string{"/api/v1/pods", "/api/v1/secrets", "/api/v1/namespaces", "/api/v1/services",
		"/api/v1/nodes", "/api/v1/endpoints", "/api/v1/events", "/api/v1/persistentvolumeclaims",
		"/apis/apps/v1/deployments", "/apis/apps/v1/replicasets", "/apis/apps/v1/daemonsets",
		"/apis/coordination.k8s.io/v1/leases", "/apis/discovery.k8s.io/v1/endpointslices",
		"/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", "/apis/batch/v1/jobs",
		"/apis/events.k8s.io/v1/events", "F"} {
		add("W25", uri+"?watch=1&allowWatchBookmarks=1&timeoutSeconds=10&labelSelector=zz")
		add("W25", uri+"?watch=1&allowWatchBookmarks=1&timeoutSeconds=10&labelSelector=zz", accept(protoType, jsonType))
	}
	for _, uri := range []string{"/", "/api", "/apis", "/version", "/api/v1", "/apis/apps/v1", "/healthz",
		"/openapi/v3", "/nosuch", "/api/v1/namespaces/a/pods/p/log", "/api/v1/namespaces/a/pods/p/status",
		"/api/v1/namespaces/a/configmaps/x?watch=1&resourceVersion=0"} {
		add("O07", uri)
	}
	rows = append(append(rows, oddRows()...), shardRows()...)
	return append(rows, inEveryForm(rows)...)
}

// oddRows are requests in which parameters come twice, numbers overflow, escapes are odd, and
// something is long. Servers that read them in different ways give different answers.
func oddRows() []row {
	var rows []row
	add := func(uri string, header ...string) {
		r := row{id: "O08", uri: uri, header: make(http.Header)}
		for i := 0; i < len(header); i += 2 {
			r.header[header[i]] = append(r.header[header[i]], header[i+1])
		}
		rows = append(rows, r)
	}
	for _, q := range []string{
		"resourceVersion=99999999", "limit=1&limit=x", "labelSelector=&labelSelector=zz", "labelSelector=zz&labelSelector=l",
		"fieldSelector=metadata.name%3Dx&fieldSelector=metadata.name%3Dy", "pretty=0&pretty=1", "timeout=1s&timeout=x",
		"resourceVersionMatch=NotOlderThan&resourceVersionMatch=Exact", "continue=&continue=abc", "watch=0&watch=1", "wat%63h=0",
		"limit=9223372036854775807", "limit=9223372036854775808", "limit=-9223372036854775809", "limit=%2B1", "limit=+1",
		"limit=1e1", "limit=0x1", "limit=1_0", "limit=01", "limit=", "limit", "limit=1%00", "limit=%EF%BC%91",
		"timeoutSeconds=9223372036854775808", "timeoutSeconds=", "timeout=-1s", "timeout=1", "timeout=9999999999h", "timeout=%2B1s",
		"lim%69t=1", "limit=%31", "%6cabelSelector=l", "a;b", "a=%zz", "%zz=a", "&&", "=", "?limit=1",
		"labelSelector=%zz", "labelSelector=%FF", "labelSelector=l%3D%FF", "labelSelector=l%3D%00", "labelSelector=%C3%A9",
		"labelSelector=n%3E99999999999999999999", "labelSelector=n%3E1.5", "labelSelector=l+in(,)", "labelSelector=l,l",
		"fieldSelector=metadata.name%3D%FF", "fieldSelector=metadata.name%3D%C3%A9", "fieldSelector=metadata.name%3D%00",
		"fieldSelector=%FF%3Da", "fieldSelector=metadata.name%3Dx%5C%2Cy", "fieldSelector=metadata.name%3Dx,", "fieldSelector=metadata.name+%3D+x",
		"fieldSelector=metadata.name%3Dx,metadata.name%3Dy", "fieldSelector=metadata.name%3D%5C%3D",
		"labelSelector=" + strings.Repeat("a,", 80_000) + "a", "labelSelector=l+in+(" + strings.Repeat("a,", 30_000) + "1)",
		"fieldSelector=" + strings.Repeat("metadata.name!%3Da,", 9000) + "metadata.name!%3Da",
		"x=" + strings.Repeat("x", 300_000), "a=1" + strings.Repeat("&a=1", 20_000), "continue=" + strings.Repeat("x", 200_000),
	} {
		add("C?resourceVersion=0&" + q)
	}
	for _, q := range []string{
		"18446744073709551615", "18446744073709551616", "9223372036854775808", "%2B1", "00", "1.0", "0x1", "0%00",
		strings.Repeat("1", 5000), strings.Repeat("0", 5000), "abc&resourceVersion=0", "&resourceVersion=0",
	} {
		add("C?resourceVersion=" + q)
		add("Ca/x?resourceVersion=" + q)
	}
	for _, q := range []string{
		"timeoutSeconds=x&timeoutSeconds=100", "timeoutSeconds=9223372036854775808", "timeoutSeconds=100.0", "resourceVersion=x&resourceVersion=0",
		"resourceVersion=18446744073709551616", "labelSelector=" + strings.Repeat("a,", 80_000) + "!",
	} {
		add("C?watch=1&" + q)
	}
	for _, uri := range []string{
		"/%61pi/v1/configmaps?resourceVersion=0", "/api/v1/namespaces/%61/configmaps/x", "Ca/%78", "Ca/x%00", "Ca/%FF?resourceVersion=0",
		"/api/v1/namespaces/%FF/configmaps?resourceVersion=0", "/api/v1/namespaces/a%2Fb/configmaps", "/API/v1/configmaps", "Ca/X?resourceVersion=0",
		"Ca/" + strings.Repeat("x", 300) + "?resourceVersion=0", "Ca/" + strings.Repeat("x", 100_000),
		"/api/v1/namespaces/" + strings.Repeat("x", 10_000) + "/configmaps?resourceVersion=0",
	} {
		add(uri)
	}
	roles := "/apis/rbac.authorization.k8s.io/v1/namespaces/a/roles"
	for _, name := range oddNames {
		escaped := url.QueryEscape(fields.EscapeValue(name))
		for _, accepted := range []string{jsonType, protoType} {
			for _, uri := range []string{
				"/" + url.PathEscape(name), "/" + url.PathEscape(name) + "?resourceVersion=0", "?fieldSelector=metadata.name%3D" + escaped,
				"?resourceVersion=0&fieldSelector=metadata.name%3D" + escaped, "?resourceVersion=0&fieldSelector=metadata.name!%3D" + escaped,
				"?resourceVersion=0&fieldSelector=metadata.name%3D" + url.QueryEscape(name),
			} {
				add(roles+uri, "Accept", accepted)
			}
		}
	}
	for _, uri := range []string{"C?resourceVersion=0", "Ca/x?resourceVersion=0", "Ca/nope?resourceVersion=0", "/version"} {
		add(uri, "Accept", "application/json", "Accept", "application/yaml")
		add(uri, "Accept", "application/yaml", "Accept", "application/json")
		add(uri, "Accept", strings.Repeat("a/b,", 20_000)+"application/json")
		add(uri, "Accept-Encoding", "deflate", "Accept-Encoding", "gzip")
		add(uri, "User-Agent", "é\xff")
		add(uri, "Audit-Id", "é\xff")
		add(uri, "Audit-Id", strings.Repeat("x", 5000))
		add(uri, "Range", "bytes=0-1", "If-None-Match", "*")
		add(uri, "Impersonate-User", "é\xff", "Impersonate-Group", "system:masters")
		add(uri, "Impersonate-Group", "system:masters")
	}
	return rows
}

// inEveryForm repeats the reads that name no form, in each form that caches serve, as clients ask
// for it.
func inEveryForm(rows []row) []row {
	var more []row
	for _, r := range rows {
		if r.header != nil || r.method != "" || strings.HasPrefix(r.id, "O") || strings.HasPrefix(r.id, "//") {
			continue
		}
		as := ";as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
		if list := regexp.MustCompile(`^(C|Ca|F|/apis?/.*s)/?(\?|$)`); list.MatchString(r.uri) &&
			!strings.Contains(r.uri, "watch") {
			as = ";as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
		}
		for form, accepted := range map[string]string{
			"lean":                 jsonType + drop,
			"protobuf":             protoType + "," + jsonType,
			"metadata":             jsonType + as,
			"metadata in protobuf": protoType + as + "," + jsonType + as + "," + jsonType,
		} {
			r := r
			r.id, r.header = r.id+" "+form, accept(accepted)
			if form == "lean" {
				r.asker = lean
			}
			more = append(more, r)
		}
	}
	return more
}

func token(v string, rv int, start string) string {
	return base64.RawURLEncoding.EncodeToString(fmt.Appendf(nil, `{"v":%q,"rv":%d,"start":%q}`, v, rv, start))
}

// TestReads sends each request of contract.md 8.2, 8.3 and 8.5 that needs no preparation both ways,
// through both ports and over HTTP/2, and compares the answers by the rules of 8.1.
// With -short it sends about a hundred of them, and no watch.
func TestReads(t *testing.T) {
	parallel(t)
	c, p := quietCluster(t)
	direct, ways := c.direct(t), p.ways(t, c.token(t, "admin"))
	now := fmt.Sprint(direct.version(t, "/api/v1/configmaps"))
	names := strings.NewReplacer("R0", now, "NOW", now)
	all := rows()
	if !direct.enables(t, shardedListAndWatch) { // it sends everything
		all = halfRows(all)
	}
	if testing.Short() {
		all = someRows(all)
	}
	for i, r := range all {
		for short, long := range map[string]string{"Ca": "/api/v1/namespaces/a/configmaps", "C": "/api/v1/configmaps",
			"F": "/apis/ex.io/v1/foos"} {
			if rest, ok := strings.CutPrefix(r.uri, short); ok && (rest == "" || strings.ContainsAny(rest[:1], "/?")) {
				all[i].uri = long + rest
			}
		}
		all[i].uri = names.Replace(all[i].uri)
	}
	t.Run("caches", func(t *testing.T) { fillCaches(t, ways[1], all) })
	t.Logf("%d requests, three ways each", len(all))
	gate := newReadGate()
	for _, r := range all {
		name := fmt.Sprintf("%s %s %s %s", r.id, r.method, r.uri, r.header)
		t.Run(name[:min(len(name), 300)], func(t *testing.T) {
			t.Parallel()
			defer gate.enter(r)()
			if err := r.compare(t, direct, ways...); err != nil {
				t.Error(err)
			}
		})
	}
}

// fillCaches waits until the caches are filled of what is watched. A watch of ten seconds does not wait for that
// for as long as a busy machine needs, and only a cache tells a half apart.
func fillCaches(t *testing.T, d *target, rows []row) {
	watched := map[string]bool{"/api/v1/configmaps": true}
	for _, r := range rows {
		if path, _, _ := strings.Cut(r.uri, "?"); strings.HasPrefix(r.id, "W25") {
			watched[path] = true
		}
	}
	gate := make(chan struct{}, 6)
	for uri := range watched {
		for _, form := range leanForms {
			if form == protoType && strings.HasPrefix(uri, "/apis/ex.io/") {
				continue // custom resources have no protobuf
			}
			t.Run(uri+" "+form, func(t *testing.T) {
				t.Parallel()
				gate <- struct{}{}
				defer func() { <-gate }()
				d.warmAs(t, uri, listForm(form))
			})
		}
	}
}

// readGate lets some requests be made at a time. Watches mostly wait, but watchfan lets only 300 reads of a
// user begin at a time.
type readGate struct{ reads, watches chan struct{} }

func newReadGate() readGate { return readGate{make(chan struct{}, 6), make(chan struct{}, 100)} }

// enter waits until r may be sent.
func (g readGate) enter(r row) (leave func()) {
	gate := g.reads
	if strings.Contains(r.uri, "timeoutSeconds") {
		gate = g.watches
	}
	gate <- struct{}{}
	return func() { <-gate }
}

// someRows returns about a hundred requests that are answered at once.
func someRows(rows []row) (some []row) {
	n := 0
	for _, r := range rows {
		if !strings.Contains(r.uri, "timeoutSeconds") && !strings.Contains(r.uri, "99999999") {
			if n%10 == 0 {
				some = append(some, r)
			}
			n++
		}
	}
	return some
}

// check compares the answers to r.
func (r row) check(t *testing.T, theirs *target, ways ...*target) {
	t.Helper()
	if err := r.compare(t, theirs, ways...); err != nil {
		t.Errorf("%s %s: %v", r.uri, r.header, err)
	}
}

// checkAll compares the answers to many requests at once.
func checkAll(t *testing.T, rows []row, theirs *target, ways ...*target) {
	t.Helper()
	var checking sync.WaitGroup
	gate := newReadGate()
	for _, r := range rows {
		checking.Go(func() {
			defer gate.enter(r)()
			r.check(t, theirs, ways...)
		})
	}
	checking.Wait()
}

// halfRows removes the requests with a shardSelector, except those for the lower half in JSON.
func halfRows(rows []row) (rest []row) {
	for _, r := range rows {
		r.half = strings.HasPrefix(r.id, "L31")
		if json := r.header == nil || r.asker == lean; r.half && json ||
			!strings.Contains(r.uri, "shardSelector") {
			rest = append(rest, r)
		}
	}
	return rest
}

// less returns an answer of kube-apiserver, which is not compressed, as watchfan gives it from a lane.
func (r row) less(t *testing.T, want response) response {
	var err error
	if want.body, err = r.asker.less(want.body); err != nil {
		t.Fatal(err)
	}
	if !r.half {
		return want
	}
	if strings.Contains(r.uri, "watch=1") {
		want.body = slices.Concat(slices.DeleteFunc(bytes.SplitAfter(want.body, []byte("\n")), func(line []byte) bool {
			e, err := parseEvent(line)
			return err == nil && e.uid != "" && !inHalf(0, e.uid)
		})...)
		return want
	}
	var list struct{ Items []json.RawMessage }
	if err := json.Unmarshal(want.body, &list); err != nil {
		t.Fatal(err)
	}
	var kept [][]byte
	for _, item := range list.Items {
		var o metav1.PartialObjectMetadata
		if err := json.Unmarshal(item, &o); err != nil {
			t.Fatal(err)
		}
		if inHalf(0, string(o.UID)) {
			kept = append(kept, item)
		}
	}
	head, _, _ := bytes.Cut(want.body, []byte("},\"items\":["))
	want.body = fmt.Appendf(nil, "%s,\"shardInfo\":{\"selector\":\"%s\"}},\"items\":[%s]}\n", head, halves("uid")[0],
		bytes.Join(kept, []byte(",")))
	return want
}

// compressedWatch has the headers of a watch that a client with gzip gets here and, up to 1.36, not
// from kube-apiserver.
var compressedWatch = map[string][]string{"Content-Encoding": {"gzip"}, "Vary": {"Accept-Encoding"}}

// oneLong is for requests with long URIs. watchfan lets a client have one of them under way, and another
// wait for 15 seconds, which a busy machine may need for a few.
var oneLong sync.Mutex

const longURI = 4 << 10

// compare sends r to kube-apiserver and all ways through watchfan, and returns how the answers differ.
// Only this may differ:
//
//   - headers: Date; Audit-Id where the client sent none; X-Kubernetes-Pf-*, which name a queue of
//     kube-apiserver's; whether the body has a length or chunks;
//   - how a body is compressed and, for a watch (N21), whether it is;
//   - the resourceVersion of a list, of a bookmark and in a continue token, and the "current" one
//     in a message;
//   - the slash that begins the key in a continue token. Pages from etcd have none, and those from
//     a cache, which kube-apiserver serves since 1.31, have one. Every kube-apiserver takes both;
//   - whether a bookmark comes before a watch's deadline;
//   - ages in the cells of tables;
//   - managedFields, and objects of the other half, which a client does not get here if it says so (r.less);
//   - the order of maps in CBOR.
func (r row) compare(t *testing.T, theirs *target, ways ...*target) error {
	answers, errs := make([]response, 1+len(ways)), make([]error, 1+len(ways))
	var wg sync.WaitGroup
	for i, way := range append([]*target{theirs}, ways...) {
		wg.Go(func() {
			if len(r.uri) > longURI {
				oneLong.Lock()
				defer oneLong.Unlock()
			}
			answers[i], errs[i] = way.try(cmp.Or(r.method, http.MethodGet), r.uri, r.header, r.body)
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	for i, way := range ways {
		if err := r.differ(t, answers[1+i], answers[0]); err != nil {
			errs = append(errs, fmt.Errorf("through %s: %w", way.name, err))
		}
	}
	return errors.Join(errs...)
}

// differ returns how an answer differs from kube-apiserver's.
func (r row) differ(t *testing.T, got, want response) error {
	if (r.half || r.cached) && !proxytest.FromCache(got.header) {
		return errors.New("passed through to kube-apiserver")
	}
	if strings.HasPrefix(r.id, "C25") && max(got.status, want.status) == http.StatusServiceUnavailable {
		return nil // it was over before it began: up to 1.30 kube-apiserver answers 200 or 503, as it happens
	}
	if got.status != want.status {
		return fmt.Errorf("status %d, want %d\n%.500s\n%.500s", got.status, want.status, got.body, want.body)
	}
	for _, h := range []string{"Content-Type", "Warning", "Retry-After", "Vary", "Content-Encoding", "Cache-Control",
		"X-Content-Type-Options", "Www-Authenticate", "Allow", "Location"} {
		g, w := got.header.Values(h), want.header.Values(h)
		if r.id == "N21" && compressedWatch[h] != nil {
			w = compressedWatch[h]
		}
		if !slices.Equal(g, w) {
			return fmt.Errorf("%s: %q, want %q (status %d)", h, g, w, got.status)
		}
	}
	if asked := r.header.Get("Audit-Id"); got.header.Get("Audit-Id") == "" || asked != "" &&
		got.header.Get("Audit-Id") != asked {
		return fmt.Errorf("Audit-Id %q, want %q", got.header.Get("Audit-Id"), asked)
	}
	if proxytest.FromCache(got.header) && (r.half || r.asker != asker{}) && !strings.HasPrefix(want.header.Get("Content-Type"), "text/plain") {
		want = r.less(t, response{want.status, http.Header{"Content-Type": want.header["Content-Type"]}, plainBody(t, want)})
	}
	g, w := r.normal(got), r.normal(want)
	if !bytes.Equal(g, w) {
		i := 0
		for i < len(g) && i < len(w) && g[i] == w[i] {
			i++
		}
		from := max(0, i-100)
		return fmt.Errorf("bodies of %d and %d bytes differ at %d:\n got …%q\nwant …%q", len(g), len(w), i,
			g[from:min(len(g), i+200)], w[from:min(len(w), i+200)])
	}
	return nil
}

var (
	listHead = regexp.MustCompile(
		`^(\{\s*"kind":\s?"\w+(?:List|Table)?",\s*"apiVersion":\s?"[^"]+",\s*` +
			`"metadata":\s?\{\s*"resourceVersion":\s?)"\d+"`)
	listTail  = regexp.MustCompile(`("kind":\s?"\w+List",\s*"metadata":\s?\{.*"resourceVersion":\s?)"\d+"([\s}]*)$`)
	listYAML  = regexp.MustCompile(`(\nmetadata:\n(?:  continue: .*\n)?  resourceVersion: )"\d+"\n$`)
	continues = regexp.MustCompile(`"continue":\s?"([^"]+)"`)
	bookmark  = regexp.MustCompile(`^(\{"type":"BOOKMARK",.*"resourceVersion":)"\d+"`)
	currentRV = regexp.MustCompile(`current: \d+`)
	// of a token
	tokenVersion = regexp.MustCompile(`"rv":\d+`)
	ages         = regexp.MustCompile(`"(\d+[dhms])+"|"<unknown>"`)
	// For a list, whose metadata comes first.
	protoVersion = regexp.MustCompile(`^k8s\x00(?s:.)*?\x0a\x00\x12.\d{1,9}\x1a`)
)

// normal returns the body without what may differ: the list's own resourceVersion, those of
// bookmarks, ages, and the time of a review.
func (r row) normal(resp response) []byte {
	b := resp.body
	if resp.header.Get("Content-Encoding") == "gzip" {
		z, err := gzip.NewReader(bytes.NewReader(b))
		if err == nil {
			b, err = io.ReadAll(z)
		}
		if err != nil {
			return []byte(err.Error())
		}
	}
	switch kind := resp.header.Get("Content-Type"); {
	case strings.HasPrefix(kind, jsonType):
		if bytes.Contains(b[:min(len(b), 40)], []byte("List")) || bytes.Contains(b[:min(len(b), 40)], []byte("Table")) {
			b = listHead.ReplaceAll(b, []byte(`$1"RV"`))
		} else {
			b = listTail.ReplaceAll(b, []byte(`$1"RV"$2`))
		}
		b = continues.ReplaceAllFunc(b, func(m []byte) []byte {
			raw, err := base64.RawURLEncoding.DecodeString(string(continues.FindSubmatch(m)[1]))
			var tok map[string]any
			if err == nil && json.Unmarshal(raw, &tok) == nil {
				tok["rv"] = "RV"
				tok["start"] = strings.TrimPrefix(fmt.Sprint(tok["start"]), "/")
			}
			return fmt.Appendf(nil, `"continue":%v`, tok)
		})
		b = normalLines(b)
		b = currentRV.ReplaceAll(b, []byte("current: N"))
		if bytes.HasPrefix(b, []byte(`{"kind":"SelfSubjectReview"`)) {
			b = createdAt.ReplaceAll(b, nil) // of the review, which each server makes when it is asked
		}
		if r.table {
			b = ages.ReplaceAll(b, []byte(`"AGE"`))
			b = regexp.MustCompile(`("resourceVersion":)"\d+"(,"annotations":\{"k8s.io/initial)`).ReplaceAll(b,
				[]byte(`$1"RV"$2`))
		}
	case strings.HasPrefix(kind, cborType):
		b = normalCBOR(b)
	case strings.HasPrefix(kind, "application/yaml"):
		b = listYAML.ReplaceAll(b, []byte(`$1"RV"`))
	case strings.HasPrefix(kind, protoType):
		if strings.HasSuffix(kind, "stream=watch") {
			b = normalFrames(b)
		}
		if protoVersion.Match(b) {
			b = normalList(b)
		}
		b = currentRV.ReplaceAll(b, []byte("current: N"))
	}
	return b
}

// normalList is normal for a list in protobuf, where lengths depend on resourceVersions and tokens.
func normalList(b []byte) []byte {
	var body runtime.Unknown
	if err := body.Unmarshal(bytes.TrimPrefix(b, []byte("k8s\x00"))); err != nil {
		return []byte(err.Error())
	}
	var meta metav1.ListMeta
	head, rest := cutMetadata(body.Raw)
	if err := meta.Unmarshal(head); err != nil {
		return []byte(err.Error())
	}
	raw, _ := base64.RawURLEncoding.DecodeString(meta.Continue)
	meta.Continue = string(tokenVersion.ReplaceAll(bytes.Replace(raw, []byte(`"start":"/`), []byte(`"start":"`), 1),
		[]byte(`"rv":RV`)))
	meta.ResourceVersion = "RV"
	return fmt.Appendf(nil, "%s %s %s", body.TypeMeta, &meta, rest)
}

// cutMetadata divides a message behind its first field, the metadata.
func cutMetadata(raw []byte) (metadata, rest []byte) {
	_, _, tag := protowire.ConsumeTag(raw)
	if tag < 0 {
		return nil, raw
	}
	metadata, n := protowire.ConsumeBytes(raw[tag:])
	if n < 0 {
		return nil, raw
	}
	return metadata, raw[tag+n:]
}

// normalLines is normal for a watch in JSON. The end of the initial events is told once, though
// kube-apiserver may tell it again before the deadline.
func normalLines(b []byte) (normal []byte) {
	ended := false
	for line := range bytes.Lines(b) {
		if bookmark.Match(line) {
			if ended || !bytes.Contains(line, []byte("k8s.io/initial-events-end")) {
				continue // it comes before the deadline
			}
			ended, line = true, bookmark.ReplaceAll(line, []byte(`$1"RV"`))
		}
		normal = append(normal, line...)
	}
	return normal
}

// normalFrames is normalLines for a watch in protobuf.
func normalFrames(b []byte) []byte {
	var events [][]byte
	ended := false
	for len(b) >= 4 {
		n := min(4+int(bigendian.BigEndian.Uint32(b)), len(b))
		event := normalBookmark(b[:n])
		if bookmark := !bytes.Equal(event, b[:n]); !bookmark || !ended {
			events = append(events, event)
			ended = ended || bookmark && event != nil
		}
		b = b[n:]
	}
	return bytes.Join(append(events, b), nil)
}

// normalBookmark returns an event in protobuf unchanged. It returns nothing for a bookmark before the
// deadline, and the one that ends the initial events without what depends on its resourceVersion.
func normalBookmark(frame []byte) []byte {
	var e metav1.WatchEvent
	var object runtime.Unknown
	var meta metav1.ObjectMeta
	if e.Unmarshal(frame[4:]) != nil || e.Type != "BOOKMARK" ||
		object.Unmarshal(bytes.TrimPrefix(e.Object.Raw, []byte("k8s\x00"))) != nil {
		return frame
	}
	head, rest := cutMetadata(object.Raw)
	if meta.Unmarshal(head) != nil {
		return frame
	}
	if len(meta.Annotations) == 0 {
		return nil
	}
	meta.ResourceVersion = "RV"
	return fmt.Appendf(nil, "%s %s %s %s", e.Type, object.TypeMeta, &meta, rest)
}
