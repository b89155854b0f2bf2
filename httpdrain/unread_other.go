//go:build !unix

package httpdrain

import "net"

func hasUnread(net.Conn) bool { return false }
