package meshconfig

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"
	mesh "istio.io/api/mesh/v1alpha1"

	"github.com/lastcall-dev/lastcall/internal/timers"
)

// The fields that lastcall uses, by their JSON names.
const (
	fieldTerminationDrain = "terminationDrainDuration"
	fieldDrain            = "drainDuration"
	fieldParentShutdown   = "parentShutdownDuration" // gone from Istio's ProxyConfig since 2022, still in manifests
	fieldAdminPort        = "proxyAdminPort"
	fieldStatusPort       = "statusPort"
	fieldConcurrency      = "concurrency"
	fieldHold             = "holdApplicationUntilProxyStarts"
	fieldStatsMatcher     = "proxyStatsMatcher"
	fieldMetadata         = "proxyMetadata"
	fieldDefaultConfig    = "defaultConfig" // MeshConfig's ProxyConfig
)

// accepted describes the valid values of the fields that lastcall uses.
var accepted = map[string]string{
	fieldTerminationDrain: acceptsDuration,
	fieldDrain:            acceptsSeconds,
	fieldParentShutdown:   acceptsDuration,
	fieldAdminPort:        acceptsPort,
	fieldStatusPort:       acceptsPort,
	fieldConcurrency:      "a whole number of worker threads, 0 (one for each core) or more",
	fieldHold:             "true, false or null",
	fieldStatsMatcher:     "a map of inclusionPrefixes, inclusionSuffixes and inclusionRegexps",
	fieldMetadata:         "a map of variables to strings",

	fieldStatsMatcher + ".inclusionPrefixes": acceptsStrings,
	fieldStatsMatcher + ".inclusionSuffixes": acceptsStrings,
	fieldStatsMatcher + ".inclusionRegexps":  acceptsStrings,
}

const (
	acceptsDuration = timers.DurationFormat
	acceptsSeconds  = "a duration of whole seconds, at least 1s, such as 45s"
	acceptsPort     = "a port number, 1 to 65535"
	acceptsStrings  = "a list of strings"
)

func proxyDescriptor() protoreflect.MessageDescriptor {
	return (*mesh.ProxyConfig)(nil).ProtoReflect().Descriptor()
}

func meshDescriptor() protoreflect.MessageDescriptor {
	return (*mesh.MeshConfig)(nil).ProtoReflect().Descriptor()
}

// fieldOf finds a field by its JSON name or its name in the .proto file; Istio accepts both in all YAML.
func fieldOf(md protoreflect.MessageDescriptor, name string) protoreflect.FieldDescriptor {
	if fd := md.Fields().ByJSONName(name); fd != nil {
		return fd
	}
	return md.Fields().ByTextName(name)
}

// jsonNames lists a message's fields.
func jsonNames(md protoreflect.MessageDescriptor) []string {
	names := make([]string, 0, md.Fields().Len())
	for i := range md.Fields().Len() {
		names = append(names, md.Fields().Get(i).JSONName())
	}
	return names
}

// unknownFields calls report for every field at or below value that is not in fd's type, with its path and the names
// that may have been meant.
func unknownFields(fd protoreflect.FieldDescriptor, value any, path []string,
	report func(path []string, candidates []string)) {
	switch {
	case fd.IsMap():
		if entries, ok := value.(tree); ok && fd.MapValue().Message() != nil {
			for _, key := range sortedKeys(entries) {
				unknownIn(fd.MapValue().Message(), entries[key], join(path, key), report)
			}
		}
	case fd.Message() == nil:
	case fd.IsList():
		if items, ok := value.([]any); ok {
			for i, item := range items {
				unknownIn(fd.Message(), item, join(path, fmt.Sprintf("[%d]", i)), report)
			}
		}
	default:
		unknownIn(fd.Message(), value, path, report)
	}
}

func unknownIn(md protoreflect.MessageDescriptor, value any, path []string, report func([]string, []string)) {
	fields, ok := value.(tree)
	if !ok || strings.HasPrefix(string(md.FullName()), "google.protobuf.") {
		return // Duration, Struct, BoolValue … have JSON forms other than their fields
	}
	for _, key := range sortedKeys(fields) {
		if fd := fieldOf(md, key); fd != nil {
			unknownFields(fd, fields[key], join(path, key), report)
		} else {
			report(join(path, key), jsonNames(md))
		}
	}
}

// decodeField reads one field of a ProxyConfig as Istio does, which is laxer
// than protojson: Go durations ("1m30s"), numbers in quotes.
func decodeField(name string, value any) (*mesh.ProxyConfig, error) {
	pc := &mesh.ProxyConfig{}
	return pc, pc.UnmarshalJSON([]byte(literal(tree{name: value})))
}

// join appends to a path without sharing its memory.
func join(path []string, keys ...string) []string {
	return append(slices.Clip(path), keys...)
}

// dotted writes a path in the form that users know. Names that would disturb a terminal or a log are quoted.
func dotted(path []string) string {
	var b strings.Builder
	for i, key := range path {
		key = brief(key)
		if quoted := strconv.Quote(key); quoted != `"`+key+`"` {
			key = quoted
		}
		if i > 0 && !strings.HasPrefix(key, "[") {
			b.WriteByte('.')
		}
		b.WriteString(key)
	}
	return b.String()
}

func sortedKeys[V any](m map[string]V) []string {
	return slices.Sorted(maps.Keys(m))
}
