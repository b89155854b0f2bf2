package meshconfig

import "testing"

func TestPortProtocol(t *testing.T) {
	for name, want := range map[string]struct {
		protocol string
		opaque   bool
	}{
		"":                  {"", false},
		"http":              {"http", false},
		"http-admin":        {"http", false},
		"HTTP2":             {"http2", true},
		"grpc-web":          {"grpc", true},
		"h2c":               {"h2c", true},
		"kubernetes.io/h2c": {"h2c", true},
		"kubernetes.io/wss": {"wss", true},
		"ws":                {"ws", true},
		"https":             {"https", true},
		"tcp-gossip":        {"tcp", true},
		"web":               {"", false},
		"grpcish":           {"", false},
	} {
		if got := PortProtocol(name); got != want.protocol || IsOpaquePort(got) != want.opaque {
			t.Errorf("%q: %q, opaque %v; want %q, %v", name, got, IsOpaquePort(got), want.protocol, want.opaque)
		}
	}
}
