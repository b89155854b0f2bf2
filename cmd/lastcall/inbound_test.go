package main

import (
	"crypto/tls"
	"reflect"
	"strings"
	"testing"

	"github.com/lastcall-dev/lastcall/internal/sidecar/pipe"
	"github.com/lastcall-dev/lastcall/internal/sidecar/tlsserver"
)

func TestParseInbound(t *testing.T) {
	secured := tlsserver.Options{Cert: "/c/tls.crt", Key: "/c/tls.key", ClientCA: "/c/ca.crt",
		ALPN: []string{"h2", "http/1.1"}, MinVersion: tls.VersionTLS13}
	for in, want := range map[string]pipe.Inbound{
		"127.0.0.1:15006=127.0.0.1:8080": {Listen: "127.0.0.1:15006", App: "127.0.0.1:8080"},
		"[::1]:1=[::1]:80,protocol=http": {Listen: "[::1]:1", App: "[::1]:80", Protocol: pipe.HTTP},
		"10.0.0.7:80=127.0.0.1:80":       {Listen: "10.0.0.7:80", App: "127.0.0.1:80"},
		"127.0.0.1:0=127.0.0.1:0":        {Listen: "127.0.0.1:0", App: "127.0.0.1:0"},
		":80=web:80":                     {Listen: ":80", App: "web:80"},
		":1=:2,protocol=tcp":             {Listen: ":1", App: ":2", Protocol: pipe.TCP},
		":1=:2,protocol=postgres":        {Listen: ":1", App: ":2", Protocol: pipe.Postgres},
		":1=:2,protocol=redis":           {Listen: ":1", App: ":2", Protocol: pipe.Redis},
		":1=:2,name=ingress_http":        {Listen: ":1", App: ":2", Name: "ingress_http"},
		":1=:2,max-connections=7":        {Listen: ":1", App: ":2", MaxConnections: 7},
		":1=:2,max-connections=0":        {Listen: ":1", App: ":2", MaxConnections: pipe.NoLimit},
		":1=:2,tls-cert=/c/tls.crt,tls-key=/c/tls.key,tls-client-ca=/c/ca.crt,tls-alpn=h2+http/1.1," +
			"tls-min-version=1.3": {Listen: ":1", App: ":2", TLS: &secured},
	} {
		if got, err := parseInbound(in); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, %v; want %+v", in, got, err, want)
		}
	}
}

func TestParseInboundRefuses(t *testing.T) {
	for want, texts := range map[string][]string{
		"missing =":    {"127.0.0.1:15006"},
		"missing port": {"15006=127.0.0.1:8080"},
		"would loop": {
			"127.0.0.1:80=127.0.0.1:80", ":80=127.0.0.2:80", "[::]:80=localhost:80", "0.0.0.0:80=:80", "127.0.0.1:80=:80",
			"127.0.0.1:80=[::]:80", "web:80=web:80",
		},
		"must be auto, http, tcp, postgres or redis": {":1=:2,protocol=udp"},
		`unknown option "proto"`:                     {":1=:2,proto=http"},
		"name":                                       {"", "a b", "a.b", "a:b", "ü", strings.Repeat("x", 61)},
		"max-connections":                            {"", "-1", "many", "1.5"},
		"must be": {
			"tls-cert=/c/tls.crt", "tls-key=/c/tls.key", "tls-client-ca=/c/ca.crt", "tls-alpn=h2", "tls=on",
			"tls-cert=a,tls-key=b,tls-client-ca=", "tls-cert=a,tls-key=b,tls-alpn=h3",
			"tls-cert=a,tls-key=b,tls-alpn=h2+h2", "tls-cert=a,tls-key=b,tls-alpn=",
			"tls-cert=a,tls-key=b,tls-min-version=1.1", "tls-cert=,tls-key=",
		},
	} {
		for _, text := range texts {
			switch want {
			case "name", "max-connections":
				text = ":1=:2," + want + "=" + text
			case "must be":
				text = ":1=:2," + text
			}
			if in, err := parseInbound(text); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %+v, %v; want %q", text, in, err, want)
			}
		}
	}
}
