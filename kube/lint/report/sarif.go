package report

import (
	"net/url"

	"github.com/lastcall-dev/lastcall/kube/lint"
)

type object = map[string]any

// sarif is the findings in the part of SARIF 2.1.0 that code hosts show.
func sarif(r *lint.Result, version string) object {
	rules, results := []object{}, []object{}
	index := map[string]int{}
	for i, rule := range lint.Rules() {
		index[rule.ID] = i
		rules = append(rules, object{"id": rule.ID, "shortDescription": object{"text": rule.Text}, "helpUri": rule.Page()})
	}
	for _, f := range r.Findings {
		results = append(results, object{
			"ruleId": f.ID, "ruleIndex": index[f.ID], "level": f.Severity,
			"message": object{"text": f.Message()},
			"locations": []object{{"physicalLocation": object{
				"artifactLocation": object{"uri": (&url.URL{Path: f.File}).String()},
				"region":           object{"startLine": max(f.Line, 1)},
			}}},
		})
	}
	driver := object{"name": "lastcallctl lint", "version": version, "informationUri": lint.Home, "rules": rules}
	return object{
		"$schema": "https://json.schemastore.org/sarif-2.1.0.json", "version": "2.1.0",
		"runs": []object{{"tool": object{"driver": driver}, "results": results}},
	}
}
