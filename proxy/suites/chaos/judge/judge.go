package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"
	"go.etcd.io/etcd/tests/v3/robustness/model"
	"go.etcd.io/etcd/tests/v3/robustness/report"
	"go.etcd.io/etcd/tests/v3/robustness/validate"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// finding is something that the validators object to.
type finding struct {
	world *world
	who   string
	err   error  // what the validators say
	dir   string // their report: what the client was told, their log, and their visualization
	ghost bool   // what a client held behind a list whose differences broke off: not guaranteed
}

func (f finding) String() string {
	return fmt.Sprintf("%s, %s: %v: see %s", f.world, f.who, f.err, f.dir)
}

// judge is where reports are left, and how long one search for an order may take.
type judge struct {
	dir     string
	timeout time.Duration
}

// try judges all that a record has.
func (j judge) try(t *trial) (findings []finding, err error) {
	for _, w := range t.order() {
		some, err := j.tellings(t, w)
		if err != nil {
			return nil, err
		}
		if len(some) == 0 {
			if some, err = j.timings(t, w); err != nil {
				return nil, err
			}
		}
		ghosts, err := j.ghosts(t, w)
		if err != nil {
			return nil, err
		}
		findings = slices.Concat(findings, some, ghosts)
	}
	return findings, nil
}

// ghosts judges what the clients of a world held behind differences that broke off.
func (j judge) ghosts(t *trial, w *world) (findings []finding, err error) {
	for _, c := range t.clients[w] {
		if len(c.ghosts) == 0 {
			continue
		}
		f, err := j.validate(w, c.name+", ghosts", t.told(w, []*client{{name: c.name, reads: c.ghosts}}), w.requests, nil)
		if err != nil {
			return nil, err
		}
		if f != nil {
			f.ghost = true
			findings = append(findings, *f)
		}
	}
	return findings, nil
}

// tellings judges what the clients of a world were told. The validators stop at the first mistake,
// so each client is judged alone if there is one.
func (j judge) tellings(t *trial, w *world) (findings []finding, err error) {
	all := t.clients[w]
	f, err := j.validate(w, "all clients", t.told(w, all), w.requests, nil)
	if f == nil || err != nil {
		return nil, err
	}
	for _, c := range all {
		one, err := j.validate(w, c.name, t.told(w, []*client{c}), w.requests, nil)
		if err != nil {
			return nil, err
		}
		if one != nil {
			findings = append(findings, *one)
		}
	}
	if len(findings) == 0 {
		return []finding{*f}, nil
	}
	return findings, os.RemoveAll(f.dir)
}

// timings judges whether the reads of a world that may not be stale are linearizable. A read that
// the writes' times refute is judged alone, since no order with it would be found in any time.
func (j judge) timings(t *trial, w *world) (findings []finding, err error) {
	reads := t.consistent(w)
	refuted, why := t.impossible(reads)
	if len(refuted) == 0 {
		f, err := j.validate(w, "all reads", t.timed(w, reads), nil, nil)
		if f != nil {
			findings = append(findings, *f)
		}
		return findings, err
	}
	for i, r := range refuted[:min(len(refuted), 10)] {
		f, err := j.validate(w, fmt.Sprintf("read %d", i+1), t.timed(w, []timedRead{r}), nil, why[i:i+1])
		if err != nil {
			return nil, err
		}
		if f == nil {
			return nil, fmt.Errorf("the validators accept what cannot be: %s", why[i])
		}
		f.who = why[i]
		findings = append(findings, *f)
	}
	return findings, nil
}

// validate calls etcd's validators. If they object, it leaves a report.
func (j judge) validate(w *world, who string, reports []report.ClientReport, persisted []model.EtcdRequest,
	notes []string) (*finding, error) {
	log, err := os.CreateTemp("", "judge-*.log")
	if err != nil {
		return nil, err
	}
	defer func() {
		log.Close()
		os.Remove(log.Name())
	}()
	lg := zap.New(zapcore.NewCore(zapcore.NewConsoleEncoder(zap.NewDevelopmentEncoderConfig()), log, zapcore.InfoLevel))
	result, err := j.call(lg, log, reports, persisted)
	if err == nil {
		return nil, nil
	}
	f := &finding{world: w, who: who, err: err, dir: filepath.Join(j.dir, fileName(w.String()+" "+who))}
	for _, note := range notes {
		lg.Info(note)
	}
	return f, f.leave(lg, log.Name(), reports, result)
}

// call catches what the validators print, and that they panic on events that cannot be.
func (j judge) call(lg *zap.Logger, log *os.File, reports []report.ClientReport,
	persisted []model.EtcdRequest) (result validate.RobustnessResult, err error) {
	stdout := os.Stdout
	os.Stdout = log
	defer func() {
		os.Stdout = stdout
		if p := recover(); p != nil {
			err = fmt.Errorf("the validators panic: %v", p)
		}
	}()
	result = validate.ValidateAndReturnVisualize(lg, validate.Config{ExpectRevisionUnique: true}, reports, persisted,
		j.timeout)
	return result, result.Error()
}

// leave writes the report: the validators' own, with their log beside it.
func (f *finding) leave(lg *zap.Logger, log string, reports []report.ClientReport,
	result validate.RobustnessResult) error {
	if err := os.MkdirAll(filepath.Dir(f.dir), 0o755); err != nil {
		return err
	}
	all, err := report.NewTestReport(lg, f.dir, nil, &report.TrafficDetail{ExpectUniqueRevision: true})
	if err != nil {
		return err
	}
	all.SetClientReports(reports)
	if result.Linearization.Model.Init != nil {
		all.SetVisualizer(func(_ *zap.Logger, path string) error { // theirs leaves out what is not linearizable
			return porcupine.VisualizePath(result.Linearization.Model, result.Linearization.Info, path)
		})
	}
	if err := all.Finalize(true, false); err != nil {
		return err
	}
	said, err := os.ReadFile(log)
	return errors.Join(err, os.WriteFile(filepath.Join(f.dir, "validators.log"), said, 0o644))
}

var notInNames = regexp.MustCompile(`[^A-Za-z0-9=.,!-]+`)

func fileName(s string) string { return strings.Trim(notInNames.ReplaceAllString(s, "_"), "_") }
