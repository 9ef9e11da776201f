package cached

import (
	"fmt"
	"net/http"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/watchfan/watchfan/fanout"
	"github.com/watchfan/watchfan/proxy/gate/apistatus"
	"github.com/watchfan/watchfan/proxy/gate/request"
)

// variantOf returns the variant of an answer in this form. It lacks what the client asks to leave
// out in its Accept header, and what its view leaves out. Tables are whole.
func (r *read) variantOf(form request.Clause) *fanout.Variant {
	if form.Table != "" {
		return r.View.Whole()
	}
	return r.View.Variant(r.GVR.GroupResource(), form.Lean)
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
