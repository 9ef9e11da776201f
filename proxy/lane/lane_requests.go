package lane

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"

	"github.com/watchfan/watchfan/framing"
	"github.com/watchfan/watchfan/proxy/upstream"
)

// list requests the collection in the lane's representation.
func (l *Lane) list(ctx context.Context, query string) (*http.Response, error) {
	return l.own(l.get(ctx, l.path, query, l.Accept(true)))
}

// watch requests a watch of the collection in the lane's representation.
func (l *Lane) watch(ctx context.Context, query string) (*http.Response, error) {
	return l.own(l.get(ctx, l.path, query, l.Accept(false)))
}

// own returns an error for a response that is not in the lane's encoding.
func (l *Lane) own(resp *http.Response, err error) (*http.Response, error) {
	if err != nil {
		return nil, err
	}
	if got := resp.Header.Get("Content-Type"); !strings.HasPrefix(got, l.MediaType()) {
		resp.Body.Close()
		return nil, fmt.Errorf("upstream answered %.100q to %s", got, l.MediaType())
	}
	return resp, nil
}

// get sends a request upstream. Any other answer than 200 is a *statusError.
func (l *Lane) get(ctx context.Context, path, query, accept string) (*http.Response, error) {
	resp, err := upstream.GetOwn(ctx, l.lanes.upstream, path, query, accept)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		defer resp.Body.Close()
		return nil, readStatus(resp)
	}
	return resp, nil
}

// listVersions returns the resourceVersion of each object in the collection, by the object's key,
// and that of the collection.
func (l *Lane) listVersions(ctx context.Context) (versions map[string]uint64, asOf uint64, err error) {
	resp, err := l.get(ctx, l.path, "", metadataOnly)
	if err != nil {
		return nil, 0, err
	}
	defer resp.Body.Close()
	encoding := framing.JSON
	if strings.HasPrefix(resp.Header.Get("Content-Type"), "application/vnd.kubernetes.protobuf") {
		encoding = framing.Protobuf
	}
	versions = make(map[string]uint64)
	list, scanner := framing.NewListReader(encoding, resp.Body), framing.NewScanner(encoding, nil)
	for {
		raw, err := list.Next()
		if err == io.EOF {
			meta, err := list.Metadata()
			return versions, meta.ResourceVersion, err
		}
		var o *framing.Object
		if err == nil {
			o, err = scanner.Item(raw, nil)
		}
		if err != nil {
			return nil, 0, err
		}
		versions[o.Key] = o.ResourceVersion
	}
}

// currentVersion asks upstream for its current resourceVersion. The list is consistent, empty and
// costs nothing: it is of a namespace that can't exist or, where there are no namespaces, of a name
// that can't exist.
func (l *Lane) currentVersion(ctx context.Context) (uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	path, params := l.path, upstream.Query("fieldSelector", upstream.MatchesNothing)
	if l.Info.Namespaced {
		path, params = strings.TrimSuffix(l.path, l.GVR.Resource)+"namespaces/-/"+l.GVR.Resource, upstream.Query("limit", "1")
	}
	resp, err := l.own(l.get(ctx, path, params, l.Accept(true)))
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	list := framing.NewListReader(l.Encoding, resp.Body)
	for err == nil {
		_, err = list.Next()
	}
	if err != io.EOF {
		return 0, err
	}
	meta, err := list.Metadata()
	return meta.ResourceVersion, err
}

// listAt returns the objects that a field selector selects, as of resourceVersion rv.
func (l *Lane) listAt(ctx context.Context, path, fieldSelector string, rv uint64) (objects []*framing.Object, err error) {
	form := l.Form.Load()
	scanner, typed := framing.NewScanner(l.Encoding, l.fields), form.TypeMeta(l.Info.Kind)
	pairs := []string{"limit", listPage, "resourceVersion", strconv.FormatUint(rv, 10), "resourceVersionMatch", "Exact"}
	for {
		if fieldSelector != "" {
			pairs = append(pairs, "fieldSelector", fieldSelector)
		}
		resp, err := l.own(l.get(ctx, path, upstream.Query(pairs...), l.Accept(true)))
		if err != nil {
			return nil, fmt.Errorf("list %s at %d: %w", l, rv, err)
		}
		meta, err := readList(l.Encoding, resp.Body, func(raw []byte) error {
			o, err := scanner.Item(raw, typed)
			objects = append(objects, o)
			return err
		})
		resp.Body.Close()
		if err == nil && meta.ResourceVersion != rv {
			err = fmt.Errorf("it is as of %d", meta.ResourceVersion)
		}
		if err != nil {
			return nil, fmt.Errorf("list %s at %d: %w", l, rv, err)
		}
		if meta.Continue == "" {
			return objects, nil
		}
		pairs = []string{"limit", listPage, "continue", meta.Continue}
	}
}

// readWatch calls f for each event of a watch of the collection until f returns false. It returns
// an error if the stream ends before that, and for an ERROR event.
func (l *Lane) readWatch(ctx context.Context, query string, f func(framing.Event) bool) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	resp, err := l.watch(ctx, query)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	lines := framing.NewEventReader(l.Encoding, resp.Body)
	scanner := framing.NewScanner(l.Encoding, l.fields)
	for {
		line, err := lines.Next()
		if err == io.EOF {
			return errors.New("watch ended before it told how far it had come")
		}
		if err != nil {
			return err
		}
		ev, err := scanner.Event(line)
		if err != nil {
			return err
		}
		if ev.Type == framing.Error {
			return eventError(ev)
		}
		if !f(ev) {
			return nil
		}
	}
}

// readList calls f for each item of a list.
func readList(encoding framing.Encoding, body io.Reader, f func(raw []byte) error) (framing.ListMeta, error) {
	list := framing.NewListReader(encoding, body)
	for {
		raw, err := list.Next()
		if err == io.EOF {
			return list.Metadata()
		}
		if err == nil {
			err = f(raw)
		}
		if err != nil {
			return framing.ListMeta{}, err
		}
	}
}
