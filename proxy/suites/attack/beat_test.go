package attack_test

import (
	"fmt"
	"regexp"
	"strconv"
	"sync"
	"time"
)

// The objects that the steady writer updates, in each honest tenant's namespace.
const (
	tenants       = 8
	beatsOfTenant = 5 // three ConfigMaps, a Secret and a Pod
)

var beatKinds = [beatsOfTenant]struct{ resource, name string }{
	{"configmaps", "beat-0"}, {"configmaps", "beat-1"}, {"configmaps", "beat-2"},
	{"secrets", "beat-3"}, {"pods", "beat-4"},
}

func tenantName(i int) string { return fmt.Sprintf("t%d", i) }

// object is one of the objects that the steady writer updates. Each update has the next number, so
// that lost, repeated and old updates are noticed.
type object struct {
	index                  int
	tenant, resource, name string
	gold                   bool // it has the label tier=gold

	mu    sync.Mutex
	acked uint64         // the last number that kube-apiserver has acknowledged
	acks  [256]time.Time // when, by the number modulo 256
}

func newObjects() []*object {
	var all []*object
	for tenant := range tenants {
		for i, kind := range beatKinds {
			all = append(all, &object{index: len(all), tenant: tenantName(tenant), resource: kind.resource,
				name: kind.name, gold: i%2 == 0})
		}
	}
	return all
}

// acknowledge notes that kube-apiserver has acknowledged update n.
func (o *object) acknowledge(n uint64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.acked, o.acks[n%uint64(len(o.acks))] = n, time.Now()
}

// acknowledged returns the number of the last acknowledged update.
func (o *object) acknowledged() uint64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.acked
}

// since returns how long ago update n was acknowledged; 0 if it has not been yet.
func (o *object) since(n uint64) time.Duration {
	o.mu.Lock()
	defer o.mu.Unlock()
	if n > o.acked {
		return 0
	}
	return time.Since(o.acks[n%uint64(len(o.acks))])
}

// An update is found in any encoding by its mark, which is an annotation: beat=OBJECT.NUMBER;
var beatMark = regexp.MustCompile(`beat=(\d{1,9})\.(\d{1,18});`)

func (o *object) mark(n uint64) string { return fmt.Sprintf("beat=%d.%d;", o.index, n) }

// ownerMark is an annotation of every object of a tenant. It shows objects that reach others.
// Secrets have another.
func ownerMark(resource, tenant string) string {
	if resource == "secrets" {
		return secretMark + tenant + ";"
	}
	return "owner=" + tenant + ";"
}

const secretMark = "secretowner="

// beat is one update, or the object's state after it.
type beat struct {
	object int
	n      uint64
}

// beatsIn returns up to n updates in b, or all if n is -1.
func beatsIn(b []byte, n int) (all []beat) {
	for _, m := range beatMark.FindAllSubmatch(b, n) {
		object, _ := strconv.Atoi(string(m[1])) // a number that fits
		number, _ := strconv.ParseUint(string(m[2]), 10, 64)
		all = append(all, beat{object, number})
	}
	return all
}

var owned = regexp.MustCompile(`owner=([^;]{1,19});`)

// foreign returns the mark of an object in b of another tenant than own, or "".
func foreign(b []byte, own string) string {
	for _, m := range owned.FindAllSubmatch(b, -1) {
		if string(m[1]) != own {
			return string(m[1])
		}
	}
	return ""
}
