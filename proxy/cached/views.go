package cached

import (
	"context"
	"fmt"
	"net/http"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/watchfan/watchfan/fanout"
	"github.com/watchfan/watchfan/proxy/apistatus"
	"github.com/watchfan/watchfan/proxy/lane"
	"github.com/watchfan/watchfan/proxy/request"
)

// variantOf returns the variant of an answer in this form. It lacks what the client asks to leave
// out in its Accept header, and what its view leaves out. Tables are whole.
func (r *read) variantOf(form request.Clause) *fanout.Variant {
	if form.Table != "" {
		return r.View.Whole()
	}
	return r.View.Variant(r.GVR.GroupResource(), form.Lean)
}

// laneForm returns the representation of the lane that answers r in the representation whole. A lane
// has whole objects. If every client so far wants them without managedFields, and kube-apiserver
// leaves those out on request, there is a lean lane instead. The first other client starts a lane of
// whole objects. Later lean clients are then answered from that, and the lean lane ends when the
// watches that it has are over.
func (c *Reads) laneForm(ctx context.Context, r *read, whole request.Representation) request.Representation {
	lean := whole
	lean.Lean = true
	started := func(rep request.Representation) bool {
		return c.lanes.Started(lane.Key{GVR: r.GVR, Representation: rep})
	}
	if r.variant.Trim.DropsManagedFields() && !started(whole) &&
		(started(lean) || r.startsLane() && c.encodings.HasLean(ctx, r.GVR, lean)) {
		return lean
	}
	return whole
}

// fits reports whether the fields of the client's view can be left out in this form.
func (r *read) fits(form request.Clause) bool {
	return r.variantOf(form).Trim.Fits(form.Encoding, form.Metadata != "")
}

// fitting returns the forms that the client accepts and in which the fields of its view can be left
// out.
func (r *read) fitting() []request.Clause {
	if r.View == nil {
		return r.Accepts
	}
	return slices.DeleteFunc(slices.Clone(r.Accepts), func(form request.Clause) bool { return !r.fits(form) })
}

// unfit returns the Status for a client of a view that accepts no form in which its fields can be
// left out.
func (c *Reads) unfit(r *read) request.Outcome {
	c.metrics.unfitForm.Inc()
	return request.Refuse(apistatus.Failure(http.StatusNotAcceptable, metav1.StatusReasonNotAcceptable, fmt.Sprintf(
		"the view %s leaves fields out of %s that can't be left out of protobuf: accept application/json too",
		r.View.Name(), request.ResourceText(r.GVR))))
}
