package meshconfig

import "fmt"

// Origin is the kind of place of a value.
type Origin int

// The kinds of places.
const (
	Default             Origin = iota // built in
	MeshFile                          // MeshConfig's defaultConfig in the mesh config file
	ProxyConfigVariable               // PROXY_CONFIG, which the injector writes
	Annotation                        // a pod annotation, read from the downward API's file
	AnnotationsFile                   // the downward API's file itself
	Environment                       // a variable of the container's own environment
	FlagGiven                         // a command line flag
)

// Source is where a value was set.
type Source struct {
	Origin   Origin
	Name     string // of the file, annotation, variable or flag; empty for Default
	Metadata bool   // an entry of the proxyMetadata found there
	Line     int    // within the file, the variable or the annotation's value, from 1; 0: unknown
}

// originNames begin the text of a Source; the variable PROXY_CONFIG is its own name.
var originNames = [...]string{
	Default: "default", MeshFile: "mesh file ", Annotation: "annotation ", AnnotationsFile: "annotations file ",
	Environment: "environment ", FlagGiven: "flag ",
}

// String names the place, without the line.
func (s Source) String() string {
	where := originNames[s.Origin] + s.Name
	if s.Metadata {
		return "proxyMetadata of " + where
	}
	return where
}

// at is String with the line, for errors and warnings. They name the full path of a field, so "proxyMetadata of" would
// repeat it.
func (s Source) at() string {
	s.Metadata = false
	if s.Line > 0 {
		return fmt.Sprintf("%s, line %d", s, s.Line)
	}
	return s.String()
}

// Value is one setting and its source.
type Value[T any] struct {
	Value  T
	Source Source
	Path   string // its name in Source, such as proxyMetadata.MINIMUM_DRAIN_DURATION; empty for a default
}

// IsSet reports whether the value was set anywhere, even to the default's value.
func (v Value[T]) IsSet() bool { return v.Source.Origin != Default }
