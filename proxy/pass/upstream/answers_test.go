package upstream

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/fields"

	"github.com/watchfan/watchfan/framing"
	"github.com/watchfan/watchfan/proxy/gate/auth"
	"github.com/watchfan/watchfan/proxy/gate/request"
	"github.com/watchfan/watchfan/proxy/suites/proxytest"
)

// Selectors of Services need a newer kube-apiserver, which is asked once for each field.
func TestSelectsByNewerFields(t *testing.T) {
	services := kindInfo("", "v1", "Service", true)
	services.GVR.Resource = "services"
	json := request.Representation{Encoding: framing.JSON}
	for _, c := range []struct {
		code  int
		sel   string
		want  bool
		asked int // by two calls
	}{
		{200, "spec.type=NodePort", true, 1},
		{200, "spec.type=NodePort,spec.clusterIP!=None,metadata.name=x", true, 2},
		{400, "spec.type=NodePort", false, 1},
		{500, "spec.type=NodePort", false, 2},
		{400, "metadata.name=x,metadata.namespace=y", true, 0},
	} {
		up := answering(c.code, "", nil)
		var accepts []string
		s := NewSupportedEncodings(typedUpstream{up, &accepts}, proxytest.Guard())
		for range 2 {
			if got := s.Selects(t.Context(), services, json, fields.ParseSelectorOrDie(c.sel)); got != c.want {
				t.Errorf("%d for %s: %t, want %t", c.code, c.sel, got, c.want)
			}
		}
		if got := up.Count(); got != c.asked {
			t.Errorf("%d for %s: asked %d times, want %d", c.code, c.sel, got, c.asked)
		}
		if want := slices.Repeat([]string{"application/json"}, c.asked); !slices.Equal(accepts, want) {
			t.Errorf("%d for %s: asked for %q, want %q", c.code, c.sel, accepts, want)
		}
		s.End()
	}
	pods := kindInfo("", "v1", "Pod", true)
	s := NewSupportedEncodings(nil, proxytest.Guard()) // nobody is asked
	if !s.Selects(t.Context(), pods, json, fields.ParseSelectorOrDie("spec.nodeName=n")) {
		t.Error("pods are not selected by their node")
	}
}

// What kube-apiserver has said holds while it does not answer. It is asked again once in a while, also if it
// hangs.
func TestSupportedEncodingsInOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		services := kindInfo("", "v1", "Service", true)
		services.GVR.Resource = "services"
		sel := fields.ParseSelectorOrDie("spec.type=NodePort")
		code, fail := 200, error(nil)
		up := &proxytest.FakeUpstream[auth.Identity]{
			Answer: func(auth.Identity, string, []byte) (int, string, error) { return code, "", fail },
		}
		var accepts []string
		s := NewSupportedEncodings(typedUpstream{up, &accepts}, proxytest.Guard())
		defer s.End()
		want := func(selects bool, asked int, took time.Duration) {
			t.Helper()
			ctx, cancel := context.WithTimeout(t.Context(), discoveryTimeout)
			defer cancel()
			began := time.Now()
			got := s.Selects(ctx, services, request.Representation{Encoding: framing.JSON}, sel)
			if got != selects || up.Count() != asked || time.Since(began) != took {
				t.Errorf("%t after %s and %d requests, want %t after %s and %d", got, time.Since(began), up.Count(),
					selects, took, asked)
			}
			synctest.Wait()
		}
		want(true, 1, 0)
		time.Sleep(DiscoveryTTL)
		fail = errors.New("connection refused")
		want(true, 2, 0)
		want(true, 2, 0)
		time.Sleep(discoveryRetry)
		up.Delay = time.Hour
		want(true, 3, discoveryTimeout)
		want(true, 3, 0)
		time.Sleep(discoveryRetry)
		up.Delay, fail, code = 0, nil, 400
		want(false, 4, 0)
	})
}

// typedUpstream adds the type of JSON to answers, and notes the Accept header of each request.
type typedUpstream struct {
	*proxytest.FakeUpstream[auth.Identity]
	accepts *[]string
}

func (u typedUpstream) DoAs(id auth.Identity, req *http.Request) (*http.Response, error) {
	*u.accepts = append(*u.accepts, req.Header.Get("Accept"))
	resp, err := u.FakeUpstream.DoAs(id, req)
	if err == nil {
		resp.Header = http.Header{"Content-Type": {"application/json"}}
	}
	return resp, err
}

// The memory of resources that come and go is bounded.
func TestSupportedEncodingsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := NewSupportedEncodings(answering(406, "", nil), proxytest.Guard())
		for i := range 3 * maxAnswers {
			o.Choose(t.Context(), unknown(i),
				[]request.Clause{{Representation: request.Representation{Encoding: framing.Protobuf}}})
		}
		if got := o.known.Len(); got > maxAnswers {
			t.Errorf("%d are remembered, want at most %d", got, maxAnswers)
		}
	})
}

// kube-apiserver is asked once in a while, and again soon after it has not answered.
func TestSharding(t *testing.T) {
	for _, c := range []struct {
		name, body string
		code       int
		err        error
		want       bool
		again      time.Duration
	}{
		{"on", `{"metadata":{"shardInfo":{"selector":"x"}}}`, 200, nil, true, DiscoveryTTL},
		{"off", `{"metadata":{"resourceVersion":"7"},"items":[]}`, 200, nil, false, DiscoveryTTL},
		{"forbidden", `{"metadata":{}}`, 403, nil, false, shardingRetry},
		{"no answer", "", 0, errors.New("no"), false, shardingRetry},
		{"garbage", `{"metadata":{"shardInfo":`, 200, nil, false, shardingRetry},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				up := answering(c.code, c.body, c.err)
				s := NewSharding(up, proxytest.Guard())
				defer s.End()
				for asked := 1; asked < 4; asked++ {
					for range 2 {
						if got := s.Served(t.Context()); got != c.want || up.Count() != asked {
							t.Errorf("got %v after %d requests, want %v after %d", got, up.Count(), c.want, asked)
						}
					}
					time.Sleep(c.again)
				}
			})
		})
	}
}
