package eventstream

// members finds the members of a JSON object that identify an event, while the bytes of the object arrive. It skips
// nested values and other members of any size. Data that is not a JSON object has no members.
type members struct {
	depth    int
	inString bool
	escaped  bool
	isValue  bool // after the colon of a member
	begun    bool // within the value
	noObject bool
	key      short
	text     short // the present string, on the first level

	present  memberSet // with a value other than null
	kind     short     // type
	object   short     // object
	sequence int       // sequence_number
	done     bool      // done is true
}

type memberSet uint16

const (
	memberError memberSet = 1 << iota
	memberID
	memberJSONRPC
	memberMethod
	memberResult
	memberCandidates
	memberModelVersion
	memberModel
	memberCreatedAt
	memberDone
)

var memberNames = map[string]memberSet{
	"error": memberError, "id": memberID, "jsonrpc": memberJSONRPC, "method": memberMethod, "result": memberResult,
	"candidates": memberCandidates, "modelVersion": memberModelVersion,
	"model": memberModel, "created_at": memberCreatedAt, "done": memberDone,
}

func (m *members) has(all memberSet) bool { return m.present&all == all }

func (m *members) follow(p []byte) {
	for i := 0; i < len(p) && !m.noObject; i++ {
		switch {
		case !m.inString:
			m.between(p[i])
		case m.depth > 1 && !m.escaped: // most of the data, none of it needed
			for p[i] != '"' && p[i] != '\\' {
				if i++; i == len(p) {
					return
				}
			}
			fallthrough
		default:
			m.inText(p[i])
		}
	}
}

func (m *members) inText(c byte) {
	switch {
	case m.escaped:
		m.escaped = false
	case c == '\\':
		m.escaped = true
	case c == '"':
		m.inString = false
		m.textEnds()
		return
	}
	if m.depth == 1 {
		m.text.addByte(c)
	}
}

func (m *members) between(c byte) {
	switch c {
	case ' ', '\t', '\n', '\r':
		return
	case ',':
		if m.depth == 1 {
			m.isValue, m.begun = false, false
			m.key.reset()
		}
		return
	case ':':
		m.isValue = m.isValue || m.depth == 1
		return
	case '}', ']':
		m.depth--
		return
	}
	if m.depth == 0 && c != '{' {
		m.noObject = true
		return
	}
	if m.depth == 1 && m.isValue {
		m.valueHas(c)
	}
	switch c {
	case '{', '[':
		m.depth++
	case '"':
		m.inString = true
		m.text.reset()
	}
}

// textEnds is called at the end of a string: a key or a value.
func (m *members) textEnds() {
	if m.depth != 1 {
		return
	}
	if !m.isValue {
		m.key = m.text
		if string(m.key.bytes()) == "sequence_number" {
			m.sequence = 0
		}
		return
	}
	switch string(m.key.bytes()) {
	case "type":
		m.kind = m.text
	case "object":
		m.object = m.text
	}
}

// valueHas takes a byte of a member's value outside strings. The first byte of any value is one.
func (m *members) valueHas(c byte) {
	if string(m.key.bytes()) == "sequence_number" {
		m.sequence = appendDigits(m.sequence, []byte{c})
	}
	if m.begun {
		return
	}
	if m.begun = true; c == 'n' { // null
		return
	}
	member := memberNames[string(m.key.bytes())]
	m.present |= member
	if member == memberDone {
		m.done = c == 't'
	}
}
