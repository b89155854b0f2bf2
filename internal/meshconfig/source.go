package meshconfig

import "fmt"

// Origin is the kind of place a value can come from.
type Origin int

const (
	// Default is a value nobody said.
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

// Source says where a value came from.
type Source struct {
	Origin Origin

	// Name is the file, the annotation, the variable or the flag; empty for
	// Default.
	Name string

	// Metadata is true for an entry of the proxyMetadata found there.
	Metadata bool

	// Line is the line within the file, the variable or the annotation's
	// value, counted from 1; 0 when it is not known.
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

// at is String with the line, as errors and warnings want it. They give the
// full path of a field, so that "proxyMetadata of" would only repeat it.
func (s Source) at() string {
	s.Metadata = false
	if s.Line > 0 {
		return fmt.Sprintf("%s, line %d", s, s.Line)
	}
	return s.String()
}

// Value is one setting with the place it came from.
type Value[T any] struct {
	Value  T
	Source Source

	// Path is the setting's name as it was written there, for example
	// proxyMetadata.MINIMUM_DRAIN_DURATION; empty for a default.
	Path string
}

// Said reports whether anybody said the value, even if it is the default's.
func (v Value[T]) Said() bool { return v.Source.Origin != Default }
