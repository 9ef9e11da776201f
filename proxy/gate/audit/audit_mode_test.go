package audit

import (
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/watchfan/watchfan/fanout"
	"github.com/watchfan/watchfan/proxy/gate/apistatus"
	"github.com/watchfan/watchfan/proxy/gate/auth"
	"github.com/watchfan/watchfan/proxy/suites/proxytest"
)

// errFull is the error of a full disk.
var errFull = errors.New("no space left on device")

func full(p []byte) (int, error) { return 7, errFull }

// TestAuditModes: in each mode, requests that can be logged and requests that cannot.
func TestAuditModes(t *testing.T) {
	for _, mode := range auditModes {
		synctest.Test(t, func(t *testing.T) {
			a, f, log := newTestAudit(proxytest.Owners{"t": "jane"})
			a.mode = mode
			go a.Run()
			lines := func() int {
				f.mu.Lock()
				defer f.mu.Unlock()
				return strings.Count(f.b.String(), "}\n")
			}

			// With a file that works, the line is in the file before Served returns, or in batch
			// mode soon after.
			x, r := readOf(t, ofToken("t"), "/api/v1/pods", "Authorization: Bearer t")
			apistatus.Write(x, apistatus.NotFound(r.Request.GVR, "x"))
			a.Served(x, r)
			if mode != AuditBatch && lines() != 1 {
				t.Errorf("%s: %d lines", mode, lines())
			}
			synctest.Wait()
			if x.Response.Code() != http.StatusNotFound || lines() != 1 ||
				!strings.Contains(f.b.String(), `"username":"jane"`) {
				t.Errorf("%s: %d\n%s", mode, x.Response.Code(), f.b.String())
			}

			// With a file that does not work.
			f.set(full)
			a.Served(x, r)
			began, refused := a.WatchBegan(x, r, "id", http.StatusOK)
			passed, notPassed := a.Passing(x, ofCertificate("joe"), asked(x))
			synctest.Wait()
			strict := mode == AuditBlockingStrict
			fails := x.Response.Code() == 500 && refused != nil && notPassed != nil && began == nil && passed == nil
			if fails != strict {
				t.Errorf("%s: %d %v %v", mode, x.Response.Code(), refused, notPassed)
			}
			if strict &&
				!strings.Contains(string(slices.Concat(x.Response.Body...)),
					`Internal Server Error: \"/api/v1/pods\": failed to store audit event`) {
				t.Errorf("%s", slices.Concat(x.Response.Body...))
			}
			if !strings.Contains(log.String(), errFull.Error()) {
				t.Errorf("%s: the log says %s", mode, log)
			}
			if n := a.metrics.dropped.Get(); n != map[bool]uint64{true: 3, false: 2}[strict] {
				t.Errorf("%s: %d dropped", mode, n)
			}
			a.Refused(x, auth.Identity{}, asked(x), apistatus.Unauthorized()) // this changes nothing
			synctest.Wait()

			// The next line is whole again.
			f.b.Reset()
			f.set(nil)
			a.WatchEnded(&Event{remote: x.Conn.RemoteAddr()}, fanout.Gone, "")
			a.Close()
			if text := f.b.String(); !strings.HasPrefix(text, "\n{") || !json.Valid([]byte(text[1:])) || !f.closed {
				t.Errorf("%s: %q", mode, text)
			}
			a.WatchEnded(&Event{remote: x.Conn.RemoteAddr()}, fanout.Gone, "") // it is only counted
			n := a.metrics.dropped.Get()
			if n != map[bool]uint64{true: 5, false: 4}[strict] ||
				f.b.Len() > 0 && strings.Count(f.b.String(), "{\"kind\"") != 1 {
				t.Errorf("%s: %d dropped\n%s", mode, n, f.b.String())
			}
		})
	}
}

