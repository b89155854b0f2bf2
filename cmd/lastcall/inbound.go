package main

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"

	"github.com/lastcall-dev/lastcall/internal/sidecar/cli"
	"github.com/lastcall-dev/lastcall/internal/sidecar/freeport"
	"github.com/lastcall-dev/lastcall/internal/sidecar/pipe"
	"github.com/lastcall-dev/lastcall/internal/sidecar/tlsserver"
)

// parseInbound parses LISTEN=APP and its options, each after a comma:
//
//	protocol=NAME, one of pipe.Protocols
//	name=NAME
//	max-connections=N
//	tls-cert=FILE and tls-key=FILE, with tls-client-ca=FILE, tls-alpn=h2+http/1.1, tls-min-version=1.2|1.3
func parseInbound(s string) (pipe.Inbound, error) {
	in, err := parseListener(s)
	if err != nil {
		return pipe.Inbound{}, fmt.Errorf("inbound %q: %w; must be LISTEN=APP[,protocol=%s]"+
			"[,name=NAME][,max-connections=N][,tls-cert=FILE,tls-key=FILE[,tls-client-ca=FILE][,tls-alpn=h2+http/1.1]"+
			"[,tls-min-version=1.2|1.3]], for example 127.0.0.1:15006=127.0.0.1:8080,protocol=http",
			s, err, protocolChoice)
	}
	return in, nil
}

func parseListener(s string) (in pipe.Inbound, err error) {
	addresses, options, _ := strings.Cut(s, ",")
	listen, app, found := strings.Cut(addresses, "=")
	if !found {
		return in, errors.New("missing =")
	}
	in.Listen, in.App = listen, app
	for _, address := range []string{listen, app} {
		if _, _, err := net.SplitHostPort(address); err != nil {
			return in, err
		}
	}
	if reaches(app, listen) {
		return in, errors.New("the app's address is the listener itself: connections would loop")
	}
	for option := range strings.SplitSeq(options, ",") {
		if option == "" {
			continue
		}
		name, value, _ := strings.Cut(option, "=")
		switch name {
		case "protocol":
			in.Protocol, err = parseProtocol(value)
		case "name":
			in.Name, err = value, checkName(value)
		case "max-connections":
			in.MaxConnections, err = maxConnections(value)
		default:
			in.TLS = cmp.Or(in.TLS, new(tlsserver.Options))
			err = parseTLS(in.TLS, name, value)
		}
		if err != nil {
			return in, err
		}
	}
	if in.TLS != nil {
		err = in.TLS.Check()
	}
	return in, err
}

// reaches reports whether a connection to the app's address arrives at the listener.
func reaches(app, listen string) bool {
	to, port, _ := net.SplitHostPort(app)
	at, own, _ := net.SplitHostPort(listen)
	toIP, atIP := net.ParseIP(to), net.ParseIP(at)
	if to == "" || to == "localhost" || toIP.IsUnspecified() { // connect(2) takes this machine's loopback address
		toIP = net.IPv4(127, 0, 0, 1)
	}
	everywhere := at == "" || atIP.IsUnspecified()
	return port == own && port != "0" && (everywhere && toIP.IsLoopback() || at == to || atIP != nil && atIP.Equal(toIP))
}

var protocolChoice = strings.Join(pipe.Protocols, "|")

// parseProtocol parses a name of pipe.Protocols.
func parseProtocol(s string) (pipe.Protocol, error) {
	i := slices.Index(pipe.Protocols, s)
	if i < 0 {
		return pipe.Auto, fmt.Errorf("protocol %q: must be %s", s, cli.Or(pipe.Protocols))
	}
	return pipe.Protocol(i), nil
}

// maxConnections parses a number; 0 is no limit.
func maxConnections(s string) (int, error) {
	n, err := strconv.Atoi(s)
	switch {
	case err != nil || n < 0:
		return 0, fmt.Errorf("max-connections %q: must be 1 or more, or 0 for no limit", s)
	case n == 0:
		return pipe.NoLimit, nil
	}
	return n, nil
}

// checkName allows names that are one word in a statistic's name, a URL and a log.
func checkName(s string) error {
	word := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '_' || r == '-'
	}
	if s == "" || len(s) > 60 || strings.ContainsFunc(s, func(r rune) bool { return !word(r) }) {
		return fmt.Errorf("name %q: must be 1 to 60 letters, digits, _ or -", s)
	}
	return nil
}

func parseTLS(o *tlsserver.Options, name, value string) (err error) {
	switch name {
	case "tls-cert":
		o.Cert = value
	case "tls-key":
		o.Key = value
	case "tls-client-ca":
		if o.ClientCA = value; value == "" {
			err = errors.New("tls-client-ca is empty: clients would need no certificate")
		}
	case "tls-alpn":
		o.ALPN, err = parseALPN(value)
	case "tls-min-version":
		o.MinVersion, err = tlsVersion(value)
	default:
		return fmt.Errorf("unknown option %q", name)
	}
	return err
}

// parseALPN parses protocols joined by a plus, "h2+http/1.1".
func parseALPN(s string) ([]string, error) {
	list := strings.Split(s, "+")
	for i, p := range list {
		if p != "h2" && p != "http/1.1" || slices.Contains(list[:i], p) {
			return nil, fmt.Errorf("tls-alpn %q: must be h2, http/1.1 or both joined by +, the preferred first", s)
		}
	}
	return list, nil
}

func tlsVersion(s string) (uint16, error) {
	switch s {
	case "1.2":
		return tls.VersionTLS12, nil
	case "1.3":
		return tls.VersionTLS13, nil
	}
	return 0, fmt.Errorf("tls-min-version %q: must be 1.2 or 1.3", s)
}

// freePort replaces port 0 with a free one, which stays reserved for the app.
func freePort(address string) (string, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil || port != "0" {
		return address, nil
	}
	free, _, err := freeport.Reserve(host)
	return net.JoinHostPort(host, strconv.Itoa(free)), err
}
