package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// client is one connection across a drain.
type client struct {
	conn        net.Conn
	framer      *http2.Framer // HTTP/2's
	busy        bool
	announced   chan struct{} // closed at the GOAWAY or FIN, and at the end if there was none
	closed      chan struct{} // closed at the connection's end
	announcedAt time.Time     // when the GOAWAY or FIN was received
	closedAt    time.Time
	answered    bool
	err         error // instead of an orderly end
}

// recordAnnouncement records the first GOAWAY or FIN.
func (c *client) recordAnnouncement() {
	if c.announcedAt.IsZero() {
		c.announcedAt = time.Now()
		close(c.announced)
	}
}

// end notes the connection's end, and closes it as a client does that has read the FIN.
func (c *client) end() {
	c.closedAt = time.Now()
	if c.announcedAt.IsZero() {
		close(c.announced)
	}
	_ = c.conn.Close()
	close(c.closed)
}

func (c *client) path() string {
	if c.busy {
		return holdPath
	}
	return "/get"
}

// protocol is the protocol of the clients.
type protocol struct {
	title           string
	announcesToBusy bool                // a busy connection can get a GOAWAY at once
	open            func(*client) error // makes the request; an idle one's is answered then
	watch           func(*client) error // to the connection's end
}

var (
	protocol1 = protocol{title: "HTTP/1.1", open: open1, watch: watch1}
	protocol2 = protocol{title: "HTTP/2", announcesToBusy: true, open: open2, watch: watch2}
)

func open1(c *client) error {
	if !c.busy {
		return getSmall(c.conn)
	}
	_, err := fmt.Fprintf(c.conn, "GET %s HTTP/1.1\r\nHost: app\r\n\r\n", c.path())
	return err
}

func watch1(c *client) error {
	defer c.end()
	if c.busy {
		in := bufio.NewReaderSize(c.conn, 1<<10)
		response, err := http.ReadResponse(in, nil)
		if err != nil {
			return fmt.Errorf("read a response: %w", err)
		}
		if _, err := io.Copy(io.Discard, response.Body); err != nil {
			return fmt.Errorf("read a body: %w", err)
		}
		if response.StatusCode != http.StatusOK || !response.Close {
			return fmt.Errorf("response %s, close %t", response.Status, response.Close)
		}
		c.answered = true
		c.recordAnnouncement()
	}
	if _, err := c.conn.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		return fmt.Errorf("no orderly end: %w", err)
	}
	c.recordAnnouncement()
	return nil
}

func open2(c *client) error {
	var block bytes.Buffer
	encoder := hpack.NewEncoder(&block)
	for _, field := range []hpack.HeaderField{
		{Name: ":method", Value: "GET"}, {Name: ":scheme", Value: "http"},
		{Name: ":authority", Value: "app"}, {Name: ":path", Value: c.path()},
		{Name: "user-agent", Value: "bench"}, // clients without one get GOAWAY only in a pause
	} {
		if err := encoder.WriteField(field); err != nil {
			return err
		}
	}
	var first bytes.Buffer
	first.WriteString(http2.ClientPreface)
	c.framer = http2.NewFramer(&first, c.conn)
	headers := http2.HeadersFrameParam{StreamID: 1, BlockFragment: block.Bytes(), EndStream: true, EndHeaders: true}
	if err := errors.Join(c.framer.WriteSettings(), c.framer.WriteHeaders(headers)); err != nil {
		return err
	}
	if _, err := c.conn.Write(first.Bytes()); err != nil {
		return err
	}
	c.framer = http2.NewFramer(c.conn, c.conn)
	c.framer.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	if c.busy {
		return nil
	}
	for !c.answered {
		if err := c.frame(); err != nil {
			return err
		}
	}
	if !c.announcedAt.IsZero() {
		return errors.New("a GOAWAY before the drain")
	}
	return nil
}

func watch2(c *client) error {
	defer c.end()
	for {
		switch err := c.frame(); {
		case errors.Is(err, io.EOF) && c.answered && !c.announcedAt.IsZero():
			return nil
		case err != nil:
			return fmt.Errorf("answered %t: %w", c.answered, err)
		}
	}
}

// frame reads one, and follows it.
func (c *client) frame() error {
	frame, err := c.framer.ReadFrame()
	if err != nil {
		return err
	}
	switch f := frame.(type) {
	case *http2.SettingsFrame:
		if !f.IsAck() {
			return c.framer.WriteSettingsAck()
		}
	case *http2.PingFrame:
		if !f.IsAck() {
			return c.framer.WritePing(true, f.Data)
		}
	case *http2.GoAwayFrame:
		c.recordAnnouncement()
	case *http2.RSTStreamFrame:
		return fmt.Errorf("stream reset: %s", f.ErrCode)
	case *http2.MetaHeadersFrame:
		if status := f.PseudoValue("status"); status != "200" {
			return fmt.Errorf("status %s", status)
		}
		c.answered = c.answered || f.StreamEnded()
	case *http2.DataFrame:
		c.answered = c.answered || f.StreamEnded()
	}
	return nil
}

// judge sums up the clients' results. A request is lost if its answer did not come whole. A connection is cut if it
// ends without a FIN, in HTTP/2 without a GOAWAY, before it has a request or after the answer.
func (p protocol) judge(clients []*client, signalled, ended time.Time) values {
	v := values{lost: 0, lostOf: 0, cutConnections: 0}
	var announced []time.Duration
	var last time.Time
	for _, c := range clients {
		if c.err != nil && (!c.busy || c.answered) {
			v[cutConnections]++
		}
		if c.busy {
			v[lostOf]++
		}
		if last.Before(c.closedAt) {
			last = c.closedAt
		}
		if c.busy && !c.answered {
			v[lost]++
		}
		if (p.announcesToBusy || !c.busy) && !c.announcedAt.IsZero() {
			announced = append(announced, c.announcedAt.Sub(signalled))
		}
	}
	if len(announced) > 0 {
		v[allAnnounced] = slices.Max(announced).Seconds()
	}
	v[exitAfter] = ended.Sub(last).Seconds()
	return v
}
