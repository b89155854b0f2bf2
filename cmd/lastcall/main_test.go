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
				ln, err := net.Listen("tcp", "127.0.0.1:0")
				if err != nil {
					return err
				}
				_, port, _ := net.SplitHostPort(ln.Addr().String())
				env.Setenv(name, port)
				if err := ln.Close(); err != nil {
					return err
				}
			}
			env.Setenv("HOME", os.TempDir())
			env.Setenv("GORACE", "atexit_sleep_ms=0") // else each command takes a second to exit
			return nil
		},
	})
}
