package reflector

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
	"unicode/utf8"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"

	"github.com/watchfan/watchfan/framing"
	"github.com/watchfan/watchfan/proxy/gate/request"
	"github.com/watchfan/watchfan/proxy/pass/upstream"
)

// Collection is all objects of one resource upstream, in one representation, and the requests about
// them. Its methods may be called from any goroutine.
type Collection struct {
	// Immutable.
	request.Representation
	FieldLabels []string // the fields that the objects can be selected by, besides those of every resource

	info   upstream.ResourceInfo
	source *Source
	path   string
	part   string          // the path of what is watched: path, or that of a namespace
	query  string          // of what is watched: selectors, each with & before it
	fields []framing.Field // of FieldLabels

	style atomic.Pointer[style] // nil until learn has succeeded
}

// style is how upstream answers lists of the collection.
type style struct {
	form     framing.ListForm
	typed    []byte   // what a list leaves out of each object; see framing.ListForm.TypeMeta
	warnings []string // the Warning headers of each response to anybody, as for deprecated resources
}

const (
	listPage    = "500"
	listTimeout = time.Minute // for a page of a list, for a watch to begin, or for initial events to go on
)

// Collection returns the collection of a resource in a representation. part is what is watched of Tables.
func (s *Source) Collection(info upstream.ResourceInfo, rep request.Representation, part Selection) *Collection {
	path := upstream.CollectionPath(info.GVR)
	c := &Collection{Representation: rep, info: info, source: s, path: path, part: path}
	if rep.Metadata == "" && rep.Table == "" {
		c.fields = upstream.SelectableFields(info)
	}
	for _, f := range c.fields {
		c.FieldLabels = append(c.FieldLabels, f.Label)
	}
	if part.Namespace != "" {
		c.part = c.namespacePath(url.PathEscape(part.Namespace))
	}
	if c.Include != "" {
		c.query += "&includeObject=" + url.QueryEscape(c.Include)
	}
	if q := part.query(); q != "" {
		c.query += "&" + q
	}
	return c
}

// String names the collection in errors: apps/v1/deployments (protobuf).
func (c *Collection) String() string {
	return request.ResourceText(c.info.GVR) + " (" + c.Representation.String() + ")"
}

// File names the collection in --cache-dir; "" if it is not kept there, as Tables and CBOR are not.
func (c *Collection) File() string {
	resource := request.ResourceText(c.info.GVR)
	if c.source.siblings == nil || !c.source.siblings.Disk.Keeps(resource) || c.Table != "" || c.Encoding == framing.CBOR {
		return ""
	}
	return resource + "_" + c.Representation.String()
}

// Form returns how upstream writes lists of the collection; nil until a reflector has learned it.
func (c *Collection) Form() *framing.ListForm {
	if s := c.style.Load(); s != nil {
		return &s.form
	}
	return nil
}

// Warnings returns the Warning headers that upstream adds to each response, whoever asks.
func (c *Collection) Warnings() []string {
	if s := c.style.Load(); s != nil {
		return s.warnings
	}
	return nil
}

// Uncached reports whether kube-apiserver has no watch cache for the resource. Then its watch never
// tells how far it has come (kubernetes/pkg/kubeapiserver/default_storage_factory_builder.go).
func (c *Collection) Uncached() bool {
	g := c.info.GVR
	return g.Resource == "events" && (g.Group == "" || g.Group == "events.k8s.io")
}

// learn asks for an empty list, to see how upstream writes it, unless that is known.
func (c *Collection) learn(ctx context.Context) error {
	if c.style.Load() != nil {
		return nil
	}
	learned, err := c.ask(ctx)
	if err != nil {
		return fmt.Errorf("list %s: %w", c, err)
	}
	c.style.Store(&learned)
	return nil
}

// learnWarnings asks for the Warnings again. The known ones remain if upstream does not answer soon.
func (c *Collection) learnWarnings(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, compareTimeout)
	defer cancel()
	if learned, err := c.ask(ctx); err == nil {
		known := *c.style.Load()
		known.warnings = learned.warnings
		c.style.Store(&known)
	}
}

// ask asks for an empty list.
func (c *Collection) ask(ctx context.Context) (learned style, err error) {
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	resp, err := c.list(ctx, c.path, upstream.Query("resourceVersion", "0", "fieldSelector", upstream.MatchesNothing))
	if err != nil {
		return learned, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, framing.MaxEvent))
	if err == nil {
		learned.form, _, err = framing.ParseListForm(c.Encoding, body)
	}
	if err == nil {
		learned.typed = learned.form.TypeMeta(c.info.Kind)
		learned.warnings, err = upstream.WithoutOwn(ctx, c.source.upstream, resp.Header.Values("Warning"))
	}
	return learned, err
}

// scanner returns a scanner of the collection's objects.
func (c *Collection) scanner() framing.Scanner {
	if c.Table != "" {
		return framing.NewTableScanner()
	}
	return framing.NewScanner(c.Encoding, c.fields)
}

