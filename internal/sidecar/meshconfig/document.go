package meshconfig

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"sigs.k8s.io/yaml"
)

// tree is a YAML or JSON map: values are tree (map[string]any), []any, string, json.Number, bool and nil.
type tree = map[string]any

// parseTree parses YAML or JSON whose top is a map; an empty text is an empty map. The second result names keys that
// appear twice, of which the last counts.
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
		return nil, nil, fmt.Errorf("found %s: must be a map of settings (name: value)", kindOf(value))
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

// furtherDocument returns the line (from 1) on which a second YAML document begins, which is not read; 0 when there is
// none.
func furtherDocument(text string) int {
	begun, number := false, 0
	for line := range strings.Lines(text) {
		number++
		line = strings.TrimRight(line, "\r\n")
		switch rest, marker := strings.CutPrefix(line, "---"); {
		case marker && (rest == "" || rest[0] == ' '):
			if begun {
				return number
			}
		case strings.TrimSpace(line) != "" && !strings.HasPrefix(line, "#") && !strings.HasPrefix(line, "%"):
			begun = true
		}
	}
	return 0
}

// unwrap finds the MeshConfig inside what is often pasted around it: an IstioOperator, Helm values, or the ConfigMap
// named istio.
func (r *resolver) unwrap(l *layer, content tree) (tree, []string) {
	var path []string
	for range 3 { // a ConfigMap of Helm values is the deepest
		inner, kind, key := tree(nil), "", []string(nil)
		spec, _ := content["spec"].(tree)
		data, _ := content["data"].(tree)
		if m, ok := spec["meshConfig"].(tree); ok {
			inner, kind, key = m, "an IstioOperator", []string{"spec", "meshConfig"}
		} else if m, ok := content["meshConfig"].(tree); ok {
			inner, kind, key = m, "Helm values", []string{"meshConfig"}
		} else if text, ok := data["mesh"].(string); ok {
			key = []string{"data", "mesh"}
			var err error
			if inner, _, err = parseTree(text); err != nil {
				at := join(path, key...)
				r.fail(&FieldError{Field: dotted(at), Value: "not readable", Source: l.at(at), Accepts: "a MeshConfig as YAML", Err: err})
				return tree{}, path
			}
			kind = "a ConfigMap"
		} else {
			break
		}
		path = join(path, key...)
		r.warn(l.at(path), dotted(path), "wrapped as in %s: lastcall unwraps it, Istio's proxy would not", kind)
		content = inner
	}
	return content, path
}
