package pipe

import (
	"io"
	"net"
	"testing"
	"time"

	"github.com/lastcall-dev/lastcall/internal/wire/postgres"
)

const (
	pgLogin    = "\x00\x00\x00\x12\x00\x03\x00\x00user\x00app\x00\x00"
	pgWelcome  = "R\x00\x00\x00\x08\x00\x00\x00\x00" + pgIdle
	pgIdle     = "Z\x00\x00\x00\x05I"
	pgWithin   = "Z\x00\x00\x00\x05T"
	pgBegin    = "Q\x00\x00\x00\x0aBEGIN\x00"
	pgCommit   = "Q\x00\x00\x00\x0bCOMMIT\x00"
	pgSSL      = "\x00\x00\x00\x08\x04\xd2\x16\x2f"
	redisGet   = "*2\r\n$3\r\nGET\r\n$1\r\nk\r\n"
	redisBLPOP = "*3\r\n$5\r\nBLPOP\r\n$1\r\nq\r\n$1\r\n0\r\n"
)

// aDatabase is a server of which the test reads and writes every byte. It has one connection at a time.
type aDatabase struct {
	net.Addr
	t    *testing.T
	next chan net.Conn
	net.Conn
}

func startDatabase(t *testing.T) *aDatabase {
	a := &aDatabase{t: t, next: make(chan net.Conn, 1)}
	a.Addr = startApp(t, func(c net.Conn) {
		a.next <- c
		<-t.Context().Done()
	})
	return a
}

// answers reads exactly the request, and sends the reply.
func (a *aDatabase) answers(request, reply string) {
	a.t.Helper()
	if a.Conn == nil {
		a.Conn = <-a.next
	}
	b := make([]byte, len(request))
	if n, err := io.ReadFull(a.Conn, b); err != nil || string(b) != request {
		a.t.Fatalf("the server received %q, %v; want %q", b[:n], err, request)
	}
	if _, err := io.WriteString(a.Conn, reply); err != nil {
		a.t.Fatal(err)
	}
}

// wantRest reads to the end of the connection.
func (a *aDatabase) wantRest(want string) {
	a.t.Helper()
	if b, err := io.ReadAll(a.Conn); err != nil || string(b) != want {
		a.t.Errorf("at its end the server received %q, %v; want %q", b, err, want)
	}
	a.Conn = nil
}

// dialDatabase logs in to a PostgreSQL.
func dialDatabase(t *testing.T, p *Pipe, app *aDatabase) *client {
	c := dialPipe(t, p, pgLogin)
	app.answers(pgLogin, pgWelcome)
	c.expect(pgWelcome)
	return c
}

// begin begins a transaction.
func (a *aDatabase) begin(c *client) {
	c.send(pgBegin)
	a.answers(pgBegin, pgWithin)
	c.expect(pgWithin)
}

func TestPostgresEndsBetweenTransactions(t *testing.T) {
	for _, protocol := range []Protocol{Auto, Postgres} {
		app := startDatabase(t)
		p := startPipe(t, app, protocol)
		c := dialDatabase(t, p, app)
		awaitActivity(t, p, 1, 0)
		app.begin(c)
		awaitActivity(t, p, 1, 1)
		if open, _ := p.Open(ctx, 10); len(open) != 1 || open[0].Protocol != "postgres" {
			t.Errorf("open: %+v", open)
		}
		if list := p.Connections(); len(list) != 1 || list[0].Protocol != "postgres" || list[0].State != StateBusy {
			t.Errorf("connections: %+v", list)
		}
		_ = p.Drain(ctx)
		_ = p.CloseIdle(ctx, 0)
		awaitActivity(t, p, 1, 1)
		c.send(pgCommit)
		app.answers(pgCommit, pgIdle)
		c.expect(pgIdle + string(postgres.AdminShutdown))
		c.wantEnd()
		app.wantRest(string(postgres.Terminate))
		if cut, _ := p.LastCall(ctx, time.Second); len(cut) > 0 {
			t.Errorf("cut: %+v", cut)
		}
	}
}

func TestPostgresIdle(t *testing.T) {
	app := startDatabase(t)
	p := startPipe(t, app, Auto)
	c := dialDatabase(t, p, app)
	awaitActivity(t, p, 1, 0)
	_ = p.Drain(ctx)
	_ = p.CloseIdle(ctx, 0)
	c.expect(string(postgres.AdminShutdown))
	c.send("X\x00\x00\x00\x04")
	c.wantEnd()
	app.wantRest(string(postgres.Terminate))
	if a, _ := p.Activity(ctx); a.Raced != 0 {
		t.Errorf("a Terminate counts as a request that met the end: %+v", a)
	}
}

