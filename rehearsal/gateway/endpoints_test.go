package gateway

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
)

// A removed endpoint completes its requests in flight, its idle connections are closed, and it gets no new requests.
func TestRemovedEndpoint(t *testing.T) {
	arrived, more := make(chan struct{}, 1), make(chan struct{})
	ended := make(chan string, 8)
	old := raw(t, func(_ int, c net.Conn, r *bufio.Reader) {
		for {
			req, err := readRequest(r)
			if err != nil {
				ended <- fmt.Sprint("old: ", err)
				return
			}
			if req.URL.Path == "/slow" {
				arrived <- struct{}{}
				<-more
			}
			_, _ = io.WriteString(c, ok)
		}
	})
	g := start(t, old)
	c, url := g.client(t)
	slow := make(chan string, 1)
	go func() {
		resp, err := c.Get(url + "/slow")
		if err != nil {
			slow <- err.Error()
			return
		}
		body, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		slow <- fmt.Sprint(resp.Status, string(body), err)
	}()
	within(t, "slow request", arrived)
	if resp, _ := get(t, c, url+"/fast"); resp.StatusCode != 200 { // leaves an idle connection
		t.Fatal(resp.Status)
	}
	g.SetEndpoints([]string{raw(t, answers)})
	if got := within(t, "end of the idle connection", ended); got != "old: EOF" {
		t.Error(got)
	}
	for range 4 {
		if resp, _ := get(t, c, url+"/fast"); resp.StatusCode != 200 {
			t.Error(resp.Status)
		}
	}
	close(more)
	if got := within(t, "slow response", slow); got != "200 OKok<nil>" {
		t.Error(got)
	}
	if got := within(t, "end of the connection that was in flight", ended); got != "old: EOF" {
		t.Error(got)
	}
	if len(ended) > 0 {
		t.Error("more connections went to the removed endpoint")
	}
}

// While the list changes all the time, every request gets its response, with a body or without.
func TestNoRequestIsLostToAChange(t *testing.T) {
	echo := func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(w, r.Body) }
	a, b := app(t, echo), app(t, echo)
	g := start(t, a, b)
	const clients, each = 4, 100
	failed := make(chan string, clients*each)
	ended := make(chan struct{}, clients)
	for range clients {
		c, url := g.client(t)
		go func() {
			defer func() { ended <- struct{}{} }()
			for i := range each {
				body := strings.Repeat("b", i%2*i)
				resp, err := c.Post(url, "text/plain", strings.NewReader(body))
				if err != nil {
					failed <- err.Error()
					continue
				}
				got, err := io.ReadAll(resp.Body)
				_ = resp.Body.Close()
				if resp.StatusCode != 200 || string(got) != body || err != nil {
					failed <- fmt.Sprint(resp.Status, string(got), err)
				}
			}
		}()
	}
	for i, left := 0, clients; left > 0; i++ {
		select {
		case <-ended:
			left--
		case <-g.access: // with each request
			g.SetEndpoints([][]string{{a}, {a, b}, {b}}[i%3])
		}
	}
	close(failed)
	for f := range failed {
		t.Error(f)
	}
}

func TestRoundRobin(t *testing.T) {
	var addrs []string
	for i := range 3 {
		addrs = append(addrs, app(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprint(w, i) }))
	}
	g := start(t, append(addrs, addrs[0])...) // named twice, counts once
	c, url := g.client(t)
	var got string
	for range 9 {
		_, body := get(t, c, url)
		got += body
	}
	if got != "012012012" {
		t.Errorf("went to %s", got)
	}
}
