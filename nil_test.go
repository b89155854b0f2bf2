package lastcall

import (
	"net/http"
	"testing"
	"time"
)

// TestNilArguments: a nil argument is an error and not a panic.
func TestNilArguments(t *testing.T) {
	for want, opts := range map[string][]Option{
		"lastcall: server is nil":                                                     nil,
		"lastcall: an option is nil":                                                  {nil},
		"lastcall: a listener of WithListener is nil":                                 {WithListener(nil)},
		"lastcall: With: data plane is nil":                                           {With(nil)},
		"lastcall: grace period is 30ns: must be 1s or more, such as 30*time.Second":  {WithGracePeriod(30)},
		"lastcall: grace period is 999ms: must be 1s or more, such as 30*time.Second": {WithGracePeriod(999 * time.Millisecond)},
	} {
		var server *http.Server
		if len(opts) > 0 {
			server = &http.Server{Addr: "127.0.0.1:0"}
		}
		if _, err := Serve(t.Context(), server, opts...); err == nil || err.Error() != want {
			t.Errorf("%v: want %s", err, want)
		}
	}
	if _, err := Run(t.Context(), nil); err == nil || err.Error() != "lastcall: data plane is nil" {
		t.Errorf("%v: want lastcall: data plane is nil", err)
	}
}
