package meshconfig

import (
	"encoding/json"
	"maps"
	"strconv"
	"strings"

	mesh "istio.io/api/mesh/v1alpha1"
)

// layer is the settings of one place: ProxyConfig's fields and proxyMetadata, correctly placed whatever the text.
type layer struct {
	source   Source
	lines    lineIndex
	fields   map[string]field
	metadata map[string]entry
}

// field is one ProxyConfig field, under its JSON name.
type field struct {
	config *mesh.ProxyConfig // with nothing but this field
	source Source
	path   string
}

// parseLayer reads the text of one place. A mesh config file holds a MeshConfig, the others a ProxyConfig.
func (r *resolver) parseLayer(src Source, text string) *layer {
	l := &layer{source: src, lines: indexLines(text), fields: map[string]field{}, metadata: map[string]entry{}}
	content, twice, err := parseTree(text)
	if err != nil {
		want := "a ProxyConfig as YAML or JSON"
		if src.Origin == MeshFile {
			want = "a MeshConfig as YAML"
		}
		r.fail(&FieldError{Field: "the whole text", Value: "not readable", Source: src, Accepts: want, Err: err})
		return l
	}
	if twice != nil {
		r.warn(src, "the whole text", "a key appears twice, the last one counts: %v", twice)
	}
	if line := furtherDocument(text); line > 0 {
		at := src
		at.Line = line
		r.warn(at, "the whole text", "a second document begins here; ignored, as by Istio")
	}
	content, path := r.unwrap(l, content)
	if src.Origin == MeshFile {
		r.readMesh(l, content, path)
	} else {
		r.readPossiblyMesh(l, content, path)
	}
	return l
}

// at is the position of a path.
func (l *layer) at(path []string) Source {
	src := l.source
	src.Line = l.lines.line(path)
	return src
}

// readMesh reads a MeshConfig.
func (r *resolver) readMesh(l *layer, content tree, prefix []string) {
	md := meshDescriptor()
	astray := tree{}
	for _, key := range sortedKeys(content) {
		path := join(prefix, key)
		fd := fieldOf(md, key)
		switch {
		case fd != nil && fd.JSONName() == fieldDefaultConfig:
			r.readDefaultConfig(l, content[key], path)
		case fd != nil:
			unknownFields(fd, content[key], path, func(p []string, names []string) { r.unknown(l, p, names) })
		case fieldOf(proxyDescriptor(), key) != nil || key == fieldParentShutdown:
			r.warn(l.at(path), dotted(path), "belongs under %s; lastcall uses it, Istio ignores it", fieldDefaultConfig)
			astray[key] = content[key]
		case isVariable(key):
			astray[key] = content[key]
		default:
			r.unknown(l, path, jsonNames(md))
		}
	}
	r.readProxy(l, astray, prefix)
}

// readPossiblyMesh reads a ProxyConfig, or a MeshConfig where a ProxyConfig belongs.
func (r *resolver) readPossiblyMesh(l *layer, content tree, prefix []string) {
	inner, wrapped := content[fieldDefaultConfig]
	if !wrapped {
		r.readProxy(l, content, prefix)
		return
	}
	rest := maps.Clone(content)
	delete(rest, fieldDefaultConfig)
	r.readProxy(l, rest, prefix)
	path := join(prefix, fieldDefaultConfig)
	r.warn(l.at(path), dotted(path), "its fields belong at the top here; lastcall uses them, Istio ignores them")
	r.readDefaultConfig(l, inner, path)
}

func (r *resolver) readDefaultConfig(l *layer, value any, path []string) {
	switch v := value.(type) {
	case nil:
	case tree:
		r.readProxy(l, v, path)
	default:
		r.fail(&FieldError{Field: dotted(path), Value: brief(literal(value)), Source: l.at(path),
			Accepts: "a map, the ProxyConfig"})
	}
}

// readProxy reads a ProxyConfig: first what is correctly placed, then fields inside proxyMetadata and variables outside
// it. Correctly placed values override others.
func (r *resolver) readProxy(l *layer, content tree, prefix []string) {
	md := proxyDescriptor()
	strayVariables := tree{}
	var strayFields []func()
	for _, key := range sortedKeys(content) {
		value, path := content[key], join(prefix, key)
		if value == nil {
			continue // as jsonpb: null sets nothing
		}
		fd := fieldOf(md, key)
		switch {
		case fd != nil && fd.JSONName() == fieldMetadata:
			strayFields = append(strayFields, r.readMetadata(l, value, path)...)
		case fd != nil:
			r.putField(l, fd.JSONName(), value, path)
			unknownFields(fd, value, path, func(p []string, names []string) { r.unknown(l, p, names) })
		case key == fieldParentShutdown:
			r.putField(l, key, value, path)
		case isVariable(key):
			strayVariables[key] = value
		case fieldOf(meshDescriptor(), key) != nil:
			r.warn(l.at(path), dotted(path), "a field of MeshConfig, has no effect in a ProxyConfig")
		default:
			r.unknown(l, path, append(jsonNames(md), variables...))
		}
	}
	for _, put := range strayFields {
		put()
	}
	for _, key := range sortedKeys(strayVariables) {
		path := join(prefix, key)
		text, ok := scalar(strayVariables[key])
		if !ok {
			r.fail(&FieldError{Field: dotted(path), Value: brief(literal(strayVariables[key])), Source: l.at(path),
				Accepts: "a string, and that under " + fieldMetadata})
			continue
		}
		r.warn(l.at(path), dotted(path), "belongs under %s; lastcall uses it, Istio ignores it", fieldMetadata)
		r.putMetadata(l, key, text, path, false)
	}
}

