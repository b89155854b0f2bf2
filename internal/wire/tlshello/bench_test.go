package tlshello

import (
	"crypto/tls"
	"testing"
)

func BenchmarkClientHello(b *testing.B) {
	hello := helloOf(b, &tls.Config{ServerName: "shop.example", NextProtos: []string{"h2", "http/1.1"}})
	b.ReportAllocs()
	for b.Loop() {
		found, _ := Find(hello)
		if names := Parse(found); names.ServerName == "" {
			b.Fatal("no name")
		}
	}
}
