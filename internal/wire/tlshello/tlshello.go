// Package tlshello reads the server name and the protocols from the ClientHello of a TLS connection that passes
// through (RFC 8446, 4.1.2; RFC 6066, 3; RFC 7301, 3.1). Nothing is decrypted and no decision depends on it: a
// connection whose ClientHello cannot be read passes through without names.
package tlshello

import "iter"

// RecordType is the first byte of a TLS connection: a handshake record (RFC 8446, 5.1).
const RecordType = 0x16

const (
	recordHeader  = 5
	messageHeader = 4
	maxRecord     = 16 << 10

	typeClientHello     = 1
	extensionServerName = 0
	extensionALPN       = 16
)

// Names are the server names and protocols that a client requests.
type Names struct {
	ServerName string // empty: none
	ALPN       string // protocols in the client's order, separated by "+"; empty: none
}

// Find returns the ClientHello at the beginning of a connection, nil if there is none. more is true if it has begun
// and is not complete: a client sends all of it before it waits for anything.
func Find(b []byte) (hello []byte, more bool) {
	if b[0] != RecordType || len(b) > 1 && b[1] != 3 || len(b) > recordHeader && b[recordHeader] != typeClientHello {
		return nil, false
	}
	if len(b) < recordHeader {
		return nil, true
	}
	length := int(b[3])<<8 | int(b[4])
	if length < messageHeader || length > maxRecord {
		return nil, false
	}
	if len(b) < recordHeader+length {
		return nil, true
	}
	message := b[recordHeader : recordHeader+length]
	size := int(message[1])<<16 | int(message[2])<<8 | int(message[3])
	if size > length-messageHeader {
		return nil, false // continued in another record, which no client does
	}
	return message[messageHeader : messageHeader+size], false
}

// Parse reads the names from a ClientHello. It omits unreadable parts.
func Parse(hello []byte) (names Names) {
	f := vectors{hello}
	if !f.skip(2 + 32) { // legacy_version, random
		return names
	}
	for _, size := range []int{1, 2, 1} { // session id, cipher suites, compression methods
		if _, ok := f.next(size); !ok {
			return names
		}
	}
	for kind, body := range f.extensions() {
		switch kind {
		case extensionServerName:
			names.parseServerName(body)
		case extensionALPN:
			names.parseALPN(body)
		}
	}
	return names
}

// parseServerName reads the first name of a server_name extension.
func (n *Names) parseServerName(body []byte) {
	list, ok := (&vectors{body}).next(2)
	if !ok || len(list) == 0 || list[0] != 0 { // host_name, the only type there is
		return
	}
	if name, ok := (&vectors{list[1:]}).next(2); ok && len(name) <= 255 {
		n.ServerName = string(name)
	}
}

// maxALPN is how long the list of protocols may become, bytes, before the rest is left out.
const maxALPN = 100

func (n *Names) parseALPN(body []byte) {
	list, _ := (&vectors{body}).next(2)
	for in := (vectors{list}); len(in.b) > 0 && len(n.ALPN) < maxALPN; {
		name, ok := in.next(1)
		if !ok {
			break
		}
		if n.ALPN != "" {
			n.ALPN += "+"
		}
		n.ALPN += string(name)
	}
}

// vectors takes variable-length vectors (RFC 8446, 3.4) from bytes. Its methods return false if there are too few.
type vectors struct{ b []byte }

func (v *vectors) skip(n int) bool {
	if len(v.b) < n {
		return false
	}
	v.b = v.b[n:]
	return true
}

// next takes a vector whose length precedes it in size bytes.
func (v *vectors) next(size int) ([]byte, bool) {
	if len(v.b) < size {
		return nil, false
	}
	n := 0
	for _, b := range v.b[:size] {
		n = n<<8 | int(b)
	}
	if len(v.b) < size+n {
		return nil, false
	}
	part := v.b[size : size+n]
	v.b = v.b[size+n:]
	return part, true
}

// extensions yields the types and contents of extensions (4.2). The content of one that is not whole, the last, is nil.
func (v *vectors) extensions() iter.Seq2[int, []byte] {
	return func(yield func(int, []byte) bool) {
		all, _ := v.next(2)
		for f := (vectors{all}); len(f.b) >= 4; {
			kind := int(f.b[0])<<8 | int(f.b[1])
			f.skip(2)
			body, ok := f.next(2)
			if !yield(kind, body) || !ok {
				return
			}
		}
	}
}

const (
	typeServerHello            = 2
	extensionSupportedVersions = 43
)

// ParseServer returns the protocol that the ServerHello at the beginning of a connection chooses by ALPN, "" for none.
// ok is false where it does not show: in TLS 1.3, which encrypts it, and if the ServerHello is incomplete or none.
func ParseServer(b []byte) (alpn string, ok bool) {
	if len(b) < recordHeader+messageHeader || b[0] != RecordType || b[recordHeader] != typeServerHello {
		return "", false
	}
	message := b[recordHeader:]
	size := int(message[1])<<16 | int(message[2])<<8 | int(message[3])
	if len(message) < messageHeader+size {
		return "", false
	}
	f := vectors{message[messageHeader : messageHeader+size]}
	if !f.skip(2 + 32) { // legacy_version, random
		return "", false
	}
	if _, ok := f.next(1); !ok || !f.skip(2+1) { // session id, cipher suite, compression method
		return "", false
	}
	var names Names
	for kind, body := range f.extensions() {
		switch {
		case body == nil || kind == extensionSupportedVersions:
			return "", false
		case kind == extensionALPN:
			names.parseALPN(body)
		}
	}
	return names.ALPN, true
}