// A file that hangs does not keep the process from ending, in any mode.
func TestAuditHangs(t *testing.T) {
	for _, mode := range auditModes {
		synctest.Test(t, func(t *testing.T) {
			a, f, log := newTestAudit(nil)
			a.mode = mode
			go a.Run()
			stuck := make(chan struct{})
			f.set(func(p []byte) (int, error) { <-stuck; return len(p), nil })
			x, r := readOf(t, ofCertificate("jane"), "/api/v1/pods")
			go a.Served(x, r)
			synctest.Wait()
			began := time.Now()
			a.Close()
			if took := time.Since(began); took != auditFlush || !strings.Contains(log.String(), "Left the audit log unfinished") {
				t.Errorf("%s: took %s\n%s", mode, took, log)
			}
			close(stuck)
			synctest.Wait()
		})
	}
}

// TestAuditPassed: a request that passes through in a user's name is logged with both names and
// with the auditID that is sent upstream.
func TestAuditPassed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, f, _ := newTestAudit(nil)
		a.mode = AuditBlockingStrict
		go a.Run()
		defer a.Close()
		jane := ofCertificate("jane", "g")
		asJoe := auth.Identity{Kind: auth.KindCertificate, User: &auth.UserInfo{Name: "joe", Groups: []string{"h"}},
			By: jane.User}
		x := proxytest.MustRead(t, "/api/v1/namespaces/a/pods/x/exec?command=sh")
		next := func(want ...string) {
			t.Helper()
			var line struct {
				AuditID, Stage, Verb string
				User                 struct{ Username string }
				ImpersonatedUser     *struct{ Username string }
				ObjectRef            auditObject
				ResponseStatus       *struct{ Code int }
				Annotations          map[string]string
			}
			text := f.b.String()
			f.b.Reset()
			if err := json.Unmarshal([]byte(text), &line); err != nil {
				t.Fatalf("%v: %q", err, text)
			}
			got := []string{line.Stage, line.User.Username, "", ""}
			if line.ImpersonatedUser != nil {
				got[2] = line.ImpersonatedUser.Username
			}
			if line.ResponseStatus != nil {
				got[3] = http.StatusText(line.ResponseStatus.Code)
			}
			if strings.Join(got, ",") != strings.Join(want, ",") || line.ObjectRef.Subresource != "exec" ||
				line.Annotations["watchfan.io/passed-through"] != "true" || len(line.Annotations) != 1 {
				t.Errorf("got %q, want %q\n%s", got, want, text)
			}
			if id := x.Header.Get("Audit-Id"); id == "" || line.AuditID != id {
				t.Errorf("auditID %q, and %q upstream", line.AuditID, id)
			}
		}
		p, _ := a.Passing(x, jane, asked(x))
		next("RequestReceived", "jane", "", "")
		p.Started(101)
		next("ResponseStarted", "jane", "", "Switching Protocols")
		p.Answered(101)
		next("ResponseComplete", "jane", "", "Switching Protocols")
		p, _ = a.Passing(x, asJoe, asked(x))
		next("RequestReceived", "jane", "joe", "")
		p.Failed(apistatus.ServiceUnavailable("x"))
		next("ResponseComplete", "jane", "joe", "Service Unavailable")
		p.Left()
		next("ResponseComplete", "jane", "joe", "")

		a.mode = AuditBlocking
		p, _ = a.Passing(x, jane, asked(x))
		if f.b.Len() > 0 {
			t.Errorf("got %s", f.b.String())
		}
		p.Answered(403)
		next("ResponseComplete", "jane", "", "Forbidden")

		// A read from the cache as another user has both names too.
		x2, r := readOf(t, asJoe, "/api/v1/pods")
		a.Served(x2, r)
		text := f.b.String()
		if !strings.Contains(text,
			`"user":{"username":"jane","groups":["g"]},"impersonatedUser":{"username":"joe","groups":["h"]},`+
				`"sourceIPs"`) {
			t.Errorf("got %s", text)
		}

		for _, id := range []auth.Identity{{}, {Kind: auth.KindOwn}, ofToken("t")} {
			x := proxytest.MustRead(t, "/api/v1/pods")
			if p, refused := a.Passing(x, id, asked(x)); p != nil || refused != nil || x.Header.Has("Audit-Id") {
				t.Errorf("%s is written down", id)
			}
		}
		var off *Log
		p, _ = off.Passing(x, jane, asked(x))
		p.Answered(200)
	})
}
