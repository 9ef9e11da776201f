package attack_test

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/watchfan/watchfan/proxy/suites/proxytest"
)

const (
	beatsPerSecond = 30
	beatWriters    = 8
)

// writeBeats updates the objects straight at kube-apiserver until ctx ends, on a schedule that does
// not slow down with the server.
func (s *suite) writeBeats(ctx context.Context) {
	crowd(beatWriters, func(i int) { s.writeSome(ctx, i) })
}

// writeSome updates writer i's objects. It repeats an update that was not acknowledged; the
// repetition has the same number, so the update happens once.
func (s *suite) writeSome(ctx context.Context, i int) {
	c := newClient(s.world.admin)
	defer c.close()
	var own []*object
	for _, o := range s.objects {
		if o.index%beatWriters == i {
			own = append(own, o)
		}
	}
	const pause = time.Second * beatWriters / beatsPerSecond
	due := time.Now().Add(time.Duration(i) * pause / beatWriters)
	for k := 0; proxytest.Sleep(ctx, time.Until(due)); due, k = due.Add(pause), k+1 {
		for o := own[k%len(own)]; ctx.Err() == nil; {
			if s.write(c, o, o.acknowledged()+1) {
				break
			}
		}
	}
}

// write sends one update. It ignores the end of the run, so that in the end each update is
// acknowledged.
func (s *suite) write(c *client, o *object, n uint64) bool {
	phase, begun := s.phase.Load(), time.Now()
	uri := scope{tenant: o.tenant, resource: o.resource}.uri() + "/" + o.name
	code, header, body, err := c.send(context.Background(),
		request{method: http.MethodPatch, uri: uri,
			accept:      "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1",
			contentType: "application/merge-patch+json", body: fmt.Sprintf(`{"metadata":{"annotations":{"beat":%q}}}`,
				o.mark(n))})
	if err != nil || code != http.StatusOK {
		phase.failed(updateOperation, fault(code, header, err), fmt.Sprintf("%v %.200q", err, body))
		time.Sleep(100 * time.Millisecond)
		return false
	}
	o.acknowledge(n)
	phase.measured(updateOperation, time.Since(begun))
	return true
}
