package main

import (
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestReaderRules(t *testing.T) {
	all := metav1.Verbs{"create", "delete", "get", "list", "update", "watch"}
	rules := readerRules([]*metav1.APIResourceList{
		{GroupVersion: "v1", APIResources: []metav1.APIResource{
			{Name: "pods", Verbs: all},
			{Name: "pods/exec", Verbs: metav1.Verbs{"create", "get"}},
			{Name: "secrets", Verbs: all},
			{Name: "bindings", Verbs: metav1.Verbs{"create"}},
		}},
		{GroupVersion: "apps/v1", APIResources: []metav1.APIResource{{Name: "deployments", Verbs: all}}},
		{GroupVersion: "apps/v1beta1", APIResources: []metav1.APIResource{{Name: "deployments", Verbs: all}}},
		{GroupVersion: "other.example/v1", APIResources: []metav1.APIResource{{Name: "secrets", Verbs: all}}},
	})
	got := make(map[string][]string)
	for _, rule := range rules {
		if !slices.Equal(rule.Verbs, readVerbs) || len(rule.APIGroups) != 1 {
			t.Errorf("rule for groups %q, verbs %q", rule.APIGroups, rule.Verbs)
		}
		got[rule.APIGroups[0]] = rule.Resources
	}
	want := map[string][]string{
		"":                   {"pods"},
		"apps":               {"deployments"},
		"other.example":      {"secrets"}, // only those of the core group are Secrets
		"example.com":        {"*"},
		"stable.example.com": {"*"},
	}
	if len(got) != len(want) {
		t.Errorf("got %d groups, want %d", len(got), len(want))
	}
	for group, resources := range want {
		if !slices.Equal(got[group], resources) {
			t.Errorf("group %q: got %q, want %q", group, got[group], resources)
		}
	}
}
