package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	rbac "k8s.io/client-go/applyconfigurations/rbac/v1"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes"
)

const readerRole = "devcluster:reader"

var readVerbs = []string{"get", "list", "watch"}

// readerGroups are API groups that Reader may read even before their
// CustomResourceDefinitions exist: those of Kubernetes' own examples.
var readerGroups = []string{"example.com", "stable.example.com"}

// grantReader lets Reader get, list and watch everything except secrets. RBAC
// can allow but not deny, so everything is what discovery tells now, and
// whatever may come in readerGroups.
func grantReader(ctx context.Context, client kubernetes.Interface) error {
	_, lists, err := client.Discovery().ServerGroupsAndResources()
	if err != nil && !discovery.IsGroupDiscoveryFailedError(err) {
		return fmt.Errorf("discover resources: %w", err)
	}
	role := rbac.ClusterRole(readerRole).WithRules(readerRules(lists)...)
	binding := rbac.ClusterRoleBinding(readerRole).
		WithRoleRef(rbac.RoleRef().WithAPIGroup("rbac.authorization.k8s.io").WithKind("ClusterRole").WithName(readerRole)).
		WithSubjects(rbac.Subject().WithAPIGroup("rbac.authorization.k8s.io").WithKind("User").WithName(Reader.Name))

	apply := metav1.ApplyOptions{FieldManager: "devcluster", Force: true}
	if _, err := client.RbacV1().ClusterRoles().Apply(ctx, role, apply); err != nil {
		return fmt.Errorf("apply clusterrole %s: %w", readerRole, err)
	}
	if _, err := client.RbacV1().ClusterRoleBindings().Apply(ctx, binding, apply); err != nil {
		return fmt.Errorf("apply clusterrolebinding %s: %w", readerRole, err)
	}
	return nil
}

// readerRules returns a rule per API group. Subresources are left out: reading
// some of them is more than reading, such as pods/exec.
func readerRules(lists []*metav1.APIResourceList) []*rbac.PolicyRuleApplyConfiguration {
	resources := make(map[string][]string) // by group
	for _, list := range lists {
		group, _, found := strings.Cut(list.GroupVersion, "/")
		if !found {
			group = "" // "v1"
		}
		for _, r := range list.APIResources {
			secret := group == "" && r.Name == "secrets"
			readable := slices.ContainsFunc(readVerbs, func(verb string) bool { return slices.Contains(r.Verbs, verb) })
			if !secret && readable && !strings.Contains(r.Name, "/") && !slices.Contains(resources[group], r.Name) {
				resources[group] = append(resources[group], r.Name)
			}
		}
	}
	for _, group := range readerGroups {
		resources[group] = []string{"*"}
	}
	var rules []*rbac.PolicyRuleApplyConfiguration
	for group, names := range resources {
		rules = append(rules, rbac.PolicyRule().WithAPIGroups(group).WithResources(names...).WithVerbs(readVerbs...))
	}
	return rules
}
