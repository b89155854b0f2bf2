package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Between these lines of the chart's README stands the table of values.
const (
	tableBegin = "<!-- values: made by `make manifests` from values.yaml -->\n"
	tableEnd   = "<!-- end of values -->\n"
)

// table lists each value of values.yaml with its default and the comment above it.
func table(text []byte) (string, error) {
	var doc yaml.Node
	if err := yaml.Unmarshal(text, &doc); err != nil {
		return "", fmt.Errorf("read values.yaml: %w", err)
	}
	var out strings.Builder
	out.WriteString("| value | default | |\n|---|---|---|\n")
	if err := rows(&out, "", doc.Content[0]); err != nil {
		return "", err
	}
	return out.String(), nil
}

func rows(out *strings.Builder, above string, mapping *yaml.Node) error {
	for i := 0; i+1 < len(mapping.Content); i += 2 {
		key, value := mapping.Content[i], mapping.Content[i+1]
		name := above + key.Value
		if key.HeadComment == "" {
			return fmt.Errorf("values.yaml: %s has no comment", name)
		}
		var words []string
		for line := range strings.Lines(key.HeadComment) {
			words = append(words, strings.Fields(strings.TrimPrefix(line, "#"))...)
		}
		comment := strings.ReplaceAll(strings.Join(words, " "), "|", `\|`)
		if isGroup(value) {
			fmt.Fprintf(out, "| **%s** | | %s |\n", name, comment)
			if err := rows(out, name+".", value); err != nil {
				return err
			}
			continue
		}
		preset, err := inline(value)
		if err != nil {
			return fmt.Errorf("values.yaml: %s: %w", name, err)
		}
		fmt.Fprintf(out, "| `%s` | `%s` | %s |\n", name, preset, comment)
	}
	return nil
}

// isGroup distinguishes our own groups of values from values that are passed on whole, which contain no comments.
func isGroup(value *yaml.Node) bool {
	return value.Kind == yaml.MappingNode && len(value.Content) > 0 && value.Content[0].HeadComment != ""
}

// inline is a value on one line.
func inline(value *yaml.Node) (string, error) {
	flow := *value
	setFlow(&flow)
	text, err := yaml.Marshal(&flow)
	return strings.TrimSpace(string(text)), err
}

func setFlow(n *yaml.Node) {
	if n.Kind != yaml.ScalarNode {
		n.Style = yaml.FlowStyle
	}
	for _, c := range n.Content {
		setFlow(c)
	}
}

// document writes the table into the README of the chart.
func document(folder string) error {
	values, err := os.ReadFile(filepath.Join(folder, "values.yaml"))
	if err != nil {
		return err
	}
	rows, err := table(values)
	if err != nil {
		return err
	}
	name := filepath.Join(folder, "README.md")
	text, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	before, rest, ok := bytes.Cut(text, []byte(tableBegin))
	_, after, ended := bytes.Cut(rest, []byte(tableEnd))
	if !ok || !ended {
		return fmt.Errorf("%s lacks the lines between which the table of values goes", name)
	}
	return os.WriteFile(name, bytes.Join([][]byte{before, after}, []byte(tableBegin+rows+tableEnd)), 0o644)
}
