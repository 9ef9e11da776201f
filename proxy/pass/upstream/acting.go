package upstream

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/version"

	"github.com/watchfan/watchfan/proxy/gate/auth"
)

// constrainedFrom is the first version of kube-apiserver with constrained impersonation.
var constrainedFrom = version.MajorMinor(1, 36)

// mostNames is how many names a line has.
const mostNames = 10

// acting is one way to act as somebody: see package auth, Impersonation at kube-apiserver.
type acting struct {
	verb, group, resource string
	whom                  string
	used                  bool // by watchfan, from constrainedFrom on
	unnamed               bool // and needs no names
}

const (
	oldVerb        = "impersonate"
	nodeVerb       = "impersonate:arbitrary-node"
	authentication = "authentication.k8s.io"
)

var actings = []acting{
	{oldVerb, "", "users", "user", false, false},
	{oldVerb, "", "groups", "group", false, false},
	{oldVerb, "", "serviceaccounts", "service account", false, false},
	{nodeVerb, authentication, "nodes", "node", true, true},
	{"impersonate:associated-node", authentication, "nodes", "node of its own pod", false, false},
	{"impersonate:serviceaccount", authentication, "serviceaccounts", "service account", false, false},
	{"impersonate:user-info", authentication, "users", "user", true, false},
	{"impersonate:user-info", authentication, "groups", "group", true, false},
}

// actsAs says, a line for each way, whom the proxy's account may act as, and what of that is wider
// than it needs at a kube-apiserver of this version. It asks with SelfSubjectRulesReview, and makes
// sure in a node's name that kube-apiserver takes it for a node.
func (u *Upstream) actsAs(ctx context.Context, gitVersion string) ([]string, error) {
	var rules auth.RulesReview
	if err := u.ask(ctx, http.MethodPost, auth.RulesReviewPath, string(auth.RulesReviewFor("default")), &rules); err != nil {
		return nil, err
	}
	if _, all := rules.Names("*", "*", "*"); all {
		return []string{"anybody: it may do everything, which is wider than needed"}, nil
	}
	v, err := version.ParseGeneric(gitVersion)
	constrained := err == nil && v.AtLeast(constrainedFrom)
	var lines []string
	for _, a := range actings {
		names, all := rules.Names(a.verb, a.group, a.resource)
		if len(names) == 0 && !all {
			continue
		}
		lines = append(lines, a.line(names, all)+a.remark(all, constrained))
		if a.verb == nodeVerb && constrained {
			name := append(names, "watchfan-check")[0]
			if err := u.isNode(ctx, name); err != nil {
				lines = append(lines, fmt.Sprintf("kubelets are refused: as %s, %v", name, err))
			}
		}
	}
	if !rules.Complete() {
		lines = append(lines, "perhaps others: an authorizer of the cluster does not list its rules")
	}
	return lines, nil
}

func (a acting) line(names []string, all bool) string {
	if all {
		return fmt.Sprintf("any %s (%s)", a.whom, a.verb)
	}
	shown := strings.Join(names[:min(len(names), mostNames)], ", ")
	if more := len(names) - mostNames; more > 0 {
		shown += fmt.Sprintf(" and %d more", more)
	}
	return fmt.Sprintf("%s %s (%s)", a.whom, shown, a.verb)
}

// remark says what is wrong with a right, if anything.
func (a acting) remark(all, constrained bool) string {
	switch {
	case !constrained && a.verb != oldVerb:
		return ": kube-apiserver knows that verb from " + constrainedFrom.String() + " on"
	case !constrained && (!all || a.whom == "user"): // as kubelets need it
		return ""
	case a.verb == oldVerb && constrained:
		return ": wider than needed from " + constrainedFrom.String() + " on"
	case !a.used || all && !a.unnamed:
		return ": wider than needed"
	}
	return ""
}

// isNode returns nil if kube-apiserver takes a request of the proxy in a node's name for the node's.
func (u *Upstream) isNode(ctx context.Context, name string) error {
	id := auth.Identity{Kind: auth.KindCertificate,
		User: &auth.UserInfo{Name: "system:node:" + name, Groups: []string{"system:nodes", "system:authenticated"}}}
	var review selfSubjectReview
	err := u.askAs(ctx, id, http.MethodPost, selfSubjectReviewPath, selfSubjectReviewBody, &review)
	if err != nil {
		return fmt.Errorf("%w: is its feature gate ConstrainedImpersonation off?", err)
	}
	if groups := review.Status.UserInfo.Groups; !slices.Contains(groups, "system:nodes") {
		return fmt.Errorf("kube-apiserver sees the groups [%s]: take the verb %s on users away",
			strings.Join(groups, ", "), oldVerb)
	}
	return nil
}