// A connection that logs in while idle ones are closed has a moment for its first transaction.
func TestPostgresLogsInDuringTheDrain(t *testing.T) {
	t.Parallel()
	app := startDatabase(t)
	p := startPipe(t, app, Auto)
	_ = p.Drain(ctx)
	_ = p.CloseIdle(ctx, 0)
	c := dialDatabase(t, p, app)
	app.begin(c)
	c.send(pgCommit)
	app.answers(pgCommit, pgIdle)
	c.expect(pgIdle + string(postgres.AdminShutdown))
	c.wantEnd()

	app.wantRest(string(postgres.Terminate))
	silent := dialDatabase(t, p, app)
	silent.expect(string(postgres.AdminShutdown))
	silent.wantEnd()
}

// At the last call a transaction ends with the server's message if the server is between two, otherwise with a FIN.
func TestPostgresAtTheLastCall(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ half, rest, ending string }{
		{"", string(postgres.AdminShutdown), "57P01"},
		{"D\x00\x00\x10\x00half", "", "truncated"},
	} {
		app := startDatabase(t)
		p := startPipe(t, app, Auto)
		c := dialDatabase(t, p, app)
		app.begin(c)
		if tt.half != "" {
			app.answers("", tt.half)
			c.expect(tt.half)
		}
		cut, _ := p.LastCall(ctx, 100*time.Millisecond)
		if len(cut) != 1 || cut[0].Ending != tt.ending || cut[0].Protocol != "postgres" {
			t.Errorf("cut: %+v; want %s", cut, tt.ending)
		}
		c.expect(tt.rest)
		c.wantEnd()
		app.wantRest("")
	}
}

func TestEncryptedPostgresIsOpaque(t *testing.T) {
	app := startDatabase(t)
	p, c := startClient(t, app, Auto)
	c.send(pgSSL)
	app.answers(pgSSL, "S")
	c.expect("S")
	c.send("\x16\x03\x01hello")
	app.answers("\x16\x03\x01hello", "\x16\x03\x03hello")
	c.expect("\x16\x03\x03hello")
	c.send("more")
	app.answers("more", "more")
	c.expect("more")
	awaitActivity(t, p, 1, 1)
	if list := p.Connections(); list[0].Protocol != "tcp" {
		t.Errorf("%+v", list)
	}
	_ = p.Drain(ctx)
	_ = p.CloseIdle(ctx, 0)
	awaitActivity(t, p, 1, 1)
	_ = c.CloseWrite()
	app.wantRest("")
}

func TestRedisEndsBetweenCommands(t *testing.T) {
	for _, protocol := range []Protocol{Auto, Redis} {
		app := startDatabase(t)
		p, c := startClient(t, app, protocol)
		c.send(redisGet)
		app.answers(redisGet, "$1\r\nv\r\n")
		c.expect("$1\r\nv\r\n")
		awaitActivity(t, p, 1, 0)
		c.send(redisGet)
		awaitActivity(t, p, 1, 1)
		_ = p.Drain(ctx)
		_ = p.CloseIdle(ctx, 0)
		app.answers(redisGet, "$-1\r\n")
		c.expect("$-1\r\n")
		c.wantEnd()
		app.wantRest("")
	}
}

// At the last call a server gets a FIN first: what a blocked command has taken before it reaches the client.
func TestBlockedRedisAtTheLastCall(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ reply, ending string }{{"", "fin"}, {"*2\r\n$1\r\nq\r\n$1\r\nx\r\n", ""}} {
		app := startApp(t, func(c net.Conn) {
			_, _ = io.ReadAll(c)
			_, _ = io.WriteString(c, tt.reply)
		})
		p, c := startClient(t, app, Auto)
		c.send(redisBLPOP)
		awaitActivity(t, p, 1, 1)
		awaitProtocol(t, p, "redis")
		cut, _ := p.LastCall(ctx, time.Second)
		if tt.ending == "" && len(cut) > 0 || tt.ending != "" && (len(cut) != 1 || cut[0].Ending != tt.ending) {
			t.Errorf("cut: %+v; want %q", cut, tt.ending)
		}
		c.expect(tt.reply)
		c.wantEnd()
	}
}

// A client that ends its output gets the replies that are due.
func TestDatabaseHalfClose(t *testing.T) {
	app := startApp(t, func(c net.Conn) {
		_, _ = io.ReadAll(c)
		_, _ = io.WriteString(c, "+PONG\r\n")
	})
	p, c := startClient(t, app, Redis)
	c.send("PING\r\n")
	_ = c.CloseWrite()
	if got := c.rest(); got != "+PONG\r\n" {
		t.Errorf("%q", got)
	}
	awaitNone(t, p)
}

func TestDatabaseHasNoIdleTimeout(t *testing.T) {
	app := startDatabase(t)
	p := startPipe(t, app, Auto, func(c *Config) { c.IdleTimeout = time.Minute })
	c := dialDatabase(t, p, app)
	sinceLong(p)
	for _, one := range p.all() {
		_ = one.endOverdue()
	}
	app.begin(c)
}
