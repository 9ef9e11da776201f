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
	if gv == coreVersion || s.has(gv) {
		return true
	}
	if s.fresh() {
		return s.guess()
	}
	_, ok := s.calls.Do(ctx, struct{}{}, discoveryTimeout, func(ctx context.Context) error {
		asked := time.Now()
		versions, err := d.fetchVersions(ctx)
		if ctx.Err() != context.Canceled { // nobody waits any longer
			s.set(versions, asked)
		}
		return err
	})
	return ok && (s.has(gv) || s.guess())
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

func (s *servedVersions) set(versions map[schema.GroupVersion]bool, asked time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.versions, s.asked, s.guesses = versions, asked, 0
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

func (s *servedVersions) has(gv schema.GroupVersion) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.versions[gv]
}

// fresh reports whether the list is new enough to say that other group versions do not exist.
func (s *servedVersions) fresh() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return time.Since(s.asked) < missTTL
}

// guess reports whether to request a group version that is in no list. That is so only if there is
// no list, and only a few times.
func (s *servedVersions) guess() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.versions != nil || s.guesses >= mostGuesses {
		return false
	}
	s.guesses++
	return true
}
