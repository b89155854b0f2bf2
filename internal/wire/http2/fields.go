package http2

// FieldName is the name of a header field that a proxy looks for.
type FieldName uint8

// Field names.
const (
	FieldOther FieldName = iota
	FieldMethod
	FieldPath
	FieldStatus
	FieldAuthority
	FieldContentType
	FieldUserAgent
	FieldRequestID
	FieldForwardedFor
	FieldContentEncoding
	FieldGRPCStatus
	FieldGRPCMessage
)

// longestField is the length of the longest of these names, bytes.
const longestField = len("content-encoding")

func fieldNameOf(name []byte) FieldName {
	switch string(name) { // no allocation
	case ":method":
		return FieldMethod
	case ":path":
		return FieldPath
	case ":status":
		return FieldStatus
	case ":authority":
		return FieldAuthority
	case "content-type":
		return FieldContentType
	case "content-encoding":
		return FieldContentEncoding
	case "user-agent":
		return FieldUserAgent
	case "x-request-id":
		return FieldRequestID
	case "grpc-status":
		return FieldGRPCStatus
	case "grpc-message":
		return FieldGRPCMessage
	case "x-forwarded-for":
		return FieldForwardedFor
	}
	return FieldOther
}

// FieldSet is a set of field names.
type FieldSet uint16

// Has reports whether the set contains a name.
func (s FieldSet) Has(name FieldName) bool { return s>>name&1 != 0 }

// FieldsOf returns a set of names.
func FieldsOf(names ...FieldName) (s FieldSet) {
	for _, name := range names {
		s |= 1 << name
	}
	return s
}

// staticFields is the static table (RFC 7541, appendix A), beginning with index 1.
var staticFields = newStaticFields(
	":authority", "", ":method", "GET", ":method", "POST", ":path", "/", ":path", "/index.html", ":scheme", "http",
	":scheme", "https",
	":status", "200", ":status", "204", ":status", "206", ":status", "304", ":status", "400", ":status", "404", ":status",
	"500",
	"accept-charset", "", "accept-encoding", "gzip, deflate", "accept-language", "", "accept-ranges", "", "accept", "",
	"access-control-allow-origin", "", "age", "", "allow", "", "authorization", "", "cache-control", "",
	"content-disposition", "",
	"content-encoding", "", "content-language", "", "content-length", "", "content-location", "", "content-range", "",
	"content-type", "",
	"cookie", "", "date", "", "etag", "", "expect", "", "expires", "", "from", "", "host", "", "if-match", "",
	"if-modified-since", "",
	"if-none-match", "", "if-range", "", "if-unmodified-since", "", "last-modified", "", "link", "", "location", "",
	"max-forwards", "",
	"proxy-authenticate", "", "proxy-authorization", "", "range", "", "referer", "", "refresh", "", "retry-after", "",
	"server", "",
	"set-cookie", "", "strict-transport-security", "", "transfer-encoding", "", "user-agent", "", "vary", "", "via", "",
	"www-authenticate", "",
)

type staticField struct {
	entry
	value []byte // not nil
}

func newStaticFields(words ...string) (out [61]staticField) {
	for i := range out {
		name, value := words[2*i], words[2*i+1]
		e := entry{name: fieldNameOf([]byte(name)), nameLen: len(name), valueLen: len(value)}
		out[i] = staticField{e, []byte(value)}
	}
	return out
}
