package meshconfig

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"
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

// kindOf names the kind of a value, for messages.
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

// unwrap finds the MeshConfig inside its usual wrappings: an IstioOperator, Helm values, or the ConfigMap named istio.
func (r *resolver) unwrap(l *layer, content tree) (tree, []string) {
	var path []string
	for range 3 { // a ConfigMap of Helm values is the deepest
		var inner tree
		var kind string
		var key []string
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
				r.fail(&FieldError{Field: dotted(at), Value: "not readable", Source: l.at(at),
					Accepts: "a MeshConfig as YAML", Err: err})
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

// maxFile is the most that a file may hold. A ConfigMap has at most 1 MiB, the annotations of a pod 256 KiB, which the
// downward API's escapes can make four times as long.
const maxFile = 2 << 20

// readBounded is os.ReadFile that stops soon after maxFile bytes.
func readBounded(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	return io.ReadAll(io.LimitReader(f, maxFile+1))
}

// read returns a file's text without a byte order mark; false when there is none. A missing file is not reported if it
// is the usual one.
func (r *resolver) read(readFile func(string) ([]byte, error), what, name string, src Source, usual string) (string,
	bool) {
	if name == "" {
		return "", false
	}
	text, err := readFile(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if name != usual {
			r.warn(src, what, "no such file; ignored")
		}
		return "", false
	case err != nil:
		r.fail(fmt.Errorf("read %s: %w: must be a readable file, or missing", what, err))
		return "", false
	case len(text) > maxFile:
		r.fail(fmt.Errorf("read %s: %s has more than %d bytes: must be the file that Istio's injector mounts", what, name,
			maxFile))
		return "", false
	}
	return strings.TrimPrefix(string(text), "\ufeff"), true
}

// parseAnnotations parses the downward API's file of annotations: lines of key="value", the value quoted as in Go (the
// kubelet writes %v=%q). Pilot-agent skips a line without "="; here it is an error, because the kubelet never writes
// one: it is not such a file.
func parseAnnotations(text string) (map[string]string, error) {
	annotations := map[string]string{}
	number := 0
	for line := range strings.SplitSeq(text, "\n") {
		number++
		line = strings.TrimSuffix(line, "\r")
		if strings.TrimSpace(line) == "" {
			continue
		}
		key, quoted, ok := strings.Cut(line, "=")
		if !ok || key == "" {
			return nil, fmt.Errorf("line %d: %q: must be key=\"value\", as the downward API writes annotations", number,
				brief(line))
		}
		value, err := strconv.Unquote(quoted)
		if err != nil {
			return nil, fmt.Errorf("line %d: value of %s is %s: must be a string in double quotes, with Go's escapes", number,
				key, brief(quoted))
		}
		annotations[key] = value
	}
	return annotations, nil
}

// lineIndex maps paths of keys, joined by NUL, to lines (from 1) in block-style YAML or indented JSON; flow style is
// not in it. It only follows indentation: enough to locate a mistake, not to parse the text.
type lineIndex map[string]int

func indexLines(text string) lineIndex {
	type level struct {
		indent int
		path   string // of all keys down to here
	}
	x := lineIndex{}
	var above []level
	number := 0
	for line := range strings.Lines(strings.TrimPrefix(text, "\ufeff")) {
		number++
		rest := strings.TrimLeft(line, " ")
		indent := len(line) - len(rest)
		key, ok := leadingKey(rest)
		if !ok {
			continue
		}
		for len(above) > 0 && above[len(above)-1].indent >= indent {
			above = above[:len(above)-1]
		}
		path := key
		if len(above) > 0 {
			path = above[len(above)-1].path + "\x00" + key
		}
		above = append(above, level{indent, path})
		if _, twice := x[path]; !twice {
			x[path] = number
		}
	}
	return x
}

// leadingKey returns the key that a line begins with.
func leadingKey(line string) (string, bool) {
	line = strings.TrimRight(line, " \r\n")
	if line == "" || line[0] == '#' {
		return "", false
	}
	if quote := line[0]; quote == '"' || quote == '\'' {
		key, rest, ok := strings.Cut(line[1:], string(quote))
		return key, ok && strings.HasPrefix(strings.TrimLeft(rest, " "), ":")
	}
	if key, _, ok := strings.Cut(line, ": "); ok {
		return strings.TrimRight(key, " "), true
	}
	return strings.CutSuffix(line, ":")
}
