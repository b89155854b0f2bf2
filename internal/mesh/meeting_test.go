package mesh

import "testing"

// The hooks of one Envoy meet by whatever name they call its address; those of another Envoy in the same network
// namespace do not.
func TestMeetingAt(t *testing.T) {
	one := meetingAt("127.0.0.1:15000")
	for admin, same := range map[string]bool{"localhost:15000": true, "[::1]:15000": true, "127.0.0.1:15001": false, "unix:/run/envoy.sock": false} {
		if (meetingAt(admin) == one) != same {
			t.Errorf("%s meets at %s, 127.0.0.1:15000 at %s", admin, meetingAt(admin), one)
		}
	}
}
