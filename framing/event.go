package framing

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// InitialEventsEnd is the annotation of the bookmark that ends the initial events of a watch
// (k8s.io/apimachinery/pkg/apis/meta/v1, InitialEventsAnnotationKey; KEP-3157).
const InitialEventsEnd = "k8s.io/initial-events-end"

// Event is one watch event as upstream sent it.
type Event struct {
	Type EventType
	// Object is set for Added, Modified and Deleted.
	Object *Object
	// ResourceVersion is that of the object or bookmark; 0 for Error.
	ResourceVersion uint64
	// InitialEventsEnd reports whether this is the bookmark that ends the initial events.
	InitialEventsEnd bool
	// Form is how upstream writes bookmarks of this kind. It is set for Bookmark.
	Form BookmarkForm
	// Columns are the column definitions of a Table that has them. See [NewTableScanner].
	Columns Columns
	// Status is what the server said. It is set for Error.
	Status *metav1.Status
}
