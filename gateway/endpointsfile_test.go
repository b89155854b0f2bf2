package gateway

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestParseEndpoints(t *testing.T) {
	for _, tt := range []struct {
		name, text string
		want       []string
		err        string
	}{
		{"several", "10.0.0.1:80\n[::1]:8080\napp.example:9090\n", []string{"10.0.0.1:80", "[::1]:8080", "app.example:9090"}, ""},
		{"comments and blanks", "# pods\n\n  10.0.0.1:80  # the first\n\t\n", []string{"10.0.0.1:80"}, ""},
		{"no end of line at the end", "10.0.0.1:80", []string{"10.0.0.1:80"}, ""},
		{"as a Windows editor saves it", "\ufeff10.0.0.1:80\r\n10.0.0.2:80\r\n", []string{"10.0.0.1:80", "10.0.0.2:80"}, ""},
		{"nothing", "", nil, ""},
		{"no port", "10.0.0.1:80\n10.0.0.2\n", nil, `pods:2: endpoint "10.0.0.2": must be host:port with a port from 1 to 65535 ([host]:port for IPv6)`},
		{"no host", ":80", nil, `pods:1: endpoint ":80"`},
		{"port 0", "a:0", nil, `endpoint "a:0"`},
		{"a port too high", "a:65536", nil, `endpoint "a:65536"`},
		{"a named port", "a:http", nil, `endpoint "a:http"`},
		{"bare IPv6", "::1", nil, `endpoint "::1"`},
		{"a URL", "http://a:80", nil, `endpoint "http://a:80"`},
		{"two on a line", "a:80 b:80", nil, `endpoint "a:80 b:80"`},
		{"no text at all", "\x00\xff\x00", nil, "endpoint "},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := ParseEndpoints("pods", []byte(tt.text))
			if tt.err == "" && err != nil || tt.err != "" && (err == nil || !strings.Contains(err.Error(), tt.err)) {
				t.Errorf("error %v, want %q", err, tt.err)
			}
			if !slices.Equal(got, tt.want) {
				t.Errorf("got %v, want %v", got, tt.want)
			}
		})
	}
}

func FuzzParseEndpoints(f *testing.F) {
	f.Add([]byte("a:80\n[::1]:9 # x\n"))
	f.Add([]byte("\ufeff:\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		list, err := ParseEndpoints("pods", data)
		if err != nil {
			return
		}
		again, err := ParseEndpoints("pods", []byte(strings.Join(list, "\n")))
		if err != nil || !slices.Equal(list, again) {
			t.Errorf("%q, written and read again %q, %v", list, again, err)
		}
	})
}

