package report

import (
	"net/url"

	"github.com/lastcall-dev/lastcall/kube/lint"
)

// The parts of SARIF 2.1.0 that code hosts show.
type (
	sarif struct {
		Schema  string     `json:"$schema"`
		Version string     `json:"version"`
		Runs    []sarifRun `json:"runs"`
	}
	sarifRun struct {
		Tool    sarifTool     `json:"tool"`
		Results []sarifResult `json:"results"`
	}
	sarifTool struct {
		Driver sarifDriver `json:"driver"`
	}
	sarifDriver struct {
		Name           string      `json:"name"`
		Version        string      `json:"version,omitempty"`
		InformationURI string      `json:"informationUri"`
		Rules          []sarifRule `json:"rules"`
	}
	sarifRule struct {
		ID               string    `json:"id"`
		ShortDescription sarifText `json:"shortDescription"`
		HelpURI          string    `json:"helpUri"`
	}
	sarifText struct {
		Text string `json:"text"`
	}
	sarifResult struct {
		RuleID    string          `json:"ruleId"`
		RuleIndex int             `json:"ruleIndex"`
		Level     string          `json:"level"`
		Message   sarifText       `json:"message"`
		Locations []sarifLocation `json:"locations"`
	}
	sarifLocation struct {
		Physical sarifPhysical `json:"physicalLocation"`
	}
	sarifPhysical struct {
		Artifact struct {
			URI string `json:"uri"`
		} `json:"artifactLocation"`
		Region struct {
			StartLine int `json:"startLine"`
		} `json:"region"`
	}
)

func sarifOf(r *lint.Result, version string) sarif {
	run := sarifRun{Tool: sarifTool{sarifDriver{Name: "lastcallctl lint", Version: version, InformationURI: lint.Home}}, Results: []sarifResult{}}
	index := map[string]int{}
	for i, rule := range lint.Rules() {
		index[rule.ID] = i
		run.Tool.Driver.Rules = append(run.Tool.Driver.Rules, sarifRule{rule.ID, sarifText{rule.Text}, rule.Page()})
	}
	for _, f := range r.Findings {
		var place sarifPhysical
		place.Artifact.URI = (&url.URL{Path: f.File}).String()
		place.Region.StartLine = max(f.Line, 1)
		run.Results = append(run.Results, sarifResult{f.ID, index[f.ID], string(f.Severity), sarifText{message(f)}, []sarifLocation{{place}}})
	}
	return sarif{"https://json.schemastore.org/sarif-2.1.0.json", "2.1.0", []sarifRun{run}}
}
