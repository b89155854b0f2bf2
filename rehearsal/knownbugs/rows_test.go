package knownbugs

import (
	"syscall"
	"time"

	"github.com/lastcall-dev/lastcall/rehearsal/strategy"
)

// Row is one stack with a bug, and its fixed twin.
type Row struct {
	Name  string
	Needs string // the program, found by PATH, or a file; empty: none
	Bug   string // what loses requests
	Fix   string // the line that repairs it
	Buggy Setup
	Fixed Setup

	Requests []string // load.RequestSyntax; empty: slow and fast ones

	LastcallLoses bool // lastcall cannot repair it
}

// Setup is how a stack is started and stopped. In Command, {apps} is the folder of testdata/apps, and {stacks} that of
// lab/peers/stacks/install.
type Setup struct {
	Command string
	Env     []string
	Hook    *strategy.Hook
	Signal  syscall.Signal
	Grace   time.Duration // zero: strategy.DefaultGrace
}

// Sleep is the preStop sleep of fixed twins: longer than the propagation delay.
const Sleep = 3 * time.Second

// with returns a setup with a preStop sleep and more variables.
func (s Setup) with(env ...string) Setup {
	s.Hook = &strategy.Hook{Sleep: Sleep}
	s.Env = append(append([]string{}, s.Env...), env...)
	return s
}

// postgresQuery is a conversation of PostgreSQL's protocol 3.0: startup, query, terminate.
const postgresQuery = `TCP "\x00\x00\x00$\x00\x03\x00\x00user\x00app\x00database\x00postgres\x00\x00Q\x00\x00\x00\x19select pg_sleep(1.5)\x00X\x00\x00\x00\x04"`

