// Package observe has the rules that say whose reads caches answer, and compares what kube-apiserver
// answers to others with what a cache would have answered.
//
//	rules.go     the rules: off, observe or serve, by client and resource
//	ruling.go    the rules and views that are in force, and those before
//	observer.go  what follows a read that passes through because of a rule; the bounds
//	anew.go      the answers of kube-apiserver with which a client begins anew
//	tee.go       the bytes of an answer on their way to the comparison
//	list.go      a list beside the cache's list
//	watch.go     a watch beside a subscription of the cache
//	results.go   what was found, in metrics and in words
//
// It knows fanout's caches and the bytes of framing. It knows no lane, no request and no connection:
// package cached says how a cache would answer a read (type [Side]). It never sends anything to a
// client.
//
// # Rules
//
// A rule is applied before the client's token has been checked. A client that lies about its name chooses
// only who refuses it.
//
// The first rule that fits a read decides; without one, caches serve it. A rule that gives a percentage
// fits always the same clients, in each replica. Rules may change at any time. Then each open watch whose
// mode is another now ends where its client resumes without a loss, and the client comes back:
//
//	served by a cache   behind a bookmark, as when a replica stops (fanout.Moved)
//	passed through      behind a bookmark, or an event that adds or modifies an object
//
// A watch without bookmarks goes on until its end, because its client may not resume.
//
// # Changes of views
//
// A rule may name a view, or have a label of the client's namespace name it. What a client holds of one view is
// of no use in another, and no event says how they differ. So where the form in which a client reads a resource
// changes, by the views, the rules or the label, its open watch ends with 410. So does a watch from a
// resourceVersion up to which it may have been told in the form before ([Observer.Outdated]), unless it has
// listed since then, and one behind a watch that passed through meanwhile. So does the next page of a list that
// began in the form before, because its pages would be of two forms. How far clients have been told, a replica
// knows of the resources that it follows. As of when a client has listed it also knows of a list of
// kube-apiserver, or of its initial events, if the client has to list. It does not know what a client has been
// told on the terms before by a replica that learns of the change later, by a list of kube-apiserver, or before a
// restart. So a view that is changed while no replica runs should get another name.
//
// # A list
//
//	kube-apiserver ──▶ client
//	       └─▶ tee ──▶ summary as of R: a hash, and the key, version and hash of each item
//	                      │
//	           cache ──▶ the same list as of R ──▶ the same hash? If not: which items?
//
// The cache answers with the code that answers clients. Pages of a list are lists as of their own R.
//
// # A watch
//
// The observer subscribes to the cache behind the last resourceVersion that the client has seen, with
// the client's filter and form. Two queues hold what has come from either side and not yet from the
// other. As long as their heads are the same bytes they are dropped, which costs one comparison and no
// parsing. If not, both heads are read, and resourceVersions say which side lacks an event. An event that
// the cache passes over may still come, as reordered or behind a bookmark that promised it. Otherwise it
// is lost. Initial events are compared as a list, once the bookmark that ends them has said as of which
// resourceVersion they are.
//
// Bookmarks of kube-apiserver are not compared. They come when it likes.
//
// A cache that has been listed again may lack history, and says how in a way of its own (package
// fanout, Relists). A watch that meets that is compared anew from there on, and nothing counts as a
// difference. Two kube-apiservers of different versions may write the same object in different bytes. That
// counts.
//
// # What it costs, and whom
//
// The client's goroutine copies each answer into the tee, which holds at most 1 MiB, and nothing else.
// It never waits, and a panic ends the observation only (exchange.Guard). All observations hold at most
// 64 MiB. At most 1,000 watches and 8 lists are compared at a time, and lists take a tenth of a processor
// together. Each has a goroutine. What is beyond a bound passes through as well, is not compared, and
// counts with its reason.
//
// An observer looks at its tee each second, or once 32 KiB wait there: to wake it for each event would cost
// more than to compare it. Watches that are compared took 10 to 13 % more of a processor than those that
// only pass through, with events of 3 KiB (TestObserveCost in package e2e).
//
// The cache's side costs what a client costs. Its lane is started for the client, whose account pays
// for it. kube-apiserver has one watch more for each lane.
package observe
