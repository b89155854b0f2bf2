//go:build !linux

package grpcdrain

import "net"

func setUserTimeout(net.Conn) {} // grpc.Server sets it on Linux only
