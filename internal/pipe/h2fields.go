package pipe

// fieldName is a header field's name, of those that matter here.
type fieldName uint8

const (
	fieldOther fieldName = iota
	fieldMethod
	fieldPath
	fieldStatus
	fieldAuthority
	fieldContentType
	fieldUserAgent
	fieldRequestID
	fieldForwardedFor
	fieldContentEncoding
)

// longestField is the length of the longest of them, bytes.
const longestField = len("content-encoding")

func nameOf(name []byte) fieldName {
	switch string(name) { // no allocation
	case ":method":
		return fieldMethod
	case ":path":
		return fieldPath
	case ":status":
		return fieldStatus
	case ":authority":
		return fieldAuthority
	case "content-type":
		return fieldContentType
	case "content-encoding":
		return fieldContentEncoding
	case "user-agent":
		return fieldUserAgent
	case "x-request-id":
		return fieldRequestID
	case "x-forwarded-for":
		return fieldForwardedFor
	}
	return fieldOther
}

// fieldSet is a set of names.
type fieldSet uint16

func (s fieldSet) has(name fieldName) bool { return s>>name&1 != 0 }

func fieldsOf(names ...fieldName) (s fieldSet) {
	for _, name := range names {
		s |= 1 << name
	}
	return s
}

// What is read of a header block: of requests for the report, with an access log
// for its line too; of responses the status, and whether they are event streams.
var (
	requestFields       = fieldsOf(fieldMethod, fieldPath, fieldContentType, fieldUserAgent)
	loggedRequestFields = requestFields | fieldsOf(fieldAuthority, fieldRequestID, fieldForwardedFor)
	responseFields      = fieldsOf(fieldStatus, fieldContentType, fieldContentEncoding)
)

// staticFields is the static table (RFC 7541, appendix A); index 1 stands first.
// Only values of requests and statuses are ever looked at.
var staticFields = newStaticFields(
	":authority", "", ":method", "GET", ":method", "POST", ":path", "/", ":path", "/index.html", ":scheme", "http", ":scheme", "https",
	":status", "200", ":status", "204", ":status", "206", ":status", "304", ":status", "400", ":status", "404", ":status", "500",
	"accept-charset", "", "accept-encoding", "gzip, deflate", "accept-language", "", "accept-ranges", "", "accept", "",
	"access-control-allow-origin", "", "age", "", "allow", "", "authorization", "", "cache-control", "", "content-disposition", "",
	"content-encoding", "", "content-language", "", "content-length", "", "content-location", "", "content-range", "", "content-type", "",
	"cookie", "", "date", "", "etag", "", "expect", "", "expires", "", "from", "", "host", "", "if-match", "", "if-modified-since", "",
	"if-none-match", "", "if-range", "", "if-unmodified-since", "", "last-modified", "", "link", "", "location", "", "max-forwards", "",
	"proxy-authenticate", "", "proxy-authorization", "", "range", "", "referer", "", "refresh", "", "retry-after", "", "server", "",
	"set-cookie", "", "strict-transport-security", "", "transfer-encoding", "", "user-agent", "", "vary", "", "via", "",
	"www-authenticate", "",
)

type staticField struct {
	name    fieldName
	nameLen uint8
	value   []byte
}

func newStaticFields(words ...string) (out [61]staticField) {
	for i := range out {
		name, value := words[2*i], words[2*i+1]
		out[i] = staticField{nameOf([]byte(name)), uint8(len(name)), []byte(value)}
	}
	return out
}
