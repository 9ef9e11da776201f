package upstream

import (
	"context"
	"fmt"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/watchfan/watchfan/proxy/auth"
)

// servedVersions knows which group versions kube-apiserver has, from its list of API groups. A
// client may ask for any number that do not exist, and one list every missTTL answers for all of
// them. The zero value knows nothing. Its methods may be called from any goroutine.
type servedVersions struct {
	calls auth.Coalescer[struct{}, error]

	mu       sync.Mutex
	versions map[schema.GroupVersion]bool // nil if the list can't be had
	asked    time.Time                    // when; what is not in versions does not exist until missTTL later
	guesses  int                          // how many have been allowed since then for want of a list
}

// mostGuesses is how many group versions may be asked for within missTTL without knowing that they
// exist, where kube-apiserver does not list its groups to us.
const mostGuesses = 8

// coreVersion is in no list of groups, and always there.
var coreVersion = schema.GroupVersion{Version: "v1"}

// serves reports whether kube-apiserver has the group version, or may have it, asking if need be.
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

// fetchVersions lists the group versions that kube-apiserver has, other than the core group's.
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

// doubt has the next question for a group version that is not known asked anew.
func (s *servedVersions) doubt() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked = time.Time{}
}

func (s *servedVersions) has(gv schema.GroupVersion) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.versions[gv]
}

// fresh reports whether what is not known does not exist, as far as that is to be known.
func (s *servedVersions) fresh() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return time.Since(s.asked) < missTTL
}

// guess reports whether a group version is to be asked for although there is no list that has it:
// only where there is no list, and a few times.
func (s *servedVersions) guess() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.versions != nil || s.guesses >= mostGuesses {
		return false
	}
	s.guesses++
	return true
}
