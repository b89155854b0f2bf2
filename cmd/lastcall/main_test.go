package main

import (
	"net"
	"os"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"lastcall": main, "hotapp": hotAppMain, "stopapp": stopAppMain})
}

func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script",
		Setup: func(env *testscript.Env) error {
			for _, name := range []string{"LISTEN", "STATUS", "ADMIN", "OTHER"} {
				address, err := freePort("127.0.0.1:0") // which no outgoing connection takes meanwhile
				if err != nil {
					return err
				}
				_, port, _ := net.SplitHostPort(address)
				env.Setenv(name, port)
			}
			env.Setenv("HOME", os.TempDir())
			env.Setenv("GORACE", "atexit_sleep_ms=0") // else each command takes a second to exit
			return nil
		},
	})
}
