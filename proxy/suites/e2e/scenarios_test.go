package e2e_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/testscript"

	"github.com/watchfan/watchfan/proxy/suites/proxytest"
	"github.com/watchfan/watchfan/proxy/suites/proxytest/steady"
)

// TestScenarios runs testdata/scenarios. A scenario is a list of commands, one in each line. It writes straight to
// kube-apiserver. It reads and watches there and all ways through watchfan: HTTP/1.1, HTTPS with gzip, and HTTP/2.
// What comes must be the same bytes.
//
//	resource PATH                   what the commands are about; at first ConfigMaps in the scenario's namespace, $ns
//	define GROUP VERSION [OPTION…]  widgets, or their change (widgetSpec); the first version is then the resource
//	create NAME… [FIELD=VALUE…]     labels.a is metadata.labels.a; a value is JSON, or else a string
//	patch NAME… FIELD=VALUE…        null removes a field
//	delete NAME…
//	list [READ…]                    compares the answers; behind ! they are errors; $next are the tokens for the next page
//	await TEXT [READ…]              lists until the status, a warning or the body has the text, or behind ! has it not;
//	                                or until the answer is cached
//	watch W [READ…]                 begins watches, which W names in this file
//	same W until RV|initial         compares what comes up to the first event at or behind this resourceVersion, or up to
//	                                the end of the initial events, which is the only bookmark that is compared
//	again W [each]                  the same for clients that come now, or also for those that resume behind each event
//	ends W                          waits for the end
//	brings W EVENT…                 these have come: ADDED, ADDED:NAME or ADDED:NAME@RV; END ends the initial events
//	kubectl ARG…                    compares what kubectl prints, straight and through both ports, in the namespace $ns
//	before COMMAND…                 comes once more before each kubectl of the next such line
//	follow F ARG…                   begins kubectl, and waits until it watches
//	says F TEXT                     waits until it has printed the text, in which blanks are single
//	done F TEXT                     the same, and then compares the whole. A kubectl that watches is interrupted
//
// A NAME that begins with / is a path, which create posts to. NAME/status is a subresource. READ is PARAMETER=VALUE,
// where VALUE|VALUE makes a read for each, and none leaves the parameter out; or one of
//
//	PATH         another resource
//	-A           all namespaces
//	-table       as for kubectl, with ages of any value; or -metadata, -protobuf, -cbor
//	-lean        without managedFields, for clients of watchfan; or -view=NAME
//	-as=USER     another user of devcluster, who comes over TLS only
//	-cached      watchfan has to answer itself
//	-once        a watch that kube-apiserver ends has ended; others continue, as clients do
//
// A command may end with -> NAME, and then $NAME is the resourceVersion of its last answer. Package testscript has
// more commands, such as skip and env.
func TestScenarios(t *testing.T) {
	parallel(t)
	p := sharedWatchfan(t)
	p.waitReady(t)
	runScenarios(t, "testdata/scenarios", sharedCluster(t), p)
}

