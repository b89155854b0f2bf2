package tlshello

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
	extensions, _ := f.next(2)
	var names Names
	for f = (vectors{extensions}); len(f.b) >= 4; {
		kind := int(f.b[0])<<8 | int(f.b[1])
		f.skip(2)
		body, ok := f.next(2)
		switch {
		case !ok || kind == extensionSupportedVersions:
			return "", false
		case kind == extensionALPN:
			names.parseALPN(body)
		}
	}
	return names.ALPN, true
}
