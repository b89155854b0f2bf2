package grpc

import (
	"slices"
	"testing"
)

func TestIsType(t *testing.T) {
	for contentType, want := range map[string]bool{
		"application/grpc": true, "application/grpc+proto": true, "application/grpc; charset=utf-8": true,
		"application/grpc-web": false, "application/grpcx": false, "application/json": false, "": false,
	} {
		if IsType([]byte(contentType)) != want {
			t.Errorf("%q: %v", contentType, !want)
		}
	}
}

// The boundaries of messages are the same for any split of the body.
func TestMessages(t *testing.T) {
	body := Append(nil, 0, []byte("hello"))
	boundaries := []int{0, len(body)}
	body = Append(body, 1, nil)
	boundaries = append(boundaries, len(body))
	body = Append(body, 0x80, make([]byte, 300))
	boundaries = append(boundaries, len(body))
	for step := 1; step <= len(body); step++ {
		var m Messages
		for at := 0; ; {
			if want := !slices.Contains(boundaries, at); m.Within() != want {
				t.Fatalf("pieces of %d bytes: after %d bytes within a message: %v", step, at, !want)
			}
			if at == len(body) {
				break
			}
			end := min(at+step, len(body))
			m.Follow(body[at:end])
			at = end
		}
		if m.Flags() != 0x80 {
			t.Fatalf("pieces of %d bytes: flags %x", step, m.Flags())
		}
	}
}

func TestMessagesLost(t *testing.T) {
	var m Messages
	m.Follow([]byte{0, 0})
	if !m.Within() {
		t.Error("not within a prefix")
	}
	if m.Lose(); m.Within() {
		t.Error("boundaries are unknown, but this one is not between messages")
	}
}