// runScenarios runs the scenarios of a directory.
func runScenarios(t *testing.T, dir string, c *cluster, p *watchfan) {
	ways := append([]*target{c.direct(t)}, p.ways(t, c.token(t, "admin"))...)
	ways[2] = ways[2].zipped()
	modern := ways[0].enables(t, watchList)
	verbs := map[string]func(s *scenario, args []string){
		"resource": (*scenario).resource, "define": (*scenario).define, "create": (*scenario).create, "patch": (*scenario).patch,
		"delete": (*scenario).delete, "list": (*scenario).list, "await": (*scenario).await, "watch": (*scenario).watch,
		"same": (*scenario).same, "again": (*scenario).again, "ends": (*scenario).ends, "brings": (*scenario).brings,
		"kubectl": (*scenario).kubectl, "follow": (*scenario).follow, "says": (*scenario).says, "done": (*scenario).done,
	}
	verbs["before"] = func(s *scenario, args []string) { s.before = func() { verbs[args[0]](s, args[1:]) } }
	commands := make(map[string]func(*testscript.TestScript, bool, []string))
	for name, run := range verbs {
		commands[name] = func(ts *testscript.TestScript, not bool, args []string) {
			s := ts.Value("").(*scenario)
			s.ts, s.not, s.rv = ts, not, 0
			if to := slices.Index(args, "->"); to < 0 {
				run(s, args)
			} else if run(s, args[:to]); s.rv > 0 {
				ts.Setenv(args[to+1], strconv.FormatUint(s.rv, 10))
			} else {
				ts.Fatalf("the answer has no resourceVersion")
			}
		}
	}
	testscript.Run(t, testscript.Params{Dir: dir, Cmds: commands,
		Condition: func(gate string) (bool, error) {
			if gate != watchList {
				return false, errors.New("nobody has asked for this gate")
			}
			return modern, nil
		},
		Setup: func(env *testscript.Env) error {
			t, ns := env.T().(testing.TB), strings.TrimPrefix(path.Base(env.WorkDir), "script-")
			createNamespaces(t, ways[0], ns)
			env.Setenv("ns", ns)
			env.Values[""] = &scenario{TB: t, c: c, p: p, ways: ways, ns: ns, uri: "/api/v1/namespaces/" + ns + "/configmaps",
				watches: make(map[string][]*read), followers: make(map[string]*follower)}
			return nil
		}})
}

// scenario is a scenario that runs. When a helper of this package fails, the line fails.
type scenario struct {
	testing.TB
	ts      *testscript.TestScript
	not     bool // the command stands behind !
	c       *cluster
	p       *watchfan
	ways    []*target // straight to kube-apiserver, and through watchfan
	ns, uri string    // of the resource
	rv      uint64    // of the last answer
	watches map[string][]*read

	before    func() // the next kubectl
	followers map[string]*follower
}

func (s *scenario) Errorf(format string, args ...any) { s.ts.Fatalf(format, args...) }
func (s *scenario) Fatal(args ...any)                 { s.ts.Fatalf("%s", fmt.Sprint(args...)) }
func (s *scenario) Fatalf(format string, args ...any) { s.ts.Fatalf(format, args...) }

func (s *scenario) resource(args []string) { s.uri = args[0] }

func (s *scenario) define(args []string) {
	s.uri = fmt.Sprintf("/apis/%s/%s/namespaces/%s/widgets", args[0], args[1], s.ns)
	defineWidgets(s, s.ways[0], args[0], args[1:]...)
}

func (s *scenario) create(args []string) { s.write(http.MethodPost, jsonType, args) }

func (s *scenario) patch(args []string) {
	s.write(http.MethodPatch, "application/merge-patch+json", args)
}

func (s *scenario) delete(args []string) {
	s.write(http.MethodDelete, jsonType, append(args, "gracePeriodSeconds=0"))
}

// write sends a write for each name among the arguments, with the fields among them.
func (s *scenario) write(method, contentType string, args []string) {
	var names []string
	object := make(map[string]any)
	for _, arg := range args {
		if field, value, ok := strings.Cut(arg, "="); ok {
			setField(object, field, value)
		} else {
			names = append(names, arg)
		}
	}
	for _, name := range names {
		uri := s.uri + "/" + name
		if name[0] == '/' {
			uri = name
		} else if method == http.MethodPost {
			uri = s.uri
			setField(object, "metadata.name", strconv.Quote(name))
		}
		if api := strings.Split(uri, "/"); strings.HasSuffix(uri, "/widgets") {
			object["apiVersion"], object["kind"] = api[2]+"/"+api[3], "Widget"
		}
		body, _ := json.Marshal(object) // of text and JSON
		s.rv = s.ways[0].must(s, method, uri, contentType, string(body))
	}
}

