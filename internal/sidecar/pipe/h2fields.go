package pipe

import (
	"slices"

	"github.com/lastcall-dev/lastcall/internal/sidecar/accesslog"
	"github.com/lastcall-dev/lastcall/internal/wire/eventstream"
	"github.com/lastcall-dev/lastcall/internal/wire/grpc"
	"github.com/lastcall-dev/lastcall/internal/wire/http1"
	"github.com/lastcall-dev/lastcall/internal/wire/http2"
)

// The fields read of a header block: of requests for the report and the access log, of responses the status and whether
// they are event streams.
var (
	requestFields = http2.FieldsOf(http2.FieldMethod, http2.FieldPath, http2.FieldContentType, http2.FieldUserAgent,
		http2.FieldForwardedFor)
	loggedRequestFields = requestFields | http2.FieldsOf(http2.FieldAuthority, http2.FieldRequestID)
	responseFields      = http2.FieldsOf(http2.FieldStatus, http2.FieldContentType, http2.FieldContentEncoding)
)

// streamHead is the part of a request's header block that is kept.
type streamHead struct {
	stream       *stream          // nil for trailers
	entry        *accesslog.Entry // nil without an access log
	method, path bool             // seen
	most         int              // of a field is kept, bytes
	forwarded    bool             // by a proxy
}

func (r *streamHead) Field(name http2.FieldName, value []byte) {
	s := r.stream
	if s == nil {
		return
	}
	whole := value
	value = value[:min(len(value), r.most)]
	switch name {
	case http2.FieldMethod:
		if !r.method {
			r.method = true
			value := value[:min(len(value), maxMethod)]
			s.line = slices.Insert(s.line, 0, value...) // they may come in any order
			s.line = slices.Insert(s.line, len(value), ' ')
		}
	case http2.FieldPath:
		if !r.path {
			r.path = true
			s.line = append(s.line, value[:min(len(value), maxLine-maxMethod)]...)
		}
	case http2.FieldContentType:
		s.grpc = grpc.IsType(whole)
	case http2.FieldUserAgent:
		s.quiet = http1.IsProbe(whole)
	case http2.FieldForwardedFor:
		r.forwarded = true
	}
	if e := r.entry; e != nil {
		switch name {
		case http2.FieldMethod:
			e.Method = string(value)
		case http2.FieldPath:
			e.Path = string(value)
		case http2.FieldAuthority:
			e.Authority = string(value)
		case http2.FieldUserAgent:
			e.UserAgent = string(value)
		case http2.FieldRequestID:
			e.RequestID = string(value)
		case http2.FieldForwardedFor:
			e.ForwardedFor = string(value)
		}
	}
}

// maxBrief is how much of a field is kept in any case, bytes.
const maxBrief = 32

const maxMethod = 32

type responseHead struct {
	status  int  // 0 when there is none
	isGET   bool // of the request
	media   eventstream.Media
	encoded bool // there is a Content-Encoding other than identity
}

func (r *responseHead) Field(name http2.FieldName, value []byte) {
	switch name {
	case http2.FieldStatus:
		r.status = http1.ParseStatus(value)
	case http2.FieldContentType:
		r.media = eventstream.MediaOf(value, r.isGET)
	case http2.FieldContentEncoding:
		r.encoded = r.encoded || !http1.EqualFold(value, "identity")
	}
}
