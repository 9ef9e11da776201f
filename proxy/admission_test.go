package proxy

import (
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"github.com/valyala/fasthttp"
)

// Watches are counted in all and for each user, however a user has shown who it is, and whether they are served or passed through.
func TestAdmission(t *testing.T) {
	m := &memory{limit: 100, shed: func() int { return 0 }, log: slog.New(slog.DiscardHandler)}
	opts := NewOptions()
	opts.MaxWatches, opts.MaxWatchesPerUser = 4, 2
	owners := fakeOwners{"s3cret": "ann's robot", "renewed": "ann's robot", "other": "robert", "nobody's": "401"}
	a := newAdmission(&opts, m, authorizerOf(&fakeUpstream{answer: owners.answer}), slog.New(slog.DiscardHandler))
	begin := func(id identity, uri, wantRefused string) *watchSlot {
		t.Helper()
		var ctx fasthttp.RequestCtx
		ctx.Request.SetRequestURI(uri)
		req, ok := parseRequest(&ctx)
		if !ok {
			req = nil
		}
		slot, st := a.begin(t.Context(), &ctx, id, req)
		switch {
		case st == nil && wantRefused != "":
			t.Errorf("%v %s: not refused, want %s", id, uri, wantRefused)
		case st == nil:
		case wantRefused == "" || !strings.Contains(st.Message, wantRefused):
			t.Errorf("%v %s: refused, %s; want %q", id, uri, st.Message, wantRefused)
		case st.Code != http.StatusTooManyRequests || st.Reason != "TooManyRequests" || st.Details.RetryAfterSeconds < retryLeast ||
			st.Details.RetryAfterSeconds >= retryLeast+retrySpread:
			t.Errorf("%v %s: got %+v", id, uri, st)
		}
		return slot
	}
	const watch, list = "/api/v1/pods?watch=1", "/api/v1/pods"
	ann := identity{kind: kindCertificate, user: &userInfo{name: "ann"}}
	annToo := identity{kind: kindFrontProxy, user: &userInfo{name: "ann"}}
	token := identity{kind: kindToken, token: "s3cret"}

	first := begin(ann, watch, "")
	begin(annToo, "/apis/example.com/v1/watch/things?watch", "")
	begin(ann, watch, "2 watches of one user")
	for _, other := range []string{list, "/api/v1/pods?watch=false", "/healthz?watch=1"} {
		if slot := begin(ann, other, ""); slot != nil {
			t.Errorf("%s counts as a watch", other)
		}
	}
	begin(token, watch, "")
	begin(identity{kind: kindOwn}, watch, "")
	begin(identity{kind: kindToken, token: "other"}, watch, "4 watches at a time")
	first.release()
	first.release()
	last := begin(identity{kind: kindToken, token: "renewed"}, watch, "")
	begin(token, watch, "4 watches at a time")
	begin(identity{kind: kindToken, token: "nobody's"}, watch, "") // for kube-apiserver to refuse

	m.look(95)
	last.release()
	begin(ann, watch, "short of memory")
	begin(ann, list, "short of memory")
	begin(ann, "/api/v1/namespaces/ns/pods/web", "")
	m.look(10)
	begin(ann, watch, "")
	if a.watches != 4 || len(a.users) != 3 {
		t.Errorf("%d watches of %d users are counted, want 4 of 3", a.watches, len(a.users))
	}
}
