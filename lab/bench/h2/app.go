package main

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// serveApp is the app behind the proxies: it answers each request with the same
// bytes, all that came with one read in one write. nginx sends each answer by
// itself, and then the load's core is what is measured: with 16 connections of 32
// streams it takes a third as many requests directly as this one.
func serveApp(address string) error {
	ln, err := net.Listen("tcp", address)
	if err != nil {
		return fmt.Errorf("listen for the app: %w", err)
	}
	for {
		c, err := ln.Accept()
		if err != nil {
			return fmt.Errorf("accept for the app: %w", err)
		}
		go func() {
			defer c.Close()
			_ = answer(c) // how a client leaves is of no interest
		}()
	}
}

// page is an answer whose stream is to be filled in at two places.
type page struct {
	frames []byte
	data   int // where the DATA frame begins
}

const content = `{"url": "http://localhost/get", "origin": "127.0.0.1"}` + "\n"

// newPage makes an answer with the usual fields, none of which changes a table.
func newPage() page {
	var block, frames bytes.Buffer
	encoder := hpack.NewEncoder(&block)
	for _, f := range []hpack.HeaderField{
		{Name: ":status", Value: "200"}, {Name: "server", Value: "app"},
		{Name: "content-type", Value: "application/json"}, {Name: "content-length", Value: fmt.Sprint(len(content))},
	} {
		f.Sensitive = f.Name != ":status" // not to be indexed
		_ = encoder.WriteField(f)         // into memory
	}
	framer := http2.NewFramer(&frames, nil)
	_ = framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block.Bytes(), EndHeaders: true})
	p := page{data: frames.Len()}
	_ = framer.WriteData(1, true, []byte(content))
	p.frames = frames.Bytes()
	return p
}

func (p page) of(stream []byte) []byte {
	copy(p.frames[5:], stream)
	copy(p.frames[p.data+5:], stream)
	return p.frames
}

// answer speaks HTTP/2 as far as h2load and the proxies need it. It minds no flow
// control: answers are small, and h2load's windows are a gigabyte.
func answer(c net.Conn) error {
	framer := http2.NewFramer(c, nil)
	if err := errors.Join(framer.WriteSettings(http2.Setting{ID: http2.SettingMaxConcurrentStreams, Val: 1000}), framer.WriteSettingsAck()); err != nil {
		return err
	}
	if _, err := io.ReadFull(c, make([]byte, len(http2.ClientPreface))); err != nil {
		return err
	}
	p := newPage()
	in, out, held := make([]byte, 64<<10), []byte(nil), 0
	for {
		n, err := c.Read(in[held:])
		if err != nil {
			return err
		}
		held += n
		at := 0
		for held-at >= 9 {
			end := at + 9 + int(binary.BigEndian.Uint32(in[at:])>>8)
			if end > held {
				break
			}
			kind, flags := http2.FrameType(in[at+3]), http2.Flags(in[at+4])
			switch {
			case kind == http2.FrameHeaders && flags.Has(http2.FlagHeadersEndStream):
				out = append(out, p.of(in[at+5:at+9])...)
			case kind == http2.FramePing && !flags.Has(http2.FlagPingAck):
				ping := len(out)
				out = append(out, in[at:end]...)
				out[ping+4] |= byte(http2.FlagPingAck)
			}
			at = end
		}
		held = copy(in, in[at:held])
		if len(out) > 0 {
			if _, err := c.Write(out); err != nil {
				return err
			}
			out = out[:0]
		}
	}
}
