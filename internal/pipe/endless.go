package pipe

import "bytes"

// content says of what parts a response's body consists, for those that have no
// end of their own.
type content uint8

const (
	finite      content = iota // every end but its own is a loss
	eventStream                // events, each ended by an empty line
	lines                      // lines
)

// contentOf reads a Content-Type. Only of an event stream is it certain that its
// end means nothing: clients connect again, whatever it was (HTML, 9.2.3). A body
// of lines may be a tail that is followed for ever, or an export, which a silent
// end would falsify: the configuration has to say it.
func (e *Endings) contentOf(h *head) content {
	if h.encoded { // between which bytes an event ends cannot be seen
		return finite
	}
	media, _, _ := bytes.Cut(h.contentType, []byte(";"))
	media = trim(media)
	if equalFold(media, "text/event-stream") {
		return eventStream
	}
	for _, endless := range e.EndlessTypes {
		if equalFold(media, endless) {
			return lines
		}
	}
	return finite
}

// endsWith says whether a part ends with these last four bytes of data. 0 is
// nothing at all.
func (c content) endsWith(tail uint32) bool {
	if tail == 0 {
		return c != finite
	}
	last, before, third := byte(tail), byte(tail>>8), byte(tail>>16)
	switch c {
	case lines:
		return last == '\n'
	case eventStream: // lines end with CR, LF or CRLF
		switch {
		case last == '\n' && before == '\r':
			return third == '\n' || third == '\r'
		case last == '\n':
			return before == '\n'
		case last == '\r':
			return before == '\n' || before == '\r'
		}
	}
	return false
}
