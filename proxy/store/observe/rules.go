package observe

import (
	"fmt"
	"hash/fnv"
	"io"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/watchfan/watchfan/proxy/base/option"
	"github.com/watchfan/watchfan/proxy/gate/view"
)

// Options are the rules of the configuration file.
type Options struct {
	// Clients are the rules, at most mostRules. The first that fits a read decides.
	Clients Rules
}

// AddTo adds the options to t.
func (o *Options) AddTo(t *option.Table) {
	t.Group("Clients")
	option.Objects[Rule](t, &o.Clients, "clients", "`RULES` that say whose reads are served, observed or off, and in which "+
		"view: the first that fits decides; with views the only field that is read again when the file changes "+
		"(default all are served)")
}

// Mode says what becomes of the reads of a client.
type Mode string

const (
	Off     Mode = "off"     // they pass through
	Observe Mode = "observe" // they pass through, and are compared with what a cache would answer
	Serve   Mode = "serve"   // caches answer them
)

// The words of the configuration. Their Wrong methods say what is wrong with a value; "" for
// nothing.
type (
	Namespace string // of a service account
	User      string
	UserAgent string // a part of it
	Percent   int
	ViewOf    string // says who names the view
)

// OfNamespace is the view that the label view.Label of a service account's namespace names.
const OfNamespace ViewOf = "namespace"

// Rule gives a mode to the reads that fit all of its fields. An empty field fits all.
type Rule struct {
	Namespaces []Namespace     `yaml:"namespaces,omitempty"`
	Users      []User          `yaml:"users,omitempty"`
	UserAgents []UserAgent     `yaml:"userAgents,omitempty"`
	Resources  []view.Resource `yaml:"resources,omitempty"`
	// Percent is of the clients that fit otherwise: always the same ones, in each replica; 0 is all.
	Percent Percent `yaml:"percent,omitempty"`
	// Mode is given, or View.
	Mode Mode `yaml:"mode,omitempty"`
	// View is the view in which the clients read; then Mode is Serve.
	View view.Name `yaml:"view,omitempty"`
	// ViewOf is OfNamespace, in the place of View. Then the rule fits only service accounts whose
	// namespace names a view that there is.
	ViewOf ViewOf `yaml:"viewOf,omitempty"`
}

// Rules are rules in their order.
type Rules []Rule

// mostRules bounds what each read may have to be compared with.
const mostRules = 64

// Wrong says what is wrong with a mode.
func (m Mode) Wrong() string {
	if !slices.Contains([]Mode{Off, Observe, Serve}, m) {
		return "is no mode: give off, observe or serve"
	}
	return ""
}

// Wrong says what is wrong with a percentage.
func (p Percent) Wrong() string {
	if p < 1 || p > 100 {
		return "is no percentage: give 1 to 100"
	}
	return ""
}

// Wrong says what is wrong with a rule, apart from its parts.
func (r Rule) Wrong() string {
	switch {
	case r.Mode == "" && !r.viewed():
		return "has no mode: give off, observe or serve"
	case r.Mode != "" && r.Mode != Serve && r.viewed():
		return "has a view that nobody reads: give no mode, or serve"
	case r.View != "" && r.ViewOf != "":
		return "has view and viewOf: give one of them"
	}
	return ""
}

// viewed reports whether the rule has clients read in a view.
func (r *Rule) viewed() bool { return r.View != "" || r.ViewOf != "" }

// Wrong says what is wrong with what names a view.
func (v ViewOf) Wrong() string {
	if v != OfNamespace {
		return "names no view: give namespace"
	}
	return ""
}

// Wrong says what is wrong with the rules together.
func (rs Rules) Wrong() string {
	if len(rs) > mostRules {
		return fmt.Sprintf("are too many: give at most %d", mostRules)
	}
	return ""
}

// Client is what rules know of a client and of its read.
type Client struct {
	User      string
	UserAgent string
	ID        uint64 // see IDOf; 0 if only rules ask
	Slot      uint8  // see SlotOf
	In        string // the view whose path it has come by; "" for none
	Resource  schema.GroupResource
}

// Namespace returns the namespace of a service account; "" for any other user.
func (c Client) Namespace() string {
	account, _ := strings.CutPrefix(c.User, serviceAccount)
	namespace, _, isAccount := strings.Cut(account, ":")
	if !isAccount || len(account) == len(c.User) {
		return ""
	}
	return namespace
}

const serviceAccount = "system:serviceaccount:"

// IDOf tells a client by its names from others. It is the same in each replica and after each restart.
func IDOf(names ...string) uint64 {
	h := fnv.New64a()
	for _, name := range names {
		_, _ = io.WriteString(h, name+"\x00")
	}
	return h.Sum64()
}

// SlotOf returns which hundredth of all clients one is in.
func SlotOf(id uint64) uint8 { return uint8(id % 100) }

// fits reports whether a rule is about the read of a client.
func (r *Rule) fits(c Client) bool {
	if r.Percent > 0 && int(c.Slot) >= int(r.Percent) {
		return false
	}
	namespace := c.Namespace()
	return (r.ViewOf == "" || namespace != "") &&
		(len(r.Namespaces) == 0 || namespace != "" && slices.Contains(r.Namespaces, Namespace(namespace))) &&
		(len(r.Users) == 0 || slices.Contains(r.Users, User(c.User))) &&
		(len(r.Resources) == 0 || slices.Contains(r.Resources, view.Resource(c.Resource.String()))) &&
		(len(r.UserAgents) == 0 || slices.ContainsFunc(r.UserAgents, func(part UserAgent) bool {
			return strings.Contains(c.UserAgent, string(part))
		}))
}
