// Package report writes the findings of lint in the formats of people, CI systems and code hosts.
package report

import (
	"encoding/json"
	"fmt"
	"io"
	"net/url"

	"github.com/lastcall-dev/lastcall/internal/printable"
	"github.com/lastcall-dev/lastcall/internal/sidecar/terminal"
	"github.com/lastcall-dev/lastcall/kube/lint"
)

// Write writes the findings as text, json or sarif. version is the version of lastcall.
func Write(out io.Writer, format string, r *lint.Result, version string) error {
	switch format {
	case "json":
		return asJSON(out, append([]lint.Found{}, r.Findings...))
	case "sarif":
		return asJSON(out, sarif(r, version))
	}
	for _, f := range r.Findings {
		if _, err := fmt.Fprintln(out, terminal.Printable(f.String())); err != nil {
			return err
		}
	}
	return nil
}

func asJSON(out io.Writer, value any) error {
	encoder := json.NewEncoder(printable.JSONWriter(out))
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	return encoder.Encode(value)
}

// Summary is one line about the whole examination.
func Summary(r *lint.Result) string {
	count := map[lint.Severity]int{}
	for _, f := range r.Findings {
		count[f.Severity]++
	}
	text := fmt.Sprintf("%s, %s, %d examined: %s, %s",
		terminal.Count(r.Files, "file"), terminal.Count(r.Objects, "object"), r.Examined,
		terminal.Count(count[lint.Error], "error"), terminal.Count(count[lint.Warning], "warning"))
	if r.Ignored > 0 {
		text += fmt.Sprintf(", %d ignored", r.Ignored)
	}
	if r.Templates > 0 {
		text += fmt.Sprintf("; %s not examined: render them first (helm template CHART | lastcallctl lint -)",
			terminal.Count(r.Templates, "template"))
	}
	return text
}

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
