// Command discovery finds targets as Prometheus does, with Prometheus' own package. It writes what it
// knows to a file, a line for each target: discovery CONFIG FILE. CONFIG is a kubeconfig, with which it
// finds targets of several roles, or, if it ends in .yml, Prometheus' own configuration.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/prometheus/discovery"
	"github.com/prometheus/prometheus/discovery/kubernetes"
	"go.yaml.in/yaml/v2"
)

func main() {
	if err := run(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(config, file string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	registry := prometheus.NewRegistry()
	metrics, err := discovery.CreateAndRegisterSDMetrics(registry)
	if err != nil {
		return err
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	manager := discovery.NewManager(ctx, log, registry, metrics)
	configs := severalRoles(config)
	if strings.HasSuffix(config, ".yml") {
		if configs, err = readConfigs(config); err != nil {
			return err
		}
	}
	if err := manager.ApplyConfig(configs); err != nil {
		return err
	}
	go func() { _ = manager.Run() }() // it ends with ctx
	for {
		select {
		case <-ctx.Done():
			return nil
		case groups := <-manager.SyncCh():
			var lines []string
			for _, all := range groups {
				for _, group := range all {
					for _, target := range group.Targets {
						line, err := json.Marshal(target.Merge(group.Labels))
						if err != nil {
							return err
						}
						lines = append(lines, string(line))
					}
				}
			}
			slices.Sort(lines)
			if err := write(file, lines); err != nil {
				return err
			}
		}
	}
}

func severalRoles(kubeconfig string) map[string]discovery.Configs {
	configs := make(map[string]discovery.Configs)
	for _, role := range []kubernetes.Role{kubernetes.RolePod, kubernetes.RoleService, kubernetes.RoleNode, kubernetes.RoleEndpointSlice} {
		c := kubernetes.DefaultSDConfig
		c.Role, c.KubeConfig = role, kubeconfig
		configs[string(role)] = discovery.Configs{&c}
	}
	return configs
}

// readConfigs returns what a configuration of Prometheus says about Kubernetes, by job.
func readConfigs(file string) (map[string]discovery.Configs, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var config struct {
		Jobs []struct {
			Name       string                 `yaml:"job_name"`
			Kubernetes []*kubernetes.SDConfig `yaml:"kubernetes_sd_configs"`
		} `yaml:"scrape_configs"`
	}
	if err := yaml.UnmarshalStrict(text, &config); err != nil {
		return nil, err
	}
	configs := make(map[string]discovery.Configs)
	for _, job := range config.Jobs {
		for _, c := range job.Kubernetes {
			configs[job.Name] = append(configs[job.Name], c)
		}
	}
	return configs, nil
}

// write replaces the file at once.
func write(file string, lines []string) error {
	var text bytes.Buffer
	text.WriteString(strings.Join(lines, "\n") + "\n")
	if err := os.WriteFile(file+".new", text.Bytes(), 0o600); err != nil {
		return err
	}
	return os.Rename(file+".new", file)
}