// Rows returns all servers.
func Rows() []Row {
	const (
		cuts          = "exits at SIGTERM with requests in flight"
		ignoresSignal = "ignores SIGTERM, as each PID 1 without a handler does: it serves kept connections until SIGKILL"
		refuses       = "finishes its requests, but closes its listener while clients still have the endpoint"
		sleep         = "preStop: {sleep: {seconds: 3}}"
		close         = "at SIGTERM server.close(), and Connection: close on each response; " + sleep
	)
	node := Setup{Command: "node {apps}/node.js"}
	closes := node.with("ON_TERM=close")
	framework := func(name string) Setup {
		return Setup{Command: node.Command, Env: []string{"FRAMEWORK=" + name}}
	}
	with := func(s Setup, change func(*Setup)) Setup { change(&s); return s }
	untilKill := func(s Setup) Setup { s.Grace = 10 * time.Second; return s } // SIGKILL comes at its end
	python := Setup{Command: "python3 {apps}/short.py"}
	gunicorn := func(seconds string) Setup {
		return Setup{Command: "gunicorn --chdir {apps} -k gthread --threads 8 --graceful-timeout " + seconds + " -b 127.0.0.1:{port} wsgi:app"}
	}
	uvicorn := Setup{Command: "uvicorn --app-dir {apps} --port {port} asgi:app"}
	hypercorn := Setup{Command: "env PYTHONPATH={apps} hypercorn -b 127.0.0.1:{port} --graceful-timeout 10 asgi:app"}
	waitress := Setup{Command: "env PYTHONPATH={apps} waitress-serve --listen 127.0.0.1:{port} wsgi:app"}
	aiohttp := Setup{Command: "python {apps}/aio.py"}
	java := Setup{Command: "java -XX:TieredStopAtLevel=1 {apps}/Server.java"}
	nginx := Setup{Command: "sh {apps}/nginx.sh {apps} {port}"}
	haproxy := Setup{Command: "haproxy -db -f {apps}/haproxy.cfg"}
	jvm := func(stack, app string) Setup {
		return Setup{Command: "java -XX:TieredStopAtLevel=1 -cp '{stacks}/" + stack + "/*' {apps}/" + app}
	}
	tomcat := jvm("tomcat", "Tomcat.java {apps}")
	jetty := jvm("jetty", "Jetty.java")
	spring := jvm("spring", "Spring.java --server.port={port}")
	puma := Setup{Command: "puma -b tcp://127.0.0.1:{port} {apps}/puma.ru"}
	php := Setup{Command: "sh {apps}/php.sh {apps} {port}"}
	caddy := Setup{Command: "sh {apps}/caddy.sh {apps} {port}"}
	tokens := func(options string) Setup { return Setup{Command: uvicorn.Command + options} }
	redis := Setup{Command: "redis-server --port {port} --bind 127.0.0.1 --save ''"}
	redisRequests := []string{`TCP "BLPOP none 1.5\r\nQUIT\r\n"`, `4 TCP "PING\r\nQUIT\r\n"`}
	postgres := Setup{Command: "sh {apps}/postgres.sh {apps} {port}"}
	goServer := Setup{Command: "lastcallctl httpbin --listen 127.0.0.1:{port} --max-delay 10s --on-term exit"}
	goRequests := []string{"GET /delay/1.5", "4 GET /get"}
	next := Setup{Command: "node {stacks}/next/node_modules/next/dist/bin/next start {stacks}/next -H 127.0.0.1 -p {port}", Env: []string{"NEXT_TELEMETRY_DISABLED=1"}}
	grpcGo := func(onTerm string) Setup { return Setup{Command: "grpc-go", Env: []string{"ON_TERM=" + onTerm}} }
	grpcGoRequests := []string{"GRPC grpc.testing.TestService/UnaryCall", "4 GRPC grpc.testing.TestService/EmptyCall"}
	grpcJava := jvm("grpc", "Grpc.java")
	grpcJavaRequests := []string{`GRPC grpc.testing.SimpleService/UnaryRpc -d '{"requestMessage": "slow"}'`, "4 GRPC grpc.testing.SimpleService/UnaryRpc"}

	return []Row{
		{Name: "node", Needs: "node", Bug: ignoresSignal, Fix: close, Buggy: untilKill(node), Fixed: closes},
		{Name: "node-close", Needs: "node", Bug: refuses, Fix: sleep, Buggy: with(node, func(s *Setup) { s.Env = []string{"ON_TERM=close"} }), Fixed: closes},
		{Name: "node-hurry", Needs: "node", Bug: "closes its listener, but calls process.exit before the last response", Fix: "remove process.exit; " + sleep,
			Buggy: with(node, func(s *Setup) { s.Env = []string{"ON_TERM=hurry"} }), Fixed: closes},
		{Name: "node-503", Needs: "node", Bug: "answers 503 after SIGTERM, while clients still have the endpoint", Fix: "serve until the endpoint is gone; " + sleep,
			Buggy: with(node, func(s *Setup) { s.Env = []string{"ON_TERM=refuse"} }), Fixed: closes},
		{Name: "short-grace", Needs: "node", Bug: "a preStop sleep as long as the grace period leaves 2 s until SIGKILL", Fix: "terminationGracePeriodSeconds: 30",
			Buggy: with(closes, func(s *Setup) { s.Grace = 3 * time.Second }), Fixed: closes, Requests: []string{"GET /slow", "GET /fast"}, LastcallLoses: true},
		{Name: "hook-fails", Needs: "node", Bug: "the preStop hook's program is not in the image: the hook fails, and SIGTERM comes at once", Fix: sleep,
			Buggy: with(closes, func(s *Setup) { s.Hook = &strategy.Hook{Exec: []string{"/bin/no-such-sleep", "3"}} }), Fixed: closes},
		{Name: "event-stream", Needs: "node", Bug: "event streams end within a chunk", Fix: "end each stream at SIGTERM", Buggy: untilKill(node), Fixed: closes, Requests: []string{"SSE /events", "GET /fast"}},
		{Name: "websocket", Needs: "node", Bug: "WebSockets end without a close frame", Fix: "send a close frame 1001 at SIGTERM", Buggy: untilKill(node), Fixed: closes, Requests: []string{"WS /chat -d hello", "GET /fast"}},
		{Name: "express", Needs: "node", Bug: ignoresSignal, Fix: close, Buggy: untilKill(framework("express")), Fixed: framework("express").with("ON_TERM=close")},
		{Name: "fastify", Needs: "node", Bug: ignoresSignal, Fix: close, Buggy: untilKill(framework("fastify")), Fixed: framework("fastify").with("ON_TERM=close")},
		{Name: "http.server", Needs: "python3", Bug: "its handler exits at once; HTTP/1.0 without a length: its client takes a part for the whole", Fix: "send Content-Length, call shutdown at SIGTERM; " + sleep,
			Buggy: with(python, func(s *Setup) { s.Env = []string{"EXIT=1"} }), Fixed: python.with("LENGTH=1", "FINISH=1")},
		{Name: "gunicorn", Needs: "gunicorn", Bug: "a graceful timeout that is shorter than its requests", Fix: "--graceful-timeout 30, the default; " + sleep, Buggy: gunicorn("1"), Fixed: gunicorn("30").with()},
		{Name: "uvicorn", Needs: "uvicorn", Bug: refuses, Fix: sleep, Buggy: uvicorn, Fixed: uvicorn.with()},
		{Name: "hypercorn", Needs: "hypercorn", Bug: "closes its listener, and connections with requests in flight", Fix: "--graceful-timeout 10; " + sleep,
			Buggy: with(hypercorn, func(s *Setup) { s.Command = "env PYTHONPATH={apps} hypercorn -b 127.0.0.1:{port} asgi:app" }), Fixed: hypercorn.with()},
		{Name: "waitress", Needs: "waitress-serve", Bug: ignoresSignal, Fix: "lastcall, or another server: waitress has no graceful stop", Buggy: untilKill(waitress), Fixed: Setup{}},
		{Name: "aiohttp", Needs: "python", Bug: refuses, Fix: sleep, Buggy: aiohttp, Fixed: aiohttp.with()},
		{Name: "java", Needs: "java", Bug: cuts, Fix: "Runtime.getRuntime().addShutdownHook(… server.stop(10)), and Connection: close on each response; " + sleep, Buggy: java, Fixed: java.with("FINISH=1")},
		{Name: "tomcat", Needs: "{stacks}/tomcat", Bug: "waits 2 s for its requests, which take 3 s; kept connections are closed with requests on them", Fix: `Context unloadDelay="20000", Connector maxKeepAliveRequests="1"; ` + sleep,
			Buggy: tomcat, Fixed: tomcat.with("UNLOAD_DELAY=20000", "KEEP_ALIVE=1")},
		{Name: "jetty", Needs: "{stacks}/jetty", Bug: "without a stop time-out it cuts requests at SIGTERM", Fix: "GracefulHandler, server.setStopTimeout(20000), setPersistentConnectionsEnabled(false); " + sleep,
			Buggy: jetty, Fixed: jetty.with("FINISH=1")},
		{Name: "spring-boot", Needs: "{stacks}/spring", Bug: refuses + ", and cuts kept connections", Fix: "server.tomcat.max-keep-alive-requests: 1; " + sleep,
			Buggy: spring, Fixed: spring.with("SERVER_TOMCAT_MAX_KEEP_ALIVE_REQUESTS=1")},
		{Name: "puma", Needs: "puma", Bug: refuses, Fix: "Connection: close on each response; " + sleep, Buggy: puma, Fixed: puma.with("FINISH=1")},
		{Name: "php-fpm", Needs: "php-fpm", Bug: "SIGTERM is the fast shutdown of PHP-FPM and of nginx", Fix: "stopSignal: SIGQUIT, PHP-FPM's process_control_timeout = 20; " + sleep,
			Buggy: php, Fixed: php.with("SIGNAL=QUIT", "WAIT=20")},
		{Name: "caddy", Needs: "caddy", Bug: refuses, Fix: sleep, Buggy: caddy, Fixed: caddy.with()},
		{Name: "token-stream", Needs: "uvicorn", Bug: "a graceful timeout that is shorter than its streams of tokens", Fix: "remove --timeout-graceful-shutdown; " + sleep,
			Buggy: tokens(" --timeout-graceful-shutdown 1"), Fixed: tokens("").with(), Requests: []string{"GET /tokens", "4 GET /fast"}},
		{Name: "redis", Needs: "redis-server", Bug: "closes all connections at SIGTERM: commands without an answer", Fix: "preStop: {sleep: {seconds: 4}}, the propagation and the longest command",
			Buggy: redis, Fixed: with(redis, func(s *Setup) { s.Hook = &strategy.Hook{Sleep: Sleep + time.Second} }), Requests: redisRequests},
		{Name: "postgresql", Needs: "initdb", Bug: "the image's stop signal SIGINT aborts queries", Fix: "stopSignal: SIGTERM, which waits for clients; " + sleep,
			Buggy: with(postgres, func(s *Setup) { s.Signal = syscall.SIGINT }), Fixed: postgres.with(), Requests: []string{postgresQuery}},
		{Name: "nginx", Needs: "nginx", Bug: "SIGTERM is nginx's fast shutdown", Fix: "stopSignal: SIGQUIT; " + sleep,
			Buggy: nginx, Fixed: with(nginx.with(), func(s *Setup) { s.Signal = syscall.SIGQUIT })},
		{Name: "haproxy", Needs: "haproxy", Bug: "PID 1 gets no SIGTERM without -W, HAProxy's hard stop: it serves kept connections until SIGKILL", Fix: "stopSignal: SIGUSR1; " + sleep,
			Buggy: untilKill(haproxy), Fixed: with(haproxy.with(), func(s *Setup) { s.Signal = syscall.SIGUSR1 })},
		{Name: "go", Bug: "a Go server without a signal handler exits at SIGTERM", Fix: "http.Server.Shutdown at SIGTERM; " + sleep,
			Buggy: goServer, Fixed: Setup{Command: "lastcallctl httpbin --listen 127.0.0.1:{port} --max-delay 10s --on-term drain"}.with(), Requests: goRequests},
		{Name: "grpc-go", Needs: "grpc-go", Bug: "calls Stop at SIGTERM, which ends calls in flight", Fix: "GracefulStop in place of Stop; " + sleep,
			Buggy: grpcGo("stop"), Fixed: grpcGo("close").with(), Requests: grpcGoRequests},
		{Name: "grpc-go-close", Needs: "grpc-go", Bug: "GracefulStop at SIGTERM closes its listener while clients still have the endpoint", Fix: "lastcall.Run(ctx, grpcdrain.New(newServer, …)), without a hook",
			Buggy: grpcGo("close"), Fixed: grpcGo("drain"), Requests: grpcGoRequests},
		{Name: "grpc-java", Needs: "{stacks}/grpc", Bug: "exits at SIGTERM with calls in flight", Fix: "a shutdown hook with server.shutdown().awaitTermination(20, SECONDS); " + sleep,
			Buggy: grpcJava, Fixed: grpcJava.with("FINISH=1"), Requests: grpcJavaRequests},
		{Name: "next", Needs: "{stacks}/next", Bug: "closes its listener while clients still have the endpoint; kept connections that are busy hold it until SIGKILL", Fix: "Connection: close on each response; " + sleep,
			Buggy: next, Fixed: next.with("CLOSE=1"), Requests: []string{"GET /slow", "20 GET /fast"}},
	}
}
