package main

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
)

// rights are the permissions of one account's roles, one line for each kind of object.
func rights(t *testing.T, r rendered, account string) []string {
	t.Helper()
	var out []string
	add := func(scope string, rules []rbacv1.PolicyRule) {
		for _, rule := range rules {
			for _, resource := range rule.Resources {
				line := fmt.Sprintf("%s %s: %s", scope, resource, strings.Join(rule.Verbs, ","))
				if len(rule.ResourceNames) > 0 {
					line += " of " + strings.Join(rule.ResourceNames, ",")
				}
				out = append(out, line)
			}
		}
	}
	for _, o := range r.objects {
		switch {
		case o.name != account:
		case o.kind == "ClusterRole":
			add("cluster", decode[rbacv1.ClusterRole](t, o).Rules)
		case o.kind == "Role":
			add("own", decode[rbacv1.Role](t, o).Rules)
		}
	}
	slices.Sort(out)
	return out
}

// Programs have only the rights that they need: these are all, and docs/install.md has the reasons.
func TestRights(t *testing.T) {
	certificate := []string{
		"cluster mutatingwebhookconfigurations: get,patch of lastcall-webhook",
		"cluster validatingwebhookconfigurations: get,patch of lastcall-webhook",
		"own secrets: create",
		"own secrets: get,update of lastcall-webhook",
	}
	events := []string{"cluster events: create,list", "cluster pods: list,watch"}
	namespaces := []string{"cluster namespaces: get"}
	for set, want := range map[string][]string{
		"":                                 slices.Concat(certificate, events, namespaces),
		"webhook.events=false":             slices.Concat(certificate, namespaces),
		"webhook.certManager.enabled=true": slices.Concat(events, namespaces),
		"webhook.certManager.enabled=true,webhook.events=false": namespaces,
	} {
		slices.Sort(want)
		if got := rights(t, rendering(t, set), "lastcall-webhook"); !slices.Equal(got, want) {
			t.Errorf("%s: the webhook may\n%s\nwant\n%s", set, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
}
