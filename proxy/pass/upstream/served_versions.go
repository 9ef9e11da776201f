package upstream

import (
	"context"
	"fmt"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/watchfan/watchfan/proxy/gate/remember"
)

// servedVersions knows the group versions of kube-apiserver, from its list of API groups. A client
// may ask for any number of group versions that do not exist. One list every missTTL answers for
// all of them. Its methods may be called from any goroutine.
type servedVersions struct {
	calls remember.Coalescer[struct{}, error]

	mu       sync.Mutex
	versions map[schema.GroupVersion]bool // nil if there is no list
	asked    time.Time                    // a version that is not in versions does not exist until missTTL later
	guesses  int                          // allowed since then, because there is no list
}

// mostGuesses bounds the group versions that may be requested within missTTL without knowing that
// they exist, if kube-apiserver does not let the proxy list its groups.
const mostGuesses = 8

// coreVersion is in no list of groups, and always exists.
var coreVersion = schema.GroupVersion{Version: "v1"}

// serves reports whether kube-apiserver has the group version, or may have it. It asks if need be.
func (d *Discovery) serves(ctx context.Context, gv schema.GroupVersion) bool {
	s := &d.served
	if gv == coreVersion {
		return true
	}
	if s.current(gv) {
		return s.may(gv)
	}
	_, ok := s.calls.Do(ctx, struct{}{}, discoveryTimeout, func(ctx context.Context) error {
		asked := time.Now()
		versions, err := d.fetchVersions(ctx)
		if ctx.Err() != context.Canceled { // nobody waits any longer
			s.mu.Lock()
			defer s.mu.Unlock()
			s.versions, s.asked, s.guesses = versions, asked, 0
		}
		return err
	})
	return ok && s.may(gv)
}

// fetchVersions lists the group versions of kube-apiserver, without the core group's.
func (d *Discovery) fetchVersions(ctx context.Context) (map[schema.GroupVersion]bool, error) {
	var list metav1.APIGroupList
	if err := d.get(ctx, "/apis", &list); err != nil {
		return nil, err
	}
	if list.Kind != "APIGroupList" {
		return nil, fmt.Errorf("get /apis: got kind %q", list.Kind)
	}
	versions := make(map[schema.GroupVersion]bool)
	for _, g := range list.Groups {
		for _, v := range g.Versions {
			versions[schema.GroupVersion{Group: g.Name, Version: v.Version}] = true
		}
	}
	return versions, nil
}

// current reports whether the list says that the group version exists, or is new enough to say that it
// does not.
func (s *servedVersions) current(gv schema.GroupVersion) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.versions[gv] || time.Since(s.asked) < missTTL
}

// may reports whether to request a group version: one that is in the list, or a few others if there is
// no list.
func (s *servedVersions) may(gv schema.GroupVersion) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.versions != nil || s.guesses >= mostGuesses {
		return s.versions[gv]
	}
	s.guesses++
	return true
}

// doubt makes the next question for an unknown group version list again.
func (s *servedVersions) doubt() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked = time.Time{}
}

// listed reports whether there is a list.
func (s *servedVersions) listed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.versions != nil
}
