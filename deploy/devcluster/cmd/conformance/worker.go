package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"regexp"
	"strings"
	"time"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/ginkgo/v2/formatter"
	"github.com/onsi/ginkgo/v2/types"
	"github.com/onsi/gomega"
	"k8s.io/kubernetes/test/e2e/framework"
)

// A Job is what a worker reads, as JSON.
type Job struct {
	Options Options
	Specs   []string // full texts
}

// A Result is what a worker writes for each of its specs, as JSON, when it has
// ended. A spec that does not exist has none.
type Result struct {
	Spec    string
	State   string // "passed" or another of Ginkgo's states
	Elapsed time.Duration

	// Empty if passed.
	Message  string
	Location string // FILE:LINE
	Log      string
}

func (r Result) passed() bool { return r.State == types.SpecStatePassed.String() }

// work runs the specs of one Job, one after the other, in this process.
func work(in io.Reader, out io.Writer) error {
	var job Job
	if err := json.NewDecoder(in).Decode(&job); err != nil {
		return fmt.Errorf("read the job: %w", err)
	}
	if err := configureFramework(job.Options); err != nil {
		return err
	}
	wanted := make(map[string]bool)
	for _, s := range job.Specs {
		wanted[s] = true
	}
	encoder := json.NewEncoder(out)
	ginkgo.ReportAfterEach(func(report ginkgo.SpecReport) {
		if wanted[report.FullText()] { // Ginkgo reports on those it left out, too
			_ = encoder.Encode(newResult(report))
		}
	})

	gomega.RegisterFailHandler(framework.Fail)
	formatter.ColorableStdOut = io.Discard // Ginkgo's own report
	suite, reporter := ginkgo.GinkgoConfiguration()
	suite.FocusStrings = []string{exactly(job.Specs)}
	suite.Timeout = job.Options.Timeout
	suite.GracePeriod = 5 * time.Second
	ginkgo.RunSpecs(outcome{}, suiteName, suite, reporter)
	return nil
}

const suiteName = "conformance"

// exactly returns a regular expression that matches these specs alone, in the
// form in which Ginkgo matches them.
func exactly(specs []string) string {
	quoted := make([]string, len(specs))
	for i, s := range specs {
		quoted[i] = regexp.QuoteMeta(s)
	}
	return "^" + suiteName + " (" + strings.Join(quoted, "|") + ")$"
}

// configureFramework sets up test/e2e/framework as the flags of Kubernetes'
// e2e.test would.
func configureFramework(opts Options) error {
	fs := flag.NewFlagSet("e2e", flag.ContinueOnError)
	framework.RegisterCommonFlags(fs)
	framework.RegisterClusterFlags(fs)
	err := fs.Parse([]string{
		"--kubeconfig=" + opts.Kubeconfig,
		"--kube-api-content-type=" + opts.ContentType,
		"--kubectl-path=" + opts.Kubectl,
		"--provider=skeleton",
		"--delete-namespace=false",           // only a controller can finish it
		"--e2e-verify-service-account=false", // only a controller creates it
		"--dump-logs-on-failure=false",
	})
	if err != nil {
		return fmt.Errorf("configure the e2e framework: %w", err)
	}
	framework.AfterReadingAllFlags(&framework.TestContext)
	return nil
}

func newResult(report ginkgo.SpecReport) Result {
	r := Result{Spec: report.FullText(), State: report.State.String(), Elapsed: report.RunTime}
	if !r.passed() {
		r.Message = report.Failure.Message
		r.Location = report.Failure.Location.String()
		r.Log = report.CapturedGinkgoWriterOutput
	}
	return r
}

// outcome is for Ginkgo to tell of a failure. The results tell it already.
type outcome struct{}

func (outcome) Fail() {}
