package meshconfig

import "fmt"

// Origin is the kind of place of a value.
type Origin int

const (
	// Default is a built-in value.
	Default Origin = iota

	// MeshFile is MeshConfig's defaultConfig in the mesh config file.
	MeshFile

	// ProxyConfigVariable is the PROXY_CONFIG environment variable, which the
	// injector writes.
	ProxyConfigVariable

	// Annotation is a pod annotation, read from the downward API's file.
	Annotation

	// AnnotationsFile is the downward API's file itself.
	AnnotationsFile

	// Environment is one variable of the container's own environment.
	Environment

	// FlagGiven is a command line flag.
	FlagGiven
)

// Source is where a value was set.
type Source struct {
	Origin Origin

	// Name is the file, the annotation, the variable or the flag; empty for
	// Default.
	Name string

	// Metadata is true for an entry of the proxyMetadata found there.
	Metadata bool

	// Line is the line within the file, the variable or the annotation's value, counted from 1; 0 when it is unknown.
	Line int
}

// String names the place, without the line.
func (s Source) String() string {
	var where string
	switch s.Origin {
	case Default:
		where = "default"
	case MeshFile:
		where = "mesh file " + s.Name
	case ProxyConfigVariable:
		where = variableProxyConfig
	case Annotation:
		where = "annotation " + s.Name
	case AnnotationsFile:
		where = "annotations file " + s.Name
	case Environment:
		where = "environment " + s.Name
	case FlagGiven:
		where = "flag " + s.Name
	default:
		where = fmt.Sprintf("Origin(%d) %s", int(s.Origin), s.Name)
	}
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

	// Path is the setting's name in its source, for example proxyMetadata.MINIMUM_DRAIN_DURATION; empty for a default.
	Path string
}

// IsSet reports whether the value was set anywhere, even to the default's value.
func (v Value[T]) IsSet() bool { return v.Source.Origin != Default }
