package seed

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/watchfan/watchfan/proxy/gate/auth"
	"github.com/watchfan/watchfan/proxy/pass/upstream"
)

// protocol is the version of the request and of its answer. Replicas of another version do not seed
// each other.
const protocol = "1"

// identity is what two replicas must have in common: "1 CLUSTER BUILD", where the last two are
// hashes.
type identity string

func newIdentity(uid string, build upstream.Build) identity {
	return identity(protocol + " " + hash(uid) + " " + hash(build.String()))
}

func hash(s string) string { return fmt.Sprintf("%x", sha256.Sum256([]byte(s)))[:32] }

// differs returns how the identity of a sibling differs; nil if it does not.
func (i identity) differs(sibling string) *Failure {
	if sibling == string(i) {
		return nil
	}
	ours, theirs := strings.Fields(string(i)), strings.Fields(sibling)
	switch {
	case len(theirs) != len(ours) || theirs[0] != ours[0]:
		return fail(OtherVersion, "it does not answer as this version does")
	case theirs[1] != ours[1]:
		return fail(OtherCluster, "it serves a cluster whose namespace kube-system has another uid")
	}
	return fail(OtherBuild, "another build of kube-apiserver wrote what it has")
}

// Identity returns what the value of [request.SeedHeader] must be for a seed of objects that a
// build of kube-apiserver wrote. The cluster is identified by the uid of its namespace kube-system.
// It may be called from any goroutine.
func (s *Siblings) Identity(ctx context.Context, build upstream.Build) (string, error) {
	uid, err := s.cluster.get(ctx)
	if err != nil {
		return "", &Failure{Unidentified, err}
	}
	return string(newIdentity(uid, build)), nil
}

// clusterUID knows the uid of the namespace kube-system. Its methods may be called from any
// goroutine.
type clusterUID struct {
	*upstream.Answers[struct{}, uidAnswer]
	upstream auth.APIServer
}

type uidAnswer struct {
	uid string
	err error
}

const (
	uidTTL     = time.Minute
	uidTimeout = 3 * time.Second
)

func (c *clusterUID) get(ctx context.Context) (string, error) {
	answer, ok := c.Get(ctx, struct{}{}, uidTimeout, c.ask)
	if !ok {
		return "", fmt.Errorf("get namespace kube-system: %w", context.DeadlineExceeded)
	}
	return answer.uid, answer.err
}

func (c *clusterUID) ask(ctx context.Context) (answer uidAnswer, believed time.Duration) {
	var namespace struct {
		Metadata struct {
			UID string `json:"uid"`
		} `json:"metadata"`
	}
	body, err := upstream.ReadOwn(ctx, c.upstream, "/api/v1/namespaces/kube-system", "")
	if err == nil {
		err = json.Unmarshal(body, &namespace)
	}
	if err == nil && namespace.Metadata.UID == "" {
		err = errors.New("it has no uid")
	}
	if err != nil {
		return uidAnswer{err: fmt.Errorf("get namespace kube-system: %w", err)}, 0
	}
	return uidAnswer{uid: namespace.Metadata.UID}, uidTTL
}
