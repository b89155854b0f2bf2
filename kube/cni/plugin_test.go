package cni

import (
	"encoding/json"
	"testing"
)

// Whatever the runtime writes, the plugin reads it or reports an error.
func FuzzConfiguration(f *testing.F) {
	f.Add([]byte(`{"cniVersion":"1.0.0","name":"n","type":"lastcall-cni","runtimeConfig":{"io.kubernetes.cri.pod-annotations":{"lastcall.dev/cni":"15000,15020"}},"prevResult":{"cniVersion":"1.0.0","ips":[{"address":"10.0.0.1/8"}]}}`))
	f.Add([]byte(`{"cniVersion":"0.3.1","runtimeConfig":null,"prevResult":{}}`))
	f.Add([]byte(`{"prevResult":{"ips":[{}]}}`))
	f.Fuzz(func(t *testing.T, stdin []byte) {
		c, err := parse(stdin)
		if err != nil {
			return
		}
		if c.PrevResult == nil || !json.Valid(stdin) {
			t.Fatalf("%q was accepted", stdin)
		}
		if rules, isMarked, err := rulesOf(c.Runtime.Annotations); err == nil && isMarked && (len(rules.UIDs) == 0 || len(rules.OwnPorts) == 0) {
			t.Fatalf("%q: %+v", stdin, rules)
		}
	})
}
