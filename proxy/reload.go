package proxy

import (
	"errors"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/watchfan/watchfan/proxy/base/files"
	"github.com/watchfan/watchfan/proxy/wire/exchange"
)

// rereadEvery is the time between two looks at the configuration file.
const rereadEvery = time.Second / 4

// readConfig returns what the configuration file sets, without flags.
func (o *Options) readConfig() (Options, error) {
	read := NewOptions()
	t := read.table()
	err := t.ReadFile("config", o.configFile)
	if err == nil {
		err = errors.Join(t.Check(), read.checkViews(t))
	}
	return read, err
}

// followConfig reads the configuration file again whenever it changes, until serving ends. The views and
// the rules of clients count at once. The log names all else that has changed, because it needs a restart. A file
// that is wrong changes nothing.
func (s *Server) followConfig() {
	file, err := files.Watch("configuration", s.opts.readConfig, s.log, s.opts.configFile)
	started, rules, views, wrong := s.opts, s.opts.Observe.Clients, s.opts.View.Views, ""
	if err == nil {
		started = file.Current()
	}
	for exchange.Sleep(s.ctx, rereadEvery) {
		now, changed, err := file.Read()
		if err != nil {
			s.metrics.configRead.Set(0)
			if wrong != err.Error() {
				s.log.Error("Left the configuration as it was, because its file is wrong", "err", err)
			}
			wrong = err.Error()
			continue
		}
		s.metrics.configRead.Set(1)
		wrong = ""
		ruled := !reflect.DeepEqual(now.Observe.Clients, rules)
		rules = now.Observe.Clients
		if !reflect.DeepEqual(now.View.Views, views) { // a rule of the file may name a view that is new in it
			views = now.View.Views
			s.cached.ReplaceViews(s.views.Replace(&now.View), rules)
		} else if ruled {
			s.cached.SetRules(rules)
		}
		if !changed {
			continue
		}
		fields := slices.DeleteFunc(started.table().Changed(now.table()), func(f string) bool { return f == "clients" || f == "views" })
		if len(fields) > 0 {
			s.log.Warn("The configuration file has changes that need a restart", "fields", strings.Join(fields, ", "))
		}
	}
}
