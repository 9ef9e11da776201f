package chaos_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"syscall"
	"time"

	"github.com/watchfan/watchfan/proxy/suites/proxytest"
)

// herdSize is how many watchers join cold lanes together.
const herdSize = 120

// coldHerd restarts watchfan beside a sibling whose seeds break off, and lets nothing come from
// kube-apiserver at first. Meanwhile a herd of watchers joins. All of them begin once kube-apiserver
// can be heard again, and leave a second later.
func (s *suite) coldHerd(f fault) (proof string, err error) {
	s.sibling.lie.Store(breaksOff)
	defer s.sibling.lie.Store(truthful)
	s.relay.Hold()
	release := sync.OnceFunc(s.relay.Release)
	defer release()
	if _, err := s.restartWatchfan(syscall.SIGKILL); err != nil {
		return "", err
	}

	ctx, leave := context.WithCancel(context.Background())
	herd := s.herd()
	var running sync.WaitGroup
	for _, w := range herd {
		running.Go(func() { w.run(ctx) })
	}
	defer running.Wait()
	defer leave()
	f.last()
	for _, w := range herd {
		if w.began() {
			return "", errors.New(w.name + " began while nothing came from kube-apiserver")
		}
	}
	release()
	began := time.Now()
	if err := awaitBegun(herd); err != nil {
		return "", err
	}
	took := time.Since(began)
	pause(ctx, time.Second)
	page, err := s.watchfan.admin("/metrics")
	return fmt.Sprintf("%d watchers began within %s; %v requests passed through", len(herd), took.Round(time.Millisecond),
		proxytest.SumMetric(string(page), "watchfan_lane_filling_passed_total")), err
}

// herd returns watchers of every filter, form and beginning.
func (s *suite) herd() (all []*watcher) {
	ways := s.entering()[:socketWay]
	beginnings := []beginning{byWatchList, byStaleWatch, byList, byStaleList}
	for i := range herdSize {
		w := ways[i%len(ways)]
		w.gzip = i%3 == 0
		all = append(all, s.newWatcher(1000+i, w.client(), allForms[i/len(ways)%len(allForms)], allFilters[i%len(allFilters)],
			beginnings[i/3%len(beginnings)], steady))
	}
	return all
}
