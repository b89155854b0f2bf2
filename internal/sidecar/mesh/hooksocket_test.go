package mesh

import "testing"

// The hooks of one Envoy meet by whatever name they call its address; those of another Envoy in the same network
// namespace do not.
func TestSocketOf(t *testing.T) {
	one := socketOf("127.0.0.1:15000")
	for admin, same := range map[string]bool{"localhost:15000": true, "[::1]:15000": true, "127.0.0.1:15001": false, "unix:/run/envoy.sock": false} {
		if (socketOf(admin) == one) != same {
			t.Errorf("%s meets at %s, 127.0.0.1:15000 at %s", admin, socketOf(admin), one)
		}
	}
}