// Each way in which the file can change under a gateway that serves.
func TestEndpointsFileChanges(t *testing.T) {
	const before, after = "127.0.0.1:1\n", "127.0.0.1:2\n127.0.0.1:3\n"
	const changed = `msg="endpoints changed" added="[127.0.0.1:2 127.0.0.1:3]" removed=[127.0.0.1:1] count=2`
	write := func(t *testing.T, file, text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	must := func(t *testing.T, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, tt := range []struct {
		name   string
		change func(t *testing.T, file string)
		log    []string // in this order
		want   string   // of the list in the end
	}{
		{"another one renamed to it", func(t *testing.T, file string) {
			write(t, file+".new", after)
			must(t, os.Rename(file+".new", file))
		}, []string{changed}, after},
		{"rewritten in place", func(t *testing.T, file string) {
			write(t, file, after)
		}, []string{changed}, after},
		{"rewritten in place, without an end of line", func(t *testing.T, file string) {
			write(t, file, strings.TrimSuffix(after, "\n"))
		}, []string{changed}, after},
		{"rewritten line by line", func(t *testing.T, file string) {
			f, err := os.Create(file)
			must(t, err)
			for line := range strings.Lines(after) {
				_, err := io.WriteString(f, line)
				must(t, err)
			}
			must(t, f.Close())
		}, []string{changed}, after},
		{"emptied", func(t *testing.T, file string) {
			write(t, file, "")
		}, []string{`msg="endpoints changed" added=[] removed=[127.0.0.1:1] count=0`}, ""},
		{"renamed twice at once", func(t *testing.T, file string) {
			for _, text := range []string{"127.0.0.1:9\n", after} {
				write(t, file+".new", text)
				must(t, os.Rename(file+".new", file))
			}
		}, []string{"127.0.0.1:3"}, after},
		{"wrong, and then right", func(t *testing.T, file string) {
			write(t, file, "127.0.0.1:2\nlocalhost\n")
		}, []string{`msg="invalid endpoints file; keeping the previous list"`, `pods:2: endpoint`}, before},
	} {
		t.Run(tt.name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "pods")
			write(t, file, before)
			g := start(t, setup{EndpointsFile: file})
			tt.change(t, file)
			g.log.until(t, tt.log...)
			if got := strings.Join(g.pool.Addrs(), "\n"); got != strings.TrimSuffix(tt.want, "\n") {
				t.Errorf("endpoints\n%s\nwant\n%s", got, tt.want)
			}
		})
	}

	// A mounted ConfigMap: the file is a link through ..data, which is swapped.
	t.Run("a ConfigMap's update", func(t *testing.T) {
		dir := t.TempDir()
		for name, text := range map[string]string{"..1": before, "..2": after} {
			must(t, os.Mkdir(filepath.Join(dir, name), 0o700))
			write(t, filepath.Join(dir, name, "pods"), text)
		}
		must(t, os.Symlink("..1", filepath.Join(dir, "..data")))
		must(t, os.Symlink("..data/pods", filepath.Join(dir, "pods")))
		g := start(t, setup{EndpointsFile: filepath.Join(dir, "pods")})
		must(t, os.Symlink("..2", filepath.Join(dir, "..data_tmp")))
		must(t, os.Rename(filepath.Join(dir, "..data_tmp"), filepath.Join(dir, "..data")))
		must(t, os.RemoveAll(filepath.Join(dir, "..1")))
		g.log.until(t, changed)
	})

	for _, folder := range []bool{false, true} {
		t.Run(fmt.Sprintf("removed and back, with its folder: %v", folder), func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "etc")
			file := filepath.Join(dir, "pods")
			must(t, os.Mkdir(dir, 0o700))
			write(t, file, before)
			g := start(t, setup{EndpointsFile: file})
			gone := file
			if folder {
				gone = dir
			}
			must(t, os.RemoveAll(gone))
			g.log.until(t, `msg="cannot read endpoints file; keeping the previous list"`)
			if got := g.pool.Addrs(); !slices.Equal(got, []string{"127.0.0.1:1"}) {
				t.Errorf("meanwhile %v", got)
			}
			must(t, os.MkdirAll(dir, 0o700))
			write(t, file, after)
			g.log.until(t, "endpoints file is readable again")
			g.log.until(t, changed)
			write(t, file, before) // the watch is there again
			g.log.until(t, "endpoints changed", "removed=\"[127.0.0.1:2 127.0.0.1:3]\"")
		})
	}

	t.Run("a neighbour is no matter", func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "pods")
		write(t, file, before)
		g := start(t, setup{EndpointsFile: file})
		write(t, file+".log", "a line\n")
		write(t, file, after)
		g.log.until(t, changed)
	})
}

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
	g := start(t, setup{Endpoints: []string{old}})
	c, url := g.client(t, false)
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
	if err := g.pool.Set([]string{raw(t, answers)}, HTTP1); err != nil {
		t.Fatal(err)
	}
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

// While the list changes all the time, every request has its answer, with a body
// or without.
func TestNoRequestIsLostToAChange(t *testing.T) {
	a, b := app(t, func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(w, r.Body) }), app(t, func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(w, r.Body) })
	g := start(t, setup{Endpoints: []string{a, b}})
	const clients, each = 4, 100
	failed := make(chan string, clients*each)
	ended := make(chan struct{}, clients)
	for range clients {
		c, url := g.client(t, false)
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
			if err := g.pool.Set([][]string{{a}, {a, b}, {b}}[i%3], HTTP1); err != nil {
				t.Fatal(err)
			}
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
	g := start(t, setup{Endpoints: append(addrs, addrs[0])}) // named twice, counts once
	c, url := g.client(t, false)
	var got string
	for range 9 {
		_, body := get(t, c, url)
		got += body
	}
	if got != "012012012" {
		t.Errorf("went to %s", got)
	}
}

func TestSetEndpointsRefusesAWholeWrongList(t *testing.T) {
	g := start(t, setup{Endpoints: []string{"127.0.0.1:1"}})
	if err := g.pool.Set([]string{"127.0.0.1:2", "nowhere"}, HTTP1); err == nil || !strings.Contains(err.Error(), `endpoint "nowhere"`) {
		t.Errorf("error %v", err)
	}
	if got := g.pool.Addrs(); !slices.Equal(got, []string{"127.0.0.1:1"}) {
		t.Errorf("endpoints %v", got)
	}
}
