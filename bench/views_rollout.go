package main

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"time"

	"github.com/watchfan/watchfan/bench/load"
	"github.com/watchfan/watchfan/bench/measure"
)

// A rollout is how new pods began in a recorded one, and how old ones ended; results/README.md says how it was r.
type rollout struct{ Births, Deaths lives }

func recordedRollout() (r rollout, err error) {
	text, err := os.ReadFile("bench/rollout.json")
	if err != nil {
		return r, fmt.Errorf("run this at the repository's root: %w", err)
	}
	return r, json.Unmarshal(text, &r)
}

type lives []life

// A life is what some of the pods had in common.
type life struct {
	Pods  int        // that had it
	Steps []struct { // requests that make the recorded events happen again
		Method, Path string // below the collection of pods
		Body         json.RawMessage
	}
}

// of returns the life of the i-th pod. Each life has its share.
func (all lives) of(i int) life {
	pods, which := 0, 0
	for _, l := range all {
		pods += l.Pods
	}
	for turn := i * 7919 % pods; turn >= all[which].Pods; which++ { // a prime
		turn -= all[which].Pods
	}
	return all[which]
}

// create creates n pods that a rollout has brought.
func (r rollout) create(ctx context.Context, w *load.Writer, n int) error {
	if err := w.CreateNamespace(ctx, "rollout"); err != nil {
		return err
	}
	return load.InParallel(ctx, 0, n, func(ctx context.Context, i int) error { return r.Births.live(ctx, w, "old", i) })
}

// over replaces these n pods, so many a second.
func (r rollout) over(ctx context.Context, w *load.Writer, n, rate int) error {
	pace := measure.Pace{Start: time.Now(), Rate: float64(rate)}
	return load.InParallel(ctx, 0, n, func(ctx context.Context, i int) error {
		_, err := pace.Wait(ctx, uint64(i))
		if err == nil {
			err = r.Births.live(ctx, w, "new", i)
		}
		if err == nil {
			err = r.Deaths.live(ctx, w, "old", i)
		}
		return err
	})
}

// live gives the i-th pod of a name its life.
func (all lives) live(ctx context.Context, w *load.Writer, name string, i int) error {
	id := make([]byte, 32)
	rand.NewChaCha8([32]byte{name[0], byte(i), byte(i >> 8), byte(i >> 16)}).Read(id)
	filled := strings.NewReplacer("$NAME", fmt.Sprintf("%s-%05d", name, i), "$NODE", load.PodNode(i%100),
		"$IP", fmt.Sprintf("10.%d.%d.%d", id[0], id[1], id[2]), "$ID", fmt.Sprintf("%x", id))
	for _, s := range all.of(i).Steps {
		path := filled.Replace("/api/v1/namespaces/rollout/pods" + s.Path)
		if _, err := w.Send(ctx, s.Method, path, filled.Replace(string(s.Body))); err != nil {
			return err
		}
	}
	return nil
}

// createFiles creates Secrets and ConfigMaps in the namespaces of other pods. Each fifth Secret is a release of Helm
// with 40 KB, and the others are certificates.
func createFiles(ctx context.Context, w *load.Writer, secrets, configMaps int) error {
	return load.InParallel(ctx, 0, secrets+configMaps, func(ctx context.Context, i int) error {
		random := make([]byte, 30_000)
		rand.NewChaCha8([32]byte{byte(i), byte(i >> 8)}).Read(random)
		text := base64.StdEncoding.EncodeToString(random)
		resource, content := "secrets", fmt.Sprintf(`"type":"kubernetes.io/tls","data":{"tls.crt":%q,"tls.key":%q}`, text[:2000], text[2000:2320])
		switch {
		case i >= secrets:
			resource, content = "configmaps", fmt.Sprintf(`"data":{"config":%q}`, text[:2000])
		case i%5 == 0:
			content = fmt.Sprintf(`"type":"helm.sh/release.v1","data":{"release":%q}`, text)
		}
		_, err := w.Send(ctx, "POST", fmt.Sprintf("/api/v1/namespaces/team-%02d/%s", i%50, resource),
			fmt.Sprintf(`{"metadata":{"name":"file-%d","labels":{"app":"service-%d"}},%s}`, i, i%1000, content))
		return err
	})
}