// knownScanner returns a scanner of events that such a scanner has read before.
func (c *Collection) knownScanner() framing.Scanner {
	return framing.NewKnownScanner(c.Encoding, c.fields)
}

// list requests what is at path, which is the collection's or below it, or what query selects of it.
func (c *Collection) list(ctx context.Context, path, query string) (*http.Response, error) {
	return c.checked(c.get(ctx, path, query, c.Accept(true)))
}

// items calls f for each item of such a list. It returns the first error of f.
func (c *Collection) items(ctx context.Context, path, query string, f func(raw []byte) error) (framing.ListMeta, error) {
	resp, err := c.list(ctx, path, query)
	if err != nil {
		return framing.ListMeta{}, err
	}
	defer resp.Body.Close()
	return framing.ReadList(c.Encoding, resp.Body, f)
}

// watch requests a watch of the collection, with these parameters besides the usual ones.
func (c *Collection) watch(ctx context.Context, timeout time.Duration, params ...string) (*http.Response, error) {
	query := upstream.Query(append(params,
		"watch", "true",
		"allowWatchBookmarks", "true",
		"timeoutSeconds", strconv.Itoa(int(timeout.Seconds())),
	)...)
	return c.checked(c.get(ctx, c.part, query+c.query, c.Accept(false)))
}

// checked returns an error for a response that is not in the collection's representation.
func (c *Collection) checked(resp *http.Response, err error) (*http.Response, error) {
	if err != nil {
		return nil, err
	}
	if got := resp.Header.Get("Content-Type"); !strings.HasPrefix(got, c.Encoding.MediaType()) {
		resp.Body.Close()
		return nil, fmt.Errorf("upstream answered %.100q to %s", got, c.Encoding.MediaType())
	}
	return resp, nil
}

// get sends a request upstream. Any other answer than 200 is a *statusError.
func (c *Collection) get(ctx context.Context, path, query, accept string) (*http.Response, error) {
	resp, err := upstream.GetOwn(ctx, c.source.upstream, path, query, accept)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		defer resp.Body.Close()
		return nil, readStatus(resp)
	}
	return resp, nil
}

// namespacePath returns the path of the objects in one namespace, given by its escaped name.
func (c *Collection) namespacePath(namespace string) string {
	resource := c.info.GVR.Resource
	return strings.TrimSuffix(c.path, resource) + "namespaces/" + namespace + "/" + resource
}

// CurrentVersion asks upstream for its current resourceVersion. The list that it requests is
// consistent, empty and costs nothing: it is of a namespace that cannot exist or, for a
// cluster-scoped resource, of a name that cannot exist. It waits for patience at most.
func (c *Collection) CurrentVersion(ctx context.Context, patience time.Duration) (uint64, error) {
	ctx, cancel := context.WithTimeout(upstream.Brief(ctx), patience)
	defer cancel()
	path, query := c.path, upstream.Query("fieldSelector", upstream.MatchesNothing)
	if c.info.Namespaced {
		path, query = c.namespacePath("-"), upstream.Query("limit", "1")
	}
	meta, err := c.items(ctx, path, query, func([]byte) error { return nil })
	return meta.ResourceVersion, err
}

// metadataOnly is the Accept header of a list that is requested for the objects' versions alone. A
// resource that has no protobuf is answered in JSON; one that has no metadata form, whole.
const metadataOnly = "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1," +
	"application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"

// ListIdentities requests one page of the collection, of up to limit objects: the page that token leads to
// or, for an empty token, the first one of a consistent list. It calls f with the identity of each object in
// the order of the keys. The identity is valid until f returns. An error of f ends the call.
func (c *Collection) ListIdentities(
	ctx context.Context, limit int, token string, f func(framing.Identity) error,
) (framing.ListMeta, error) {
	return c.identities(ctx, c.path, upstream.Query("limit", strconv.Itoa(limit), "continue", token), f)
}

// ListPart calls f with the identity of each object of a consistent list of a part of the collection, as
// ListIdentities.
func (c *Collection) ListPart(ctx context.Context, s Selection, f func(framing.Identity) error) (framing.ListMeta, error) {
	path := c.path
	if s.Namespace != "" {
		path = c.namespacePath(url.PathEscape(s.Namespace))
	}
	if s != (Selection{}) {
		ctx = upstream.Brief(ctx)
	}
	return c.identities(ctx, path, s.query(), f)
}

// identities calls f with the identity of each object of such a list.
func (c *Collection) identities(
	ctx context.Context, path, query string, f func(framing.Identity) error,
) (framing.ListMeta, error) {
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	resp, err := c.get(ctx, path, query, metadataOnly)
	if err != nil {
		return framing.ListMeta{}, fmt.Errorf("list %s: %w", c, err)
	}
	defer resp.Body.Close()
	encoding, _ := framing.EncodingOf(resp.Header.Get("Content-Type"))
	scanner, last := framing.NewScanner(encoding, nil), []byte(nil)
	meta, err := framing.ReadList(encoding, resp.Body, func(raw []byte) error {
		id, err := scanner.Identity(raw)
		if err != nil {
			return err
		}
		last = id.AppendKey(last[:0])
		return f(id)
	})
	if err == nil {
		err = checkNext(meta, last)
	}
	if err != nil {
		return framing.ListMeta{}, fmt.Errorf("list %s: %w", c, err)
	}
	return meta, nil
}

