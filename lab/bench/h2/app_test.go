package main

import (
	"io"
	"net"
	"net/http"
	"sync"
	"testing"
)

// The app is no full server, but what a client of HTTP/2 asks is answered.
func TestAppAnswers(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	go func() {
		if c, err := ln.Accept(); err == nil {
			defer c.Close()
			_ = answer(c)
		}
	}()
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	transport := &http.Transport{Protocols: protocols, MaxConnsPerHost: 1}
	defer transport.CloseIdleConnections()
	var all sync.WaitGroup
	for range 50 {
		all.Go(func() {
			resp, err := (&http.Client{Transport: transport}).Get("http://" + ln.Addr().String() + "/get")
			if err != nil {
				t.Error(err)
				return
			}
			defer resp.Body.Close()
			if b, err := io.ReadAll(resp.Body); err != nil || string(b) != content || resp.ProtoMajor != 2 {
				t.Errorf("%s %q, %v", resp.Proto, b, err)
			}
		})
	}
	all.Wait()
}
