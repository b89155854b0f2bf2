// Package planetest tests an implementation of drain.DataPlane on real sockets.
//
// Clients has clients of every kind connect while the data plane is drained and closed: silent ones, ones that send
// half a request, ones that only ping. None of them may delay the end for longer than a request takes. The data plane
// must serve HTTP/1.1 and HTTP/2 without TLS, the app answer within 20 ms, and a request head time out after 300 ms.
//
//	func TestClients(t *testing.T) {
//		planetest.Clients(t, func(t *testing.T, round int) (drain.DataPlane, func() (net.Conn, error)) {
//			ln, err := net.Listen("tcp", "127.0.0.1:0")
//			…
//			return plane, func() (net.Conn, error) { return net.Dial("tcp", ln.Addr().String()) }
//		})
//	}
//
// Package draintest has the opposite: a scripted data plane, to test code that drives one.
package planetest