// ListAt lists the collection as of resourceVersion rv, and returns the objects whose keys keep
// reports true for. It holds no others.
func (c *Collection) ListAt(ctx context.Context, rv uint64, keep func(key string) bool) ([]*framing.Object, error) {
	return c.listAt(ctx, c.path, "", rv, keep)
}

// GetAt returns the object with a key as of resourceVersion rv, or nothing if there was none.
func (c *Collection) GetAt(ctx context.Context, key string, rv uint64) ([]*framing.Object, error) {
	path, name := c.path, key
	if namespace, rest, namespaced := strings.Cut(key, "/"); namespaced {
		path, name = c.namespacePath(url.PathEscape(namespace)), rest
	}
	selector := fields.OneTermEqualSelector(metav1.ObjectNameField, name).String() // names of RBAC's kinds may have commas
	return c.listAt(ctx, path, selector, rv, func(string) bool { return true })
}

// listAt returns the objects of such a list whose keys keep reports true for.
func (c *Collection) listAt(
	ctx context.Context, path, fieldSelector string, rv uint64, keep func(key string) bool,
) (objects []*framing.Object, err error) {
	_, err = c.objects(ctx, path, fieldSelector, rv, func(o *framing.Object) error {
		if keep(o.Key) {
			objects = append(objects, o)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("list %s at %d: %w", c, rv, err)
	}
	return objects, nil
}

// objects calls f for each object at path that a field selector selects, page by page, and returns
// the resourceVersion of the list. That is rv, or the current one if rv is 0. "" is no selector. It
// returns the first error of f.
func (c *Collection) objects(
	ctx context.Context, path, fieldSelector string, rv uint64, f func(*framing.Object) error,
) (asOf uint64, err error) {
	var pairs []string
	if rv != 0 {
		pairs = []string{"resourceVersion", strconv.FormatUint(rv, 10), "resourceVersionMatch", "Exact"}
	}
	for {
		pairs = append(pairs, "limit", listPage)
		if fieldSelector != "" {
			pairs = append(pairs, "fieldSelector", fieldSelector)
		}
		meta, err := c.page(ctx, path, upstream.Query(pairs...), f)
		if err == nil && rv != 0 && meta.ResourceVersion != rv {
			err = fmt.Errorf("it is as of %d", meta.ResourceVersion)
		}
		if err != nil || meta.Continue == "" {
			return meta.ResourceVersion, err
		}
		pairs = []string{"continue", meta.Continue}
	}
}

// page calls f for each object of one page of such a list.
func (c *Collection) page(
	ctx context.Context, path, query string, f func(*framing.Object) error,
) (framing.ListMeta, error) {
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	scanner, typed, last := c.scanner(), c.style.Load().typed, ""
	meta, err := c.items(ctx, path, query, func(raw []byte) error {
		o, err := scanner.Item(raw, typed)
		if err != nil {
			return err
		}
		last = o.Key
		return f(o)
	})
	if err == nil {
		err = checkNext(meta, last)
	}
	return meta, err
}

// checkNext returns an error for a page that leads to no next one, although there is one. last is the
// page's last key. A continue token holds it in JSON, which has U+FFFD in place of bytes that are not
// UTF-8. kube-apiserver would go on elsewhere, and might never come to an end.
func checkNext[T string | []byte](meta framing.ListMeta, last T) error {
	if meta.Continue != "" && !utf8.ValidString(string(last)) {
		return fmt.Errorf("a page ends with a %w", framing.ErrReplaced)
	}
	return nil
}

// ReadWatch calls f for each event of a short watch from resourceVersion rv, until f returns false
// or an error, which it returns. It returns an error if the stream ends before that, and for an
// ERROR event. Upstream sends a bookmark about a second after the beginning.
func (c *Collection) ReadWatch(
	ctx context.Context, rv uint64, f func(framing.Event) (more bool, err error),
) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	resp, err := c.watch(ctx, request.ProbeSeconds*time.Second, "resourceVersion", strconv.FormatUint(rv, 10))
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	lines, scanner := framing.NewEventReader(c.Encoding, resp.Body), c.scanner()
	for {
		ev, _, err := nextEvent(lines, scanner)
		if err == io.EOF {
			return errors.New("the watch ended before its bookmark")
		}
		if err != nil {
			return err
		}
		if more, err := f(ev); !more || err != nil {
			return err
		}
	}
}

// nextEvent reads an event, and returns the bytes that it took. An ERROR event is a *statusError.
func nextEvent(lines *framing.EventReader, scanner framing.Scanner) (ev framing.Event, size int, err error) {
	line, err := lines.Next()
	if err == nil {
		ev, err = scanner.Event(line)
	}
	if err == nil && ev.Type == framing.Error {
		err = eventError(ev)
	}
	return ev, len(line), err
}
