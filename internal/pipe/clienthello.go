package pipe

// A ClientHello is read where TLS passes through to the app, for the names in it
// alone (RFC 8446, 4.1.2; RFC 6066, 3; RFC 7301, 3.1). Nothing is decrypted, and
// nothing depends on it: what cannot be read passes through all the same.

// clientHelloAt finds the ClientHello at the beginning of a connection. more is
// true when it has begun and is not whole: its client sends the rest before it
// waits for anything.
func clientHelloAt(b []byte) (hello []byte, more bool) {
	const recordHeader, messageHeader = 5, 4
	if b[0] != 0x16 || len(b) > 1 && b[1] != 3 || len(b) > recordHeader && b[recordHeader] != 1 {
		return nil, false
	}
	if len(b) < recordHeader {
		return nil, true
	}
	length := int(b[3])<<8 | int(b[4])
	if length < messageHeader || length > 16<<10 {
		return nil, false
	}
	if len(b) < recordHeader+length {
		return nil, true
	}
	message := b[recordHeader : recordHeader+length]
	size := int(message[1])<<16 | int(message[2])<<8 | int(message[3])
	if size > length-messageHeader {
		return nil, false // goes on in another record, which no client does
	}
	return message[messageHeader : messageHeader+size], false
}

// fields takes length-prefixed parts from bytes; false when there are too few.
type fields struct{ b []byte }

func (f *fields) skip(n int) bool {
	if len(f.b) < n {
		return false
	}
	f.b = f.b[n:]
	return true
}

// next takes a part whose length stands before it in size bytes.
func (f *fields) next(size int) ([]byte, bool) {
	if len(f.b) < size {
		return nil, false
	}
	n := 0
	for _, b := range f.b[:size] {
		n = n<<8 | int(b)
	}
	if len(f.b) < size+n {
		return nil, false
	}
	part := f.b[size : size+n]
	f.b = f.b[size+n:]
	return part, true
}

const (
	extensionServerName = 0
	extensionALPN       = 16
)

// readClientHello reads what a client says that it wants. What it cannot read is
// left out.
func readClientHello(hello []byte) *handshakeInfo {
	info := new(handshakeInfo)
	f := fields{hello}
	if !f.skip(2 + 32) { // version, random
		return info
	}
	for _, size := range []int{1, 2, 1} { // session, cipher suites, compressions
		if _, ok := f.next(size); !ok {
			return info
		}
	}
	all, _ := f.next(2)
	for f = (fields{all}); len(f.b) >= 4; {
		kind := int(f.b[0])<<8 | int(f.b[1])
		f.skip(2)
		body, ok := f.next(2)
		if !ok {
			break
		}
		in := fields{body}
		switch kind {
		case extensionServerName:
			if list, ok := in.next(2); ok {
				in = fields{list}
				isHostName := len(in.b) > 0 && in.b[0] == 0 // the only type there is
				in.skip(1)
				if name, ok := in.next(2); ok && isHostName && len(name) <= 255 {
					info.serverName = string(name)
				}
			}
		case extensionALPN:
			list, _ := in.next(2)
			for in = (fields{list}); len(in.b) > 0 && len(info.alpn) < 100; {
				name, ok := in.next(1)
				if !ok {
					break
				}
				if info.alpn != "" {
					info.alpn += "+"
				}
				info.alpn += string(name)
			}
		}
	}
	return info
}

// sniffTLS reads the ClientHello of what will pass through.
func (c *conn) sniffTLS(b []byte) mode {
	hello, more := clientHelloAt(b)
	switch {
	case more:
		return undecided
	case hello != nil:
		c.hello.Store(readClientHello(hello))
	}
	return opaque
}
