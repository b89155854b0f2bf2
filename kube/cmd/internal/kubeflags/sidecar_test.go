package kubeflags

import "testing"

func TestReleasedImage(t *testing.T) {
	for version, want := range map[string]string{
		"v0.1.0": "ghcr.io/lastcall-dev/lastcall:v0.1.0", "v0.1.0-3-g0123456": "", "v0.0.0-20261124000000-0123456789ab": "", "devel": "", "(devel)": "",
	} {
		if got := ReleasedImage(version); got != want {
			t.Errorf("%s: %q, want %q", version, got, want)
		}
	}
}
