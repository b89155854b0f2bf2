package main

import (
	"crypto/tls"
	"strings"
	"testing"

	"github.com/lastcall-dev/lastcall/internal/sidecar/pipe"
)

func TestParseInbound(t *testing.T) {
	for _, tt := range []struct {
		in   string
		want string // of the error; "" for none
	}{
		{in: "127.0.0.1:15006=127.0.0.1:8080"},
		{in: "[::1]:15006=[::1]:8080,protocol=http"},
		{in: ":15006=127.0.0.1:8080,protocol=tcp"},
		{in: ":5432=127.0.0.1:5433,protocol=postgres"},
		{in: ":6379=127.0.0.1:6380,protocol=redis"},
		{in: "127.0.0.1:15006", want: "missing ="},
		{in: "15006=127.0.0.1:8080", want: "missing port"},
		{in: ":1=:2,protocol=udp", want: "must be auto, http, tcp, postgres or redis"},
		{in: ":1=:2,proto=http", want: `unknown option "proto"`},
	} {
		_, err := parseInbound(tt.in)
		if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("%s: %v; want %q", tt.in, err, tt.want)
		}
	}
}

func TestParseInboundName(t *testing.T) {
	in, err := parseInbound(":8080=127.0.0.1:80,protocol=http,name=ingress_http")
	if err != nil || in.Name != "ingress_http" || in.Protocol != pipe.HTTP {
		t.Errorf("%+v, %v", in, err)
	}
	for _, name := range []string{"", "a b", "a.b", "a:b", "ü", strings.Repeat("x", 61)} {
		if in, err := parseInbound(":8080=127.0.0.1:80,name=" + name); err == nil {
			t.Errorf("name %q is accepted: %+v", name, in)
		}
	}
}

func TestParseInboundMaxConnections(t *testing.T) {
	if in, err := parseInbound(":1=:2,max-connections=7"); err != nil || in.MaxConnections != 7 {
		t.Errorf("%+v, %v", in, err)
	}
	if in, err := parseInbound(":1=:2,max-connections=0"); err != nil || in.MaxConnections != pipe.NoLimit {
		t.Errorf("%+v, %v", in, err)
	}
	for _, bad := range []string{"", "-1", "many", "1.5"} {
		if in, err := parseInbound(":1=:2,max-connections=" + bad); err == nil {
			t.Errorf("%q is accepted: %+v", bad, in)
		}
	}
}

func TestParseInboundTLS(t *testing.T) {
	in, err := parseInbound(":8443=127.0.0.1:80,tls-cert=/c/tls.crt,tls-key=/c/tls.key,tls-client-ca=/c/ca.crt,tls-alpn=h2+http/1.1,tls-min-version=1.3")
	if err != nil || in.TLS == nil || in.TLS.Cert != "/c/tls.crt" || in.TLS.Key != "/c/tls.key" || in.TLS.ClientCA != "/c/ca.crt" ||
		strings.Join(in.TLS.ALPN, " ") != "h2 http/1.1" || in.TLS.MinVersion != tls.VersionTLS13 {
		t.Errorf("%+v, %+v, %v", in, in.TLS, err)
	}
	for _, bad := range []string{
		"tls-cert=/c/tls.crt", "tls-key=/c/tls.key", "tls-client-ca=/c/ca.crt", "tls-alpn=h2", "tls=on",
		"tls-cert=a,tls-key=b,tls-client-ca=", "tls-cert=a,tls-key=b,tls-alpn=h3", "tls-cert=a,tls-key=b,tls-alpn=h2+h2",
		"tls-cert=a,tls-key=b,tls-alpn=", "tls-cert=a,tls-key=b,tls-min-version=1.1", "tls-cert=,tls-key=",
	} {
		if in, err := parseInbound(":8080=127.0.0.1:80," + bad); err == nil || !strings.Contains(err.Error(), "must be") {
			t.Errorf("%s is accepted, or its error does not name the valid values: %+v, %v", bad, in.TLS, err)
		}
	}
}
