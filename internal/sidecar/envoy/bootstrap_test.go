package envoy

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the golden files")

func TestBootstrap(t *testing.T) {
	got, err := Bootstrap{
		Inbound: []Route{
			{"127.0.0.1:15006", "127.0.0.1:8080", "auto"},
			{"[::1]:15007", "[::1]:8081", "http"},
			{":15008", "localhost:8082", "tcp"},
			{":15006", "", "auto"},
		},
		AccessLog: "/dev/stdout",
	}.Render("unix:/run/envoy")
	if err != nil {
		t.Fatal(err)
	}
	var text bytes.Buffer
	if err := json.Indent(&text, got, "", "  "); err != nil {
		t.Fatal(err)
	}
	got = text.Bytes()
	const golden = "testdata/bootstrap.json"
	if *update {
		if err := os.WriteFile(golden, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("the bootstrap is another than %s (go test -update writes it):\n%s", golden, got)
	}
}

func TestBadBootstrap(t *testing.T) {
	for name, tt := range map[string]struct {
		b     Bootstrap
		admin string
		want  string
	}{
		"admin":   {Bootstrap{}, "15000", "admin: address 15000"},
		"port":    {Bootstrap{}, "127.0.0.1:http", `port of "127.0.0.1:http"`},
		"inbound": {Bootstrap{Inbound: []Route{{"nowhere", "127.0.0.1:1", "http"}}}, "127.0.0.1:1", "inbound nowhere"},
		"app":     {Bootstrap{Inbound: []Route{{"127.0.0.1:1", "127.0.0.1:70000", "http"}}}, "127.0.0.1:1", "app 127.0.0.1:70000"},
	} {
		if _, err := tt.b.Render(tt.admin); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v; want %q", name, err, tt.want)
		}
	}
}
