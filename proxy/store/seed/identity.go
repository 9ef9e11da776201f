package seed

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/watchfan/watchfan/proxy/pass/upstream"
)

// protocol is the version of the request and of its answer. Replicas of another version do not seed
// each other.
const protocol = "1"

func hash(s string) string { return fmt.Sprintf("%x", sha256.Sum256([]byte(s)))[:32] }

// differs returns how the identity of a sibling differs from ours; nil if it does not.
func differs(ours, theirs string) *Failure {
	if theirs == ours {
		return nil
	}
	our, their := strings.Fields(ours), strings.Fields(theirs)
	switch {
	case len(their) != len(our) || their[0] != our[0]:
		return Fail(OtherVersion, "it does not answer as this version does")
	case their[1] != our[1]:
		return Fail(OtherCluster, "it serves a cluster whose namespace kube-system has another uid")
	}
	return Fail(OtherBuild, "another build of kube-apiserver wrote what it has")
}

// Identity returns what two replicas must have in common for a seed of objects that a build of
// kube-apiserver wrote: "1 CLUSTER BUILD", where the last two are hashes. It is the value of
// [request.SeedHeader]. The cluster is identified by the uid of its namespace kube-system, and the build
// of what wrote a custom resource has its definition. It may be called from any goroutine.
func (s *Siblings) Identity(ctx context.Context, build upstream.Build) (string, error) {
	answer, ok := s.uids.Get(ctx, struct{}{}, uidTimeout, s.askUID)
	if !ok {
		answer.err = context.DeadlineExceeded
	}
	if answer.err != nil {
		return "", Fail(Unidentified, "get namespace kube-system: %w", answer.err)
	}
	return protocol + " " + hash(answer.uid) + " " + hash(build.String()), nil
}

// uidAnswer is the uid of the namespace kube-system, or why it is not known.
type uidAnswer struct {
	uid string
	err error
}

const (
	uidTTL     = time.Minute
	uidTimeout = 3 * time.Second
)

func (s *Siblings) askUID(ctx context.Context) (answer uidAnswer, believed time.Duration) {
	var namespace struct {
		Metadata struct {
			UID string `json:"uid"`
		} `json:"metadata"`
	}
	err := upstream.ReadOwn(ctx, s.upstream, "/api/v1/namespaces/kube-system", "", &namespace)
	if err == nil && namespace.Metadata.UID == "" {
		err = errors.New("it has no uid")
	}
	if err != nil {
		return uidAnswer{err: err}, 0
	}
	return uidAnswer{uid: namespace.Metadata.UID}, uidTTL
}
