package upstream

import (
	"cmp"
	"context"
	"encoding/json"
	"time"

	"github.com/watchfan/watchfan/proxy/gate/auth"
	"github.com/watchfan/watchfan/proxy/gate/remember"
	"github.com/watchfan/watchfan/proxy/wire/exchange"
)

// Build is the build of kube-apiserver that wrote something. Another build may write the same
// object, at the same resourceVersion, in other bytes. A field that kube-apiserver does not tell is
// "" and equals everything.
type Build struct {
	version string // the whole answer of /version
	schema  string // the URL of the group version's OpenAPI schema, which has its hash
	// definition is that of a custom resource; see [Definition.storage]. A lane has one only.
	definition string
}

// Differs reports whether another build may have written other bytes.
func (b Build) Differs(from Build) bool {
	unlike := func(x, y string) bool { return x != "" && y != "" && x != y }
	return unlike(b.version, from.version) || unlike(b.schema, from.schema)
}

// Or returns the build with what is known of other where b does not tell.
func (b Build) Or(other Build) Build {
	return Build{cmp.Or(b.version, other.version), cmp.Or(b.schema, other.schema), cmp.Or(b.definition, other.definition)}
}

// String returns all that is known of the build. Equal builds have equal strings.
func (b Build) String() string {
	known := b.version + "\n" + b.schema
	if b.definition != "" {
		known += "\n" + b.definition
	}
	return known
}

// Builds asks kube-apiserver for its build, once for all lanes that ask at the same time.
type Builds struct {
	upstream auth.APIServer
	calls    remember.Coalescer[struct{}, buildAnswer]
}

// NewBuilds returns a Builds that asks upstream. The caller calls End.
func NewBuilds(upstream auth.APIServer, guard *exchange.Guard) *Builds {
	return &Builds{upstream: upstream, calls: remember.Coalescer[struct{}, buildAnswer]{Guard: guard}}
}

type buildAnswer struct {
	version string
	schemas map[string]string // by path, as apis/apps/v1
}

const (
	// buildTimeout is how long a list waits for the answer.
	buildTimeout = 2 * time.Second
	// buildAskTimeout bounds the requests themselves. The next list may still use a late answer.
	buildAskTimeout = 10 * time.Second
)

// Of returns the build that answers for a resource now. What kube-apiserver does not tell in time is empty.
func (b *Builds) Of(ctx context.Context, info ResourceInfo) Build {
	gv := info.GVR.GroupVersion()
	ctx, cancel := context.WithTimeout(ctx, buildTimeout)
	defer cancel()
	answer, _ := b.calls.Do(ctx, struct{}{}, buildAskTimeout, b.ask)
	path := "apis/" + gv.String()
	if gv.Group == "" {
		path = "api/" + gv.Version
	}
	return Build{answer.version, answer.schemas[path], info.Definition.storage()}
}

// End ends the requests under way and waits for them.
func (b *Builds) End() { b.calls.End() }

func (b *Builds) ask(ctx context.Context) (answer buildAnswer) {
	var version json.RawMessage
	if ReadOwn(ctx, b.upstream, "/version", "", &version) == nil {
		answer.version = string(version)
	}
	var index struct {
		Paths map[string]struct {
			ServerRelativeURL string `json:"serverRelativeURL"`
		} `json:"paths"`
	}
	if ReadOwn(ctx, b.upstream, "/openapi/v3", "", &index) != nil {
		return answer
	}
	answer.schemas = make(map[string]string, len(index.Paths))
	for path, schema := range index.Paths {
		answer.schemas[path] = schema.ServerRelativeURL
	}
	return answer
}
