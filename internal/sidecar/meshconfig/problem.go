package meshconfig

import (
	"errors"
	"fmt"

	"github.com/lastcall-dev/lastcall/internal/sidecar/terminal"
)

// FieldError is one invalid setting.
type FieldError struct {
	Field   string // full path of the setting as it was written
	Value   string // shortened when it is long
	Source  Source
	Accepts string // the valid values
	Err     error  // of the parser, if it adds anything; may be nil
}

func (e *FieldError) Error() string {
	text := fmt.Sprintf("%s is %s (%s): must be %s", e.Field, e.Value, e.Source.at(), e.Accepts)
	if e.Source.Origin == FlagGiven {
		text = fmt.Sprintf("%s %s: must be %s", e.Field, e.Value, e.Accepts)
	}
	if e.Err != nil {
		text += fmt.Sprintf(": %v", e.Err)
	}
	return text
}

// Unwrap returns Err.
func (e *FieldError) Unwrap() error { return e.Err }

// Warning is a valid setting that probably differs from its author's intention.
type Warning struct {
	Field  string // full path of the setting as it was written
	Source Source // Default for the configuration as a whole
	Text   string // the problem, lastcall's reaction, and the setting to write instead
}

func (w Warning) String() string {
	if w.Source.Origin == Default {
		return fmt.Sprintf("%s: %s", w.Field, w.Text)
	}
	return fmt.Sprintf("%s (%s): %s", w.Field, w.Source.at(), w.Text)
}

// findings collects all errors and warnings, so that the user gets them at once.
type findings struct {
	errs     []error
	warnings []Warning
}

// listed bounds the errors and the warnings that are listed one by one: a file of another kind would give one for each
// of its lines.
const listed = 100

func (f *findings) fail(err error) { f.errs = append(f.errs, err) }

func (f *findings) warn(src Source, path, format string, args ...any) {
	f.warnings = append(f.warnings, Warning{Field: path, Source: src, Text: fmt.Sprintf(format, args...)})
}

// err joins the errors.
func (f *findings) err() error {
	errs := f.errs
	if more := len(errs) - listed; more > 0 {
		errs = append(errs[:listed:listed], fmt.Errorf("and %d more errors", more))
	}
	return errors.Join(errs...)
}

// all returns the warnings.
func (f *findings) all() []Warning {
	if more := len(f.warnings) - listed; more > 0 {
		last := Warning{Field: "configuration", Text: fmt.Sprintf("%d more warnings", more)}
		return append(f.warnings[:listed:listed], last)
	}
	return f.warnings
}

// brief is the part of an invalid value that an error repeats.
func brief(s string) string { return terminal.Shorten(s, 80) }

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
