package main

import (
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/lastcall-dev/lastcall/internal/sidecar/nettest"
	"github.com/lastcall-dev/lastcall/internal/sidecar/peers"
)

// TestCaptureScripts really captures. The scripts' command pod runs another in a network namespace of its own.
func TestCaptureScripts(t *testing.T) {
	nft := peers.Need(t, "nft")
	peers.Need(t, "setpriv")
	nsenter := peers.Need(t, "nsenter")
	n := nettest.New(t)
	testscript.Run(t, testscript.Params{
		Dir: "testdata/netns",
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"pod": func(ts *testscript.TestScript, neg bool, args []string) {
				err := ts.Exec(nsenter, append([]string{"--net=" + n.Pod.Path()}, args...)...)
				if failed := err != nil; failed != neg {
					ts.Fatalf("%q: %v", args, err)
				}
			},
		},
		Setup: func(env *testscript.Env) error {
			env.Setenv("NFT", nft)
			env.Setenv("GORACE", "atexit_sleep_ms=0") // else each command takes a second to exit
			return nil
		},
	})
}
