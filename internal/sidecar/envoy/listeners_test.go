package envoy

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// An Envoy that hides its configuration has its addresses; one that is slow is read later. Its internal listeners have
// no connections of their own.
func TestListenersWithoutConfigDump(t *testing.T) {
	for name, tt := range map[string]struct {
		dump func(w http.ResponseWriter, r *http.Request)
		want int // listeners; -1: an error
	}{
		"hidden": {func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", http.StatusForbidden) }, 1},
		"slow":   {func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, -1},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/config_dump" {
					tt.dump(w, r)
					return
				}
				fmt.Fprint(w, `{"listener_statuses": [
					{"name": "virtualInbound", "local_address": {"socket_address": {"address": "0.0.0.0", "port_value": 15006}}},
					{"name": "connect_originate", "local_address": {"envoy_internal_address": {"server_listener_name": "connect_originate"}}}]}`)
			}))
			defer server.Close()
			a, err := NewAdmin(strings.TrimPrefix(server.URL, "http://"))
			if err != nil {
				t.Fatal(err)
			}
			short, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
			defer cancel()
			got, err := a.Listeners(short)
			if (err != nil) != (tt.want < 0) || err == nil && len(got) != tt.want {
				t.Errorf("%+v, %v; want %d", got, err, tt.want)
			}
		})
	}
}
