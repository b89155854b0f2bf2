package meshconfig

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"sigs.k8s.io/yaml"
)

// tree is a YAML or JSON map: values are tree (map[string]any), []any, string,
// json.Number, bool and nil.
type tree = map[string]any

// parseTree reads YAML or JSON whose top is a map; an empty text is an empty
// map. The second result tells of keys written twice, of which the last counts.
func parseTree(text string) (tree, error, error) {
	js, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		return nil, nil, plain(err)
	}
	decoder := json.NewDecoder(bytes.NewReader(js))
	decoder.UseNumber()
	var value any
	if err := decoder.Decode(&value); err != nil && err != io.EOF {
		return nil, nil, err
	}
	var twice error
	if _, err := yaml.YAMLToJSONStrict([]byte(text)); err != nil {
		twice = plain(err)
	}
	switch v := value.(type) {
	case nil:
		return tree{}, twice, nil
	case tree:
		return v, twice, nil
	default:
		return nil, nil, fmt.Errorf("found %s: want a map of settings (name: value)", kindOf(value))
	}
}

// plain puts the YAML reader's message on one line.
func plain(err error) error {
	text := strings.Join(strings.Fields(err.Error()), " ")
	text = strings.TrimPrefix(text, "error converting YAML to JSON: ")
	text = strings.TrimPrefix(text, "yaml: ")
	return fmt.Errorf("%s", strings.TrimPrefix(text, "unmarshal errors: "))
}

// kindOf names what a value is, for messages.
func kindOf(value any) string {
	switch value.(type) {
	case nil:
		return "null"
	case tree:
		return "a map"
	case []any:
		return "a list"
	case string:
		return "a string"
	case bool:
		return "a boolean"
	default:
		return "a number"
	}
}

// literal writes a value as JSON, for messages and for the decoder.
func literal(value any) string {
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		return fmt.Sprint(value)
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// lineOf finds the line (from 1) that a path of keys stands on in block-style
// YAML; 0 when it cannot tell, as in flow style or JSON. It only follows
// indentation: enough to point at a mistake, not to read the text.
func lineOf(text string, path ...string) int {
	lines := strings.Split(text, "\n")
	from, parent, found := 0, -1, 0
	for _, key := range path {
		found = 0
		level := -1 // the indentation of parent's children
		for i := from; i < len(lines); i++ {
			line := strings.TrimLeft(lines[i], " ")
			if line == "" || strings.HasPrefix(line, "#") || strings.HasPrefix(line, "---") {
				continue
			}
			indent := len(lines[i]) - len(line)
			if indent <= parent {
				break
			}
			if level < 0 {
				level = indent
			}
			if indent == level && startsWithKey(line, key) {
				from, parent, found = i+1, indent, i+1
				break
			}
		}
		if found == 0 {
			return 0
		}
	}
	return found
}

func startsWithKey(line, key string) bool {
	for _, quote := range []string{"", `"`, "'"} {
		if rest, ok := strings.CutPrefix(line, quote+key+quote); ok {
			rest = strings.TrimLeft(rest, " ")
			if strings.HasPrefix(rest, ":") {
				return true
			}
		}
	}
	return false
}