// readMetadata reads proxyMetadata, and returns the function that reads the ProxyConfig fields among its entries.
func (r *resolver) readMetadata(l *layer, value any, prefix []string) (stray []func()) {
	entries, ok := value.(tree)
	if !ok {
		r.fail(&FieldError{Field: dotted(prefix), Value: brief(literal(value)), Source: l.at(prefix),
			Accepts: accepted[fieldMetadata]})
		return nil
	}
	md := proxyDescriptor()
	for _, key := range sortedKeys(entries) {
		value, path := entries[key], join(prefix, key)
		text, isScalar := scalar(value)
		_, isString := value.(string)
		fd := fieldOf(md, key)
		switch {
		case value == nil:
			r.warn(l.at(path), dotted(path), "null sets nothing: write a string")
		case fd != nil && fd.JSONName() == fieldMetadata:
			r.warn(l.at(path), dotted(path), "ignored: %s within itself", fieldMetadata)
		case fd != nil || key == fieldParentShutdown:
			name := key
			if fd != nil {
				name = fd.JSONName()
				value = unquoted(name, value)
				unknownFields(fd, value, path, func(p []string, names []string) { r.unknown(l, p, names) })
			}
			stray = append(stray, func() {
				r.warn(l.at(path), dotted(path), "belongs next to %s, not inside it; lastcall uses it, Istio ignores it",
					fieldMetadata)
				r.putField(l, name, value, path)
			})
		case isString:
			r.putMetadata(l, key, text, path, true)
		case isScalar:
			r.warn(l.at(path), dotted(path), "%s where Istio accepts strings only: read as %q; write it in quotes",
				kindOf(value), text)
			r.putMetadata(l, key, text, path, true)
		default:
			r.fail(&FieldError{Field: dotted(path), Value: brief(literal(value)), Source: l.at(path), Accepts: "a string"})
		}
	}
	return stray
}

// unquoted parses a field that was written as a string inside proxyMetadata, where only strings are allowed.
func unquoted(name string, value any) any {
	text, ok := value.(string)
	if !ok {
		return value
	}
	switch name {
	case fieldHold:
		if b, err := strconv.ParseBool(text); err == nil {
			return b
		}
	case fieldStatsMatcher:
		if content, _, err := parseTree(text); err == nil && len(content) > 0 {
			return content
		}
	}
	return value
}

// scalar gives a string, boolean or number as text.
func scalar(value any) (string, bool) {
	switch v := value.(type) {
	case string:
		return v, true
	case bool:
		return strconv.FormatBool(v), true
	case json.Number:
		return v.String(), true
	}
	return "", false
}

func (r *resolver) putMetadata(l *layer, name, text string, path []string, inPlace bool) {
	src := l.at(path)
	src.Metadata = inPlace
	r.adviseVariable(name, src, dotted(path))
	if first, ok := l.metadata[name]; ok {
		r.warn(src, dotted(path), "ignored: %s has it already", first.path)
		return
	}
	l.metadata[name] = entry{text: text, source: src, path: dotted(path)}
}

// putField decodes a field. An invalid value is an error if lastcall uses the field, otherwise a warning: Istio may
// have newer values.
func (r *resolver) putField(l *layer, name string, value any, path []string) {
	src := l.at(path)
	src.Metadata = strings.Contains(dotted(path), fieldMetadata+".")
	if first, ok := l.fields[name]; ok {
		r.warn(src, dotted(path), "ignored: %s has it already", first.path)
		return
	}
	as := name
	if name == fieldParentShutdown {
		as = fieldDrain // removed from the type; any duration field can parse it
	}
	config, err := decodeField(as, value)
	if err == nil {
		l.fields[name] = field{config: config, source: src, path: dotted(path)}
		return
	}
	wants, used := accepted[name]
	if !used {
		r.warn(src, dotted(path), "ignored, as lastcall does not need it; Istio would refuse it: %v", err)
		return
	}
	// Name the invalid parts, if the value has parts.
	blamed := false
	if parts, ok := value.(tree); ok {
		for _, part := range sortedKeys(parts) {
			if _, err := decodeField(name, tree{part: parts[part]}); err != nil {
				blamed = true
				wants, ok := accepted[name+"."+part]
				if !ok {
					wants = accepted[name]
				}
				at := join(path, part)
				r.fail(&FieldError{Field: dotted(at), Value: brief(literal(parts[part])), Source: l.at(at), Accepts: wants})
			}
		}
	}
	if !blamed {
		r.fail(&FieldError{Field: dotted(path), Value: brief(literal(value)), Source: src, Accepts: wants})
	}
}

// unknown warns of an unknown field.
func (r *resolver) unknown(l *layer, path, names []string) {
	if r.full() {
		r.warn(Source{}, "", "") // only counted
		return
	}
	name := path[len(path)-1]
	switch meant, ok := Nearest(name, names); {
	case name == "terminationGracePeriodSeconds":
		r.warn(l.at(path), dotted(path), "belongs in the pod's spec, has no effect here; set %s for lastcall",
			VariableGracePeriod)
	case ok:
		r.warn(l.at(path), dotted(path), "unknown field, has no effect: did you mean %s?", meant)
	default:
		r.warn(l.at(path), dotted(path), "unknown field, has no effect")
	}
}
