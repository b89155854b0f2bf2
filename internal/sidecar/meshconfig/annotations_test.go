package meshconfig

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
)

func TestAnnotationsFile(t *testing.T) {
	for _, c := range []struct {
		name, text, want, err string
	}{
		{"as the kubelet writes it", "a=\"1\"\nproxy.istio.io/config=\"proxyMetadata:\\n  X: \\\"y\\\"\\n\"\n", "proxyMetadata:\n  X: \"y\"\n", ""},
		{"no newline at the end", `proxy.istio.io/config="x: y"`, "x: y", ""},
		{"an equals sign in the value", `proxy.istio.io/config="x: a=b"`, "x: a=b", ""},
		{"nothing", "", "", ""},
		{"no equals sign", "a=\"1\"\nproxy.istio.io/config\n", "", `line 2: "proxy.istio.io/config": must be key="value", as the downward API writes annotations`},
		{"no quotes", "proxy.istio.io/config=x", "", "line 1: value of proxy.istio.io/config is x: must be a string in double quotes, with Go's escapes"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := parseAnnotations(c.text)
			if message := fmt.Sprint(err); c.err != "" && message != c.err || c.err == "" && err != nil {
				t.Errorf("error %q, want %q", message, c.err)
			}
			if got["proxy.istio.io/config"] != c.want {
				t.Errorf("got %q, want %q", got["proxy.istio.io/config"], c.want)
			}
		})
	}
}

func FuzzParseAnnotations(f *testing.F) {
	f.Add("a=\"1\"\nb=\"two\\n\"\n")
	f.Add("=\"\"")
	f.Add("a='b'")
	f.Fuzz(func(t *testing.T, text string) {
		annotations, err := parseAnnotations(text)
		if err != nil {
			return
		}
		// What was read, written as the kubelet does, is read again the same.
		var b strings.Builder
		for key, value := range annotations {
			fmt.Fprintf(&b, "%s=%s\n", key, strconv.Quote(value))
		}
		again, err := parseAnnotations(b.String())
		if err != nil {
			// A key the kubelet cannot write (it has blanks or line ends in it).
			if strings.ContainsAny(strings.Join(sortedKeys(annotations), ""), " \t\r\n\v\f\u0085\u00a0") {
				return
			}
			t.Fatalf("written again: %v", err)
		}
		if len(again) != len(annotations) {
			t.Fatalf("read %v, written and read again %v", annotations, again)
		}
	})
}