func setField(object map[string]any, field, value string) {
	names := strings.Split(field, ".")
	if slices.Contains([]string{"labels", "annotations", "finalizers"}, names[0]) {
		names = append([]string{"metadata"}, names...)
	}
	in := ""
	for ; len(names) > 1; names = names[1:] {
		if in = names[0]; object[in] == nil {
			object[in] = make(map[string]any)
		}
		object = object[in].(map[string]any)
	}
	text := slices.Contains([]string{"labels", "annotations", "data", "stringData"}, in)
	if object[names[0]] = value; value == "null" || !text && json.Valid([]byte(value)) {
		object[names[0]] = json.RawMessage(value)
	}
}

// read is a request, sent all ways. A watch has a recording of each.
type read struct {
	uri                 string
	header              http.Header
	ways                []*target
	cached, once, table bool
	asker               asker

	recordings []*recording
	upTo       func([]event) int // how many events are compared, 0 if they have not come
}

// reads returns the requests that arguments describe, with the parameters of query.
func (s *scenario) reads(query string, args []string) (reads []*read) {
	r, uri, queries, media, as := read{ways: s.ways}, s.uri, []string{query}, jsonType, ""
	for _, arg := range args {
		switch name, values, ok := strings.Cut(arg, "="); {
		case arg[0] == '/':
			uri = arg
		case arg == "-A":
			uri = strings.Replace(uri, "/namespaces/"+s.ns, "", 1)
		case arg == "-table":
			r.table, media = true, tableType+",application/json;as=Table;v=v1beta1;g=meta.k8s.io,"+jsonType
		case arg == "-metadata":
			as = strings.TrimPrefix(partial, jsonType)
		case arg == "-protobuf":
			media = protoType
		case arg == "-cbor":
			media = cborType
		case arg == "-lean":
			r.asker = lean
		case name == "-view":
			r.asker.view = values
		case name == "-as":
			r.ways = append([]*target{s.c.as(s, values)}, s.p.ways(s, s.c.token(s, values))[1:]...)
		case arg == "-cached":
			r.cached = true
		case arg == "-once":
			r.once = true
		case !ok:
			s.Fatalf("%s is nothing to read", arg)
		default:
			var each []string
			for _, query := range queries {
				for value := range strings.SplitSeq(values, "|") {
					if value == "" { // a variable that is not set, perhaps
						s.Fatalf("%s has no value", arg)
					} else if value != "none" {
						each = append(each, query+"&"+name+"="+url.QueryEscape(value))
					} else {
						each = append(each, query)
					}
				}
			}
			queries = each
		}
	}
	if form := media + as + r.asker.clause; form != jsonType {
		r.header = accept(form)
	}
	r.ways = slices.Clone(r.ways)
	for i := range r.ways[1:] {
		r.ways[1+i] = r.ways[1+i].in(r.asker.view)
	}
	for _, query := range queries {
		r := r
		r.uri = uri + "?" + query
		reads = append(reads, &r)
	}
	return reads
}

// each calls f for each way of each read, kube-apiserver's first.
func (s *scenario) each(reads []*read, f func(r *read, way int) error) {
	if len(reads) == 0 {
		s.Fatalf("there is no such watch")
	}
	var failed error
	for _, r := range reads {
		for way, d := range r.ways {
			if err := f(r, way); err != nil {
				failed = errors.Join(failed, fmt.Errorf("%s %s: %w", d.name, r.uri, err))
			}
		}
	}
	s.ts.Check(failed)
}

// sameHead compares what concerns clients in the head of an answer.
func (r *read) sameHead(way int, got, want http.Header) error {
	for _, name := range []string{"Content-Type", "Warning"} {
		if !slices.Equal(got[name], want[name]) {
			return fmt.Errorf("%s is %q, want %q", name, got[name], want[name])
		}
	}
	if r.cached && way > 0 && !proxytest.FromCache(got) {
		return errors.New("it was passed through")
	}
	return nil
}

