package proxy

import (
	"reflect"
	"strings"
	"sync"

	"github.com/watchfan/watchfan/proxy/gate/view"
)

// MemoryUsed replaces the reading of the memory in use, in bytes.
func MemoryUsed(used func() int64) func(*Options) {
	return func(o *Options) { o.readMemory = func() (int64, error) { return used(), nil } }
}

// ReadConfig reads the content of a configuration file called name.
func (o *Options) ReadConfig(name string, content []byte) error {
	return o.table().ReadConfig(name, content)
}

// ParseFlags returns the options of a command line. It does not validate them.
func ParseFlags(args []string) (Options, error) {
	f := NewFlags()
	err := f.Table.Flags().Parse(args)
	if err == nil {
		err = f.Complete()
	}
	return f.Options, err
}

// HoldCaches locks the lanes, the discovery, and the state that cached reads share, until release
// is called. A request that looks at one of them waits.
func (s *Server) HoldCaches() (release func()) {
	var held []*sync.Mutex
	for _, path := range []string{"Lanes.mu", "Discovery.mu", "Discovery.served.mu", "encodings.Answers.known.mu", "crds.mu", "APIs.mu"} {
		mu := inside[sync.Mutex](s.cached, path)
		mu.Lock()
		held = append(held, mu)
	}
	return func() {
		for _, mu := range held {
			mu.Unlock()
		}
	}
}

// ReplaceViews makes the views those of opts, and calls between before all know that.
func (s *Server) ReplaceViews(opts *view.Options, between func()) {
	replaced := s.views.Replace(opts)
	between()
	s.cached.ReplaceViews(replaced, nil)
}

// inside returns the field at a path of fields, which other packages do not see, from the struct that
// v points to.
func inside[T any](v any, path string) *T {
	at := reflect.ValueOf(v)
	for name := range strings.SplitSeq(path, ".") {
		at = reflect.Indirect(at).FieldByName(name)
	}
	if at.Type() != reflect.TypeFor[T]() {
		panic(path + " is a " + at.Type().String())
	}
	return (*T)(at.Addr().UnsafePointer())
}
