package capture

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

// The valid values of the settings.
const (
	acceptsPort   = "a port, 1 to 65535"
	acceptsPorts  = "ports, 1 to 65535, separated by commas"
	acceptsRanges = "ranges of addresses such as 10.0.0.0/8 or fd00::/8, separated by commas"
	acceptsIDs    = "numbers of users or groups, 0 to 4294967294, at least one, separated by commas"
	acceptsNames  = "names of interfaces, up to 15 letters each and no wildcard, separated by commas"
	acceptsMode   = "REDIRECT, or NONE to capture nothing (there is no TPROXY here)"
)

// wrong is the error for invalid values.
func wrong(accepts string, items ...string) error {
	var quoted []string
	for _, item := range items {
		quoted = append(quoted, strconv.Quote(brief(item)))
	}
	return fmt.Errorf("%s: must be %s", strings.Join(quoted, ", "), accepts)
}

// brief is the beginning of a long value.
func brief(s string) string {
	const shown = 80
	if len(s) <= shown {
		return s
	}
	return strings.ToValidUTF8(s[:shown], "") + "…"
}

// list parses the items between commas, and reports all invalid ones. Blanks and empty items, which templates leave,
// are skipped.
func list[T any](text, accepts string, one func(string) (T, error)) ([]T, error) {
	var out []T
	var bad []string
	for item := range strings.SplitSeq(text, ",") {
		if item = strings.TrimSpace(item); item == "" {
			continue
		}
		if v, err := one(item); err != nil {
			bad = append(bad, item)
		} else {
			out = append(out, v)
		}
	}
	if len(bad) > 0 {
		return nil, wrong(accepts, bad...)
	}
	return out, nil
}

func port(text string) (uint16, error) {
	n, err := strconv.ParseUint(text, 10, 16)
	if err == nil && n == 0 {
		err = strconv.ErrRange
	}
	return uint16(n), err
}

func ports(text string) ([]uint16, error) { return list(text, acceptsPorts, port) }

// prefix also accepts a single address, for which Istio needs a /32.
func prefix(text string) (netip.Prefix, error) {
	if !strings.Contains(text, "/") {
		address, err := netip.ParseAddr(text)
		if err != nil {
			return netip.Prefix{}, err
		}
		if address.Zone() != "" || address.Is4In6() {
			return netip.Prefix{}, strconv.ErrSyntax
		}
		return address.Prefix(address.BitLen())
	}
	p, err := netip.ParsePrefix(text)
	if err == nil && p.Addr().Is4In6() {
		err = strconv.ErrSyntax // no packet has such an address: IPv4 was meant
	}
	return p.Masked(), err
}

func ranges(text string) ([]netip.Prefix, error) { return list(text, acceptsRanges, prefix) }

// some parses a list, or * for all values.
func some[T any](accepts string, one func(string) (T, error)) func(string) (Some[T], error) {
	return func(text string) (Some[T], error) {
		if strings.TrimSpace(text) == "*" {
			return Some[T]{All: true}, nil
		}
		values, err := list(text, "*, or "+accepts, one)
		return Some[T]{List: values}, err
	}
}

// ids are never empty: without the proxy's user, its own connections would be captured again, without end.
func ids(text string) ([]uint32, error) {
	some, err := list(text, acceptsIDs, func(item string) (uint32, error) {
		n, err := strconv.ParseUint(item, 10, 32)
		if err == nil && uint32(n) == ^uint32(0) {
			err = strconv.ErrRange // (uid_t)-1 means no user
		}
		return uint32(n), err
	})
	if err == nil && len(some) == 0 {
		err = wrong(acceptsIDs, text)
	}
	return some, err
}

// interfaces have names of up to IFNAMSIZ-1 bytes (dev_valid_name). A wildcard would be part of the name, and match
// nothing.
func interfaces(text string) ([]string, error) {
	return list(text, acceptsNames, func(name string) (string, error) {
		if len(name) > 15 || name == "." || name == ".." || strings.ContainsAny(name, "/:*\"\\ \t\n\v\f\r\x00") ||
			strings.HasSuffix(name, "+") {
			return "", strconv.ErrSyntax
		}
		return name, nil
	})
}