// list compares whole answers of one state, and otherwise the objects. Pages must be alike, whoever made the token.
func (s *scenario) list(args []string) {
	var want response
	var tokens []string
	s.each(s.reads("", args), func(r *read, way int) error {
		got := r.ways[way].do(s, http.MethodGet, r.uri, r.header, "")
		if way == 0 && (want.status == 0 || !strings.Contains(r.uri, "continue=")) {
			want = got
		}
		if got.status != want.status || s.not == (got.status < http.StatusBadRequest) {
			return fmt.Errorf("%d %s", got.status, got.body)
		}
		body := row{header: r.header}.normal
		if strings.Contains(r.uri, "resourceVersionMatch=Exact") {
			body = func(r response) []byte { return plainBody(s, r) }
		}
		if diff := cmp.Diff(string(body(want)), string(body(got))); diff != "" {
			return errors.New(diff)
		}
		var page struct {
			Metadata struct{ ResourceVersion, Continue string }
		}
		_ = json.Unmarshal(plainBody(s, got), &page) // as it is kube-apiserver's
		s.rv, _ = strconv.ParseUint(page.Metadata.ResourceVersion, 10, 64)
		tokens = append(tokens, page.Metadata.Continue)
		return r.sameHead(way, got.header, want.header)
	})
	s.ts.Setenv("next", strings.Join(tokens, "|"))
}

func (s *scenario) await(args []string) {
	s.each(s.reads("", args[1:]), func(r *read, way int) error {
		steady.Until(s, fmt.Sprintf("answer of %s to %s like this", r.ways[way].name, r.uri), func() error {
			resp, err := r.ways[way].try(http.MethodGet, r.uri, r.header, "")
			answer := fmt.Sprintf("%d %s %q %s", resp.status, http.StatusText(resp.status), resp.header["Warning"], resp.body)
			if resp.status == http.StatusOK && (way == 0 || proxytest.FromCache(resp.header)) {
				answer = "cached " + answer
			}
			if err == nil && strings.Contains(answer, args[0]) == s.not {
				err = errors.New(answer)
			}
			return err
		})
		return nil
	})
}

func (s *scenario) watch(args []string) {
	reads := s.reads("watch=1", args[1:])
	s.each(reads, func(r *read, way int) error {
		r.recordings = append(r.recordings, s.open(r, way, r.uri))
		return r.sameHead(way, r.recordings[way].header, r.recordings[0].header)
	})
	s.watches[args[0]] = append(s.watches[args[0]], reads...)
}

func (s *scenario) open(r *read, way int, uri string) *recording {
	recording, err := r.ways[way].record(s.Context(), uri, r.header, way == 0 && !r.once)
	s.ts.Check(err)
	if recording.status != http.StatusOK {
		s.Fatalf("%s %s: %d", r.ways[way].name, uri, recording.status)
	}
	return recording
}

func (s *scenario) same(args []string) {
	var rv uint64
	to := args[len(args)-1]
	if to != "initial" {
		var err error
		rv, err = strconv.ParseUint(to, 10, 64)
		s.ts.Check(err)
	}
	s.each(s.watches[args[0]], func(r *read, way int) error {
		last := func(e event) bool { return e.end }
		if to != "initial" {
			marker := r.recordings[0].behind(s, rv-1).rv
			last = func(e event) bool { return e.typ != "BOOKMARK" && e.rv >= marker }
		}
		r.upTo = func(events []event) int { return slices.IndexFunc(events, last) + 1 }
		return r.compare(s, r.recordings[way], r.seen(s, r.recordings[0]))
	})
}

func (s *scenario) again(args []string) {
	s.each(s.watches[args[0]], func(r *read, way int) (failed error) {
		want, uri := r.seen(s, r.recordings[0]), r.uri
		for i := 0; way > 0 && (i == 0 || len(args) > 1 && i < len(want)); i++ {
			if i > 0 {
				uri = fromVersion.ReplaceAllString(r.uri, fmt.Sprint("resourceVersion=", want[i-1].rv))
			}
			recording := s.open(r, way, uri)
			failed = errors.Join(failed, r.compare(s, recording, want[i:]))
			recording.stop()
		}
		return failed
	})
}

