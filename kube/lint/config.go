package lint

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

// ConfigFile is the name of the configuration file in the working directory.
const ConfigFile = ".lastcall-lint.yaml"

// Config is a project's choice of rules.
type Config struct {
	// Rules sets rules, by ID, to off, warning or error.
	Rules map[string]string `json:"rules"`

	// Exclude are patterns of path.Match for files; one that ends in / excludes a folder with all that is below it.
	Exclude []string `json:"exclude"`

	// FailOn is the least severity that makes the exit code 1: error (the default), warning or never.
	FailOn string `json:"failOn"`
}

// FailOn are the values of Config.FailOn, the default first.
func FailOn() []string { return []string{"error", "warning", "never"} }

// ReadConfig reads a configuration file. Unknown fields are errors.
func ReadConfig(text []byte) (Config, error) {
	var c Config
	if err := yaml.UnmarshalStrict(text, &c); err != nil {
		return c, err
	}
	for id, setting := range c.Rules {
		if setting == "false" { // YAML 1.1 reads off so
			setting = "off"
			c.Rules[id] = setting
		}
		if !slices.ContainsFunc(Rules(), func(r Rule) bool { return r.ID == id }) {
			return c, fmt.Errorf("rules: %s is not a rule: lastcallctl lint --rules lists them", id)
		}
		if !slices.Contains([]string{"off", string(Warning), string(Error)}, setting) {
			return c, fmt.Errorf("rules: %s is %q: must be off, warning or error", id, setting)
		}
	}
	for _, pattern := range c.Exclude {
		if _, err := path.Match(pattern, ""); err != nil {
			return c, fmt.Errorf("exclude: %q: %w", pattern, err)
		}
	}
	if c.FailOn != "" && !slices.Contains(FailOn(), c.FailOn) {
		return c, fmt.Errorf("failOn is %q: must be error, warning or never", c.FailOn)
	}
	return c, nil
}

// Apply drops and changes findings as the configuration demands.
func (c Config) Apply(r *Result) {
	all := r.Findings[:0]
	for _, f := range r.Findings {
		if setting := c.Rules[f.ID]; setting == "off" || c.excludes(f.File) {
			r.Ignored++
			continue
		} else if setting != "" {
			f.Severity = Severity(setting)
		}
		all = append(all, f)
	}
	r.Findings = all
}

func (c Config) excludes(file string) bool {
	return slices.ContainsFunc(c.Exclude, func(pattern string) bool {
		if strings.HasSuffix(pattern, "/") {
			return strings.HasPrefix(file, pattern)
		}
		matches, _ := path.Match(pattern, file)
		return matches
	})
}

// Fails reports whether the findings make the exit code 1.
func (c Config) Fails(r *Result) bool {
	return slices.ContainsFunc(r.Findings, func(f Found) bool {
		return c.FailOn != "never" && (f.Severity == Error || c.FailOn == string(Warning))
	})
}
