package architecture

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// limits are the largest numbers of lines of product code, which may only be lowered. A folder that is too large to
// read in one sitting is split by what it does, not by its length.
var limits = map[string]int{
	".":                     39700, // the library and the sidecar; the aim is 33,000. 800 of them follow databases, 850 workers
	"internal/sidecar/pipe": 6590,
}

// support has the packages that only tests import.
var support = []string{"drain/draintest", "drain/planetest", "internal/sidecar/architecture", "internal/leak", "internal/poll/polltest", "internal/sidecar/loadtest",
	"internal/sidecar/logs/logstest", "internal/sidecar/nettest", "internal/sidecar/peers", "internal/sidecar/programtest", "internal/sidecar/certificate/certificatetest",
	"internal/sidecar/cli/clitest", "internal/wire/stormtest", "internal/wire/http1/http1test", "internal/wire/http2/http2test",
	"internal/wire/ws/wstest"}

func TestSizes(t *testing.T) {
	lines := map[string]int{}
	for _, p := range list(t, ours...) {
		folder := strings.TrimPrefix(strings.TrimPrefix(p.ImportPath, strings.TrimSuffix(module, "/")), "/")
		if slices.Contains(support, folder) {
			continue
		}
		files, err := filepath.Glob(filepath.Join("../../..", folder, "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			n := bytes.Count(text, []byte("\n"))
			lines["."] += n
			lines[folder] += n
		}
	}
	for folder, limit := range limits {
		if lines[folder] == 0 || lines[folder] > limit {
			t.Errorf("%s has %d lines of product code; the limit is %d", folder, lines[folder], limit)
		}
	}
	t.Logf("the library and the sidecar have %d lines of product code, internal/sidecar/pipe %d", lines["."], lines["internal/sidecar/pipe"])
}
