//go:build !unix

package traffic

// open reports whether the peer has sent no unexpected bytes. Without a peek at the socket a close is not seen: the
// next request on the connection is then lost.
func (k *kept) open() bool { return k.r.Buffered() == 0 }