var fromVersion = regexp.MustCompile(`resourceVersion=\d+`)

func (s *scenario) ends(args []string) {
	s.each(s.watches[args[0]], func(r *read, way int) error {
		r.recordings[way].finish(s)
		r.upTo = func(events []event) int { return len(events) }
		return nil
	})
}

// seen waits for a watch's events, and returns those that are compared: no bookmarks, whose times differ, except that
// behind the initial events, whose resourceVersion may be a later one.
func (r *read) seen(s *scenario, recording *recording) (events []event) {
	all := recording.await(s, "last event", func(events []event) bool { return r.upTo(events) > 0 })
	for _, e := range all[:r.upTo(all)] {
		if e.end {
			e.typ, e.line = "END", strings.Replace(e.line, strconv.FormatUint(e.rv, 10), "RV", 1) // of JSON
		}
		if e.typ != "BOOKMARK" {
			events = append(events, e)
		}
	}
	return events
}

func (r *read) compare(s *scenario, recording *recording, want []event) error {
	if diff := cmp.Diff(r.lines(r.recordings[0], want), r.lines(recording, r.seen(s, recording))); diff != "" {
		return errors.New(diff)
	}
	return nil
}

// lines returns events as they are compared: those of kube-apiserver as r's client is sent them. In Tables ages differ, and kube-apiserver sends column definitions again
// to a watcher that has shared an event which another one encoded.
func (r *read) lines(recording *recording, events []event) []string {
	all := lines(events)
	for i := range all {
		if recording == r.recordings[0] {
			less, err := r.asker.less([]byte(all[i]))
			if err != nil {
				return []string{err.Error()}
			}
			all[i] = string(less)
		}
		if r.table && i > 0 && !proxytest.FromCache(recording.header) {
			all[i] = columns.ReplaceAllString(all[i], "${1}null${2}")
		}
		if r.table {
			all[i] = ages.ReplaceAllString(all[i], `"AGE"`)
		}
	}
	return all
}

var columns = regexp.MustCompile(`("columnDefinitions":)\[.*?\](,"rows":)`)

func (s *scenario) brings(args []string) {
	s.each(s.watches[args[0]], func(r *read, way int) error {
		var got []string
		for i, e := range r.seen(s, r.recordings[way]) {
			want, text := args[min(i+1, len(args)-1)], e.typ
			if strings.Contains(want, ":") {
				text += ":" + path.Base(e.key)
			}
			if strings.Contains(want, "@") {
				text += fmt.Sprint("@", e.rv)
			}
			got = append(got, text)
		}
		if diff := cmp.Diff(args[1:], got); diff != "" {
			return errors.New(diff)
		}
		return nil
	})
}

// kubectls are the way straight to kube-apiserver, and those through each port.
func (s *scenario) kubectls() []kubectlWay {
	home, token := s.ts.MkAbs("."), s.c.token(s, "admin")
	return []kubectlWay{
		newKubectl(s, home, "straight", "-n", s.ns, "--server", s.c.Ready.Server, "--certificate-authority", s.c.Ready.CAFile, "--token", token),
		newKubectl(s, home, "plain", "-n", s.ns, "--server", "http://"+s.p.Ports.Insecure),
		newKubectl(s, home, "secure", "-n", s.ns, "--server", "https://"+s.p.Ports.Secure, "--insecure-skip-tls-verify", "--token", token),
	}
}

func (s *scenario) kubectl(args []string) {
	before := s.before
	s.before = nil
	sameWords(s, s.kubectls(), before, args...)
}

func (s *scenario) follow(args []string) {
	s.followers[args[0]] = follow(s, s.kubectls(), args[1:]...)
}

func (s *scenario) says(args []string) {
	f := s.followers[args[0]]
	f.await(s, args[1], f.said)
}

func (s *scenario) done(args []string) {
	s.says(args)
	s.followers[args[0]].end(s, s.kubectls())
}
