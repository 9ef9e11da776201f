package proxy

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
	var releases []func()
	for _, held := range []interface{ Hold() (release func()) }{s.cached.Lanes(), s.discovery, s.cached} {
		releases = append(releases, held.Hold())
	}
	return func() {
		for _, release := range releases {
			release()
		}
	}
}
