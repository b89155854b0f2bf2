package eventstream

// members reads the members of a JSON object as its bytes come: those that tell
// what an event is. Nested values and unknown members are passed over, whatever
// their size. What is no JSON object has no members.
type members struct {
	depth    int
	inString bool
	escaped  bool
	isValue  bool // a colon has come since the last member began
	begun    bool // a byte of the value has come
	noObject bool
	key      short
	text     short // the string at hand, on the first level

	present  memberSet // with a value other than null
	kind     short     // type
	object   short     // object
	sequence int       // sequence_number
}

// memberSet is a set of members.
type memberSet uint8

const (
	memberError memberSet = 1 << iota
	memberID
	memberJSONRPC
	memberMethod
	memberResult
)

func (m *members) has(all memberSet) bool { return m.present&all == all }

func (m *members) follow(p []byte) {
	for i := 0; i < len(p) && !m.noObject; i++ {
		switch {
		case !m.inString:
			m.between(p[i])
		case m.depth > 1 && !m.escaped: // the most of it, and of no interest
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

// inText takes a byte of a string.
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

// between takes a byte outside strings.
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

// textEnds takes a whole string: a key or a value.
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

// valueHas takes a byte of a member's value that is outside strings, its first one among them.
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
	switch string(m.key.bytes()) {
	case "error":
		m.present |= memberError
	case "id":
		m.present |= memberID
	case "jsonrpc":
		m.present |= memberJSONRPC
	case "method":
		m.present |= memberMethod
	case "result":
		m.present |= memberResult
	}
}
