package meshconfig

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	"github.com/lastcall-dev/lastcall/internal/timers"
)

// layer is the settings of one place.
type layer struct {
	source  Source
	lines   lineIndex
	fields  tree             // of ProxyConfig, as written
	entries map[string]entry // of the fields that lastcall uses, and of proxyMetadata
}

// entry is one setting as text.
type entry struct {
	text   string
	shown  string // for messages
	source Source
	path   string
}

func newEntry(text string, source Source, path string) entry {
	return entry{text, brief(literal(text)), source, path}
}

// placed is a setting where a text has it. Istio ignores one that is misplaced, which states where it belongs.
type placed struct {
	name      string
	value     any
	path      []string
	misplaced string
	variable  bool // of proxyMetadata
}

// parseLayer reads the text of one place. A mesh config file holds a MeshConfig, the others a ProxyConfig.
func (r *resolver) parseLayer(src Source, text string) *layer {
	l := &layer{source: src, lines: indexLines(text), fields: tree{}, entries: map[string]entry{}}
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
	found := r.locate(l, content, path, src.Origin == MeshFile)
	for _, isMisplaced := range []bool{false, true} { // correctly placed settings override the rest
		for _, p := range found {
			if isMisplaced == (p.misplaced != "") {
				r.put(l, p)
			}
		}
	}
	return l
}

// at is the position of a path.
func (l *layer) at(path []string) Source {
	src := l.source
	src.Line = l.lines[strings.Join(path, "\x00")]
	return src
}

// locate lists the settings in a ProxyConfig, or in a MeshConfig, whose ProxyConfig is its defaultConfig.
func (r *resolver) locate(l *layer, content tree, prefix []string, isMesh bool) (found []placed) {
	for _, key := range sortedKeys(content) {
		value, path, name := content[key], join(prefix, key), fieldOf(key)
		switch {
		case value == nil: // as jsonpb: null sets nothing
		case key == fieldDefaultConfig || key == "default_config":
			if !isMesh {
				r.warn(l.at(path), dotted(path), "its fields belong at the top here; lastcall uses them, Istio ignores them")
			}
			if inner, ok := value.(tree); ok {
				found = append(found, r.locate(l, inner, path, false)...)
			} else {
				r.fail(&FieldError{Field: dotted(path), Value: brief(literal(value)), Source: l.at(path),
					Accepts: "a map, the ProxyConfig"})
			}
		case name == fieldMetadata:
			found = append(found, r.locateMetadata(l, value, path)...)
		case name != "" && isMesh:
			found = append(found, placed{name: name, value: value, path: path, misplaced: "under " + fieldDefaultConfig})
		case name != "":
			found = append(found, placed{name: name, value: value, path: path})
		case isVariable(key):
			found = append(found, placed{name: key, value: value, path: path, misplaced: "under " + fieldMetadata})
		default:
			r.unknown(l, path, isMesh)
		}
	}
	return found
}

// locateMetadata lists the entries of proxyMetadata, and the ProxyConfig fields among them.
func (r *resolver) locateMetadata(l *layer, value any, prefix []string) (found []placed) {
	entries, ok := value.(tree)
	if !ok {
		r.fail(&FieldError{Field: dotted(prefix), Value: brief(literal(value)), Source: l.at(prefix),
			Accepts: "a map of variables to strings"})
	}
	for _, key := range sortedKeys(entries) {
		value, path, name := entries[key], join(prefix, key), fieldOf(key)
		text, isScalar := scalar(value)
		_, isString := value.(string)
		switch {
		case value == nil:
			r.warn(l.at(path), dotted(path), "null sets nothing: write a string")
			continue
		case name == fieldMetadata:
			r.warn(l.at(path), dotted(path), "ignored: %s within itself", fieldMetadata)
			continue
		case name == fieldStatsMatcher && isString: // where only strings are allowed
			if content, _, err := parseTree(text); err == nil {
				value = content
			}
			fallthrough
		case name != "":
			found = append(found, placed{name, value, path, "next to " + fieldMetadata + ", not inside it", true})
			continue
		case isScalar && !isString:
			r.warn(l.at(path), dotted(path), "%s where Istio accepts strings only: read as %q; write it in quotes",
				kindOf(value), text)
		}
		found = append(found, placed{name: key, value: value, path: path, variable: true})
	}
	return found
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

// put adds a setting to its layer.
func (r *resolver) put(l *layer, p placed) {
	src, path := l.at(p.path), dotted(p.path)
	src.Metadata = p.variable
	isField := fieldOf(p.name) != ""
	_, isUsed := settingOf(p.name)
	switch {
	case p.misplaced != "" && isField && !isUsed && p.name != fieldStatsMatcher:
		r.warn(src, path, "belongs %s; Istio ignores it", p.misplaced)
	case p.misplaced != "":
		r.warn(src, path, "belongs %s; lastcall uses it, Istio ignores it", p.misplaced)
	case !isField:
		r.adviseVariable(p.name, src, path)
	}
	if first, ok := l.entries[p.name]; ok {
		r.warn(src, path, "ignored: %s has it already", first.path)
		return
	}
	if isField {
		l.fields[p.name], l.entries[p.name] = p.value, entry{path: path}
	}
	switch {
	case p.name == fieldStatsMatcher:
		r.putMatcher(l, p, src)
		return
	case isField && !isUsed:
		return
	}
	text, ok := scalar(p.value)
	if !ok {
		want := "a string"
		if one, ok := settingOf(p.name); ok && isField {
			want = one.kind.accepts()
		}
		r.fail(&FieldError{Field: path, Value: brief(literal(p.value)), Source: src, Accepts: want})
		return
	}
	l.entries[p.name] = entry{text, brief(literal(p.value)), src, path}
}

// putMatcher adds the lists of proxyStatsMatcher, which replaces that of a lower layer as a whole.
func (r *resolver) putMatcher(l *layer, p placed, src Source) {
	lists, ok := p.value.(tree)
	if !ok {
		r.fail(&FieldError{Field: dotted(p.path), Value: brief(literal(p.value)), Source: src,
			Accepts: "a map of inclusionPrefixes, inclusionSuffixes and inclusionRegexps"})
		return
	}
	for _, part := range sortedKeys(lists) {
		path := join(p.path, part)
		if !slices.Contains(statsParts, part) {
			r.unknown(l, path, false, statsParts...)
			continue
		}
		at := l.at(path)
		at.Metadata = src.Metadata
		text := literal(lists[part])
		l.entries[fieldStatsMatcher+"."+part] = entry{text, brief(text), at, dotted(path)}
	}
}

// unknown warns of an unknown field, in a MeshConfig only if its name is a misspelt one: most of it is not lastcall's.
func (r *resolver) unknown(l *layer, path []string, isMesh bool, names ...string) {
	if len(r.warnings) >= listed && !isMesh {
		r.warn(Source{}, "", "") // only counted
		return
	}
	if names == nil {
		names = slices.Concat(proxyFields, variables)
	}
	if isMesh {
		names = append(names, fieldDefaultConfig)
	}
	name := path[len(path)-1]
	switch meant, ok := timers.Nearest(name, names); {
	case name == "terminationGracePeriodSeconds":
		r.warn(l.at(path), dotted(path), "belongs in the pod's spec, has no effect here; set %s for lastcall",
			VariableGracePeriod)
	case ok:
		r.warn(l.at(path), dotted(path), "unknown field, has no effect: did you mean %s?", meant)
	case !isMesh:
		r.warn(l.at(path), dotted(path), "unknown field, has no effect")
	}
}
