package preview

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/watchfan/watchfan/fanout"
	"github.com/watchfan/watchfan/framing"
	"github.com/watchfan/watchfan/proxy/gate/view"
	"github.com/watchfan/watchfan/proxy/pass/upstream"
	"github.com/watchfan/watchfan/proxy/wire/exchange"
)

// pageSize is how many objects are asked for at a time.
const pageSize = "500"

// sum counts objects or events and their bytes.
type sum struct {
	n     int
	bytes int64
}

func (s *sum) add(bytes int) {
	s.n++
	s.bytes += int64(bytes)
}

// counting counts what there is of one resource, with and without a view.
type counting struct {
	server *upstream.Upstream
	info   upstream.ResourceInfo
	view   *view.View

	variant    *fanout.Variant
	protobuf   error           // why the view can't be made in protobuf
	namespaces map[string]bool // with the labels that the view asks for; nil for all
	scanner    framing.Scanner

	version uint64                     // of the list
	shown   map[string]*framing.Object // what the view has, by key
	objects [2]sum                     // all, and in the view
	events  [2]sum
}

// prepare makes the view's form, and reads the namespaces with its labels.
func (n *counting) prepare(ctx context.Context) (err error) {
	if n.variant, err = n.view.Variant(n.info.GVR, framing.JSON, false, false); err != nil {
		return err
	}
	_, n.protobuf = n.view.Variant(n.info.GVR, framing.Protobuf, false, false)
	n.scanner, n.shown = framing.NewScanner(framing.JSON, nil), make(map[string]*framing.Object)
	if n.variant.Namespaces == nil {
		return nil
	}
	n.namespaces = make(map[string]bool)
	_, err = n.pages(ctx, upstream.NamespacesResource, n.variant.Namespaces.String(), func(item []byte) error {
		o, err := n.scanner.Item(item, nil)
		if err == nil {
			n.namespaces[o.Name] = true
		}
		return err
	})
	return err
}

// list counts the objects.
func (n *counting) list(ctx context.Context) (err error) {
	typeMeta := fmt.Appendf(nil, `"kind":%q,"apiVersion":%q,`, n.info.Kind, n.info.GVR.GroupVersion())
	n.version, err = n.pages(ctx, n.info.GVR, "", func(item []byte) error {
		o, err := n.scanner.Item(item, typeMeta)
		if err != nil {
			return err
		}
		n.objects[0].add(len(o.Bytes()))
		if n.has(o) {
			n.shown[o.Key] = o
			n.objects[1].add(exchange.BodySlices(o.AppendTrimmed(nil, n.variant.Trim)).Size())
		}
		return nil
	})
	return err
}

// has reports whether the view has an object.
func (n *counting) has(o *framing.Object) bool {
	return (n.namespaces == nil || n.namespaces[o.Namespace]) && o.In(n.variant.Trim, nil)
}

// pages lists a resource, and returns the list's resourceVersion.
func (n *counting) pages(ctx context.Context, of schema.GroupVersionResource, labels string, each func(item []byte) error) (uint64, error) {
	for next := ""; ; {
		body, err := n.get(ctx, of, upstream.Query("limit", pageSize, "continue", next, "labelSelector", labels))
		if err != nil {
			return 0, err
		}
		meta, err := framing.ReadList(framing.JSON, body, each)
		body.Close()
		if err != nil {
			return 0, fmt.Errorf("list %s: %w", of.Resource, err)
		}
		if next = meta.Continue; next == "" {
			return meta.ResourceVersion, nil
		}
	}
}

// get sends a request for a resource, and returns the body of an answer that is no error.
func (n *counting) get(ctx context.Context, of schema.GroupVersionResource, query string) (io.ReadCloser, error) {
	resp, err := upstream.GetOwn(ctx, n.server, upstream.CollectionPath(of), query, "application/json")
	if err != nil {
		return nil, fmt.Errorf("get %s of %s: %w", of.Resource, n.server.Address(), err)
	}
	if resp.StatusCode == http.StatusOK {
		return resp.Body, nil
	}
	defer resp.Body.Close()
	var st metav1.Status
	_ = json.NewDecoder(io.LimitReader(resp.Body, 1<<16)).Decode(&st)
	return nil, fmt.Errorf("get %s of %s: %s: %s", of.Resource, n.server.Address(), resp.Status, st.Message)
}

// watch counts events from the list on, until kube-apiserver ends the watch.
func (n *counting) watch(ctx context.Context, d time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, d+10*time.Second)
	defer cancel()
	body, err := n.get(ctx, n.info.GVR, upstream.Query("watch", "1", "resourceVersion", strconv.FormatUint(n.version, 10),
		"timeoutSeconds", strconv.Itoa(int(d/time.Second))))
	if err != nil {
		return err
	}
	defer body.Close()
	for events := framing.NewEventReader(framing.JSON, body); ; {
		line, err := events.Next()
		if err == io.EOF || ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return fmt.Errorf("the watch ended early: %w", err)
		}
		ev, err := n.scanner.Event(line)
		switch {
		case err != nil:
			return err
		case ev.Type == framing.Error:
			return errors.New("the watch ended early: " + ev.Status.Message)
		case ev.Object != nil:
			n.event(ev.Type, ev.Object)
		}
	}
}

// event counts an event, and one of the view if its clients are told.
func (n *counting) event(t framing.EventType, o *framing.Object) {
	n.events[0].add(o.Frame(t).Len())
	before, had := n.shown[o.Key]
	has := t != framing.Deleted && n.has(o)
	if trim := n.variant.Trim; has {
		n.shown[o.Key] = o
		if !had || !trim.Quiet() || !o.SameIn(trim, before) {
			n.events[1].add(o.TrimmedFrame(trim, framing.Modified).Len())
		}
	} else if had {
		delete(n.shown, o.Key)
		n.events[1].add(before.TrimmedLeft(trim, o.ResourceVersion).Len())
	}
}
