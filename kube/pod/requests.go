package pod

import (
	"net"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/lastcall-dev/lastcall/internal/sidecar/course"
	"github.com/lastcall-dev/lastcall/kube/carrier"
)

// fetch reads a request by curl or wget.
func (r *reading) fetch(args []string, text string) result {
	isGet := true
	for i, a := range args {
		upper := strings.ToUpper(a)
		isGet = isGet && !strings.HasSuffix(upper, "POST") && !strings.HasSuffix(upper, "PUT") && !strings.HasSuffix(upper,
			"DELETE") &&
			a != "-d" && !strings.HasPrefix(a, "--data") && !strings.HasPrefix(a, "--post-")
		isValue := i > 0 && strings.HasPrefix(args[i-1], "-") && !strings.Contains(a, "://") && !strings.Contains(a, "/")
		if strings.HasPrefix(a, "-") || isValue || strings.ContainsAny(a, " {") || upper == "POST" || upper == "PUT" {
			continue
		}
		if !strings.Contains(a, "://") {
			a = "http://" + a
		}
		host, at, isPath := strings.Cut(a[strings.Index(a, "://")+3:], "/")
		name, port, err := net.SplitHostPort(host)
		if err != nil {
			name = host
		}
		if n, _ := strconv.Atoi(port); isPath {
			return r.request(name, n, "/"+at, isGet, text)
		}
	}
	r.add(Step{Do: Unknown, Text: text})
	return open
}

// ends matches the part of a path that ends a server.
var ends = regexp.MustCompile(`(?i)^(?:(?:graceful|force|do|server|app)?[-_]?(?:shutdown|quit|quitquitquit|stop|exit|terminate|kill)` +
	`(?:[-_]?(?:now|gracefully|server|app))?|abortabortabort)$`)

// admins are ports of meshes' proxies, whose end is not the app's.
var admins = []int{15000, 15020, 15021, 4190, 4191, 19000, 3500}

// request reads an HTTP request.
func (r *reading) request(host string, port int, at string, isGet bool, text string) result {
	isOwn := host == "" || host == "localhost" || strings.HasPrefix(host, "127.") || host == "[::1]" ||
		host == "0.0.0.0" ||
		strings.Contains(host, dynamic)
	where := at
	if u, err := url.Parse(at); err == nil {
		where = u.Path
	}
	parts := strings.FieldsFunc(where, func(c rune) bool { return c == '/' })
	isEnd := slices.ContainsFunc(parts, ends.MatchString)
	switch {
	case isOwn && isGet && strings.HasSuffix(where, "/actuator/shutdown"):
		return r.fail("Spring Boot's /actuator/shutdown takes POST alone, and answers 405 to GET")
	case isOwn && isEnd && !slices.Contains(admins, port) && !r.isOthers(port):
		reaction, _ := Reacts(r.spec, r.container, "TERM", false)
		if reaction == course.Ignores || reaction == course.Reloads {
			reaction = course.Unsure
		}
		r.add(Step{Do: Signal, Stop: reaction, Text: text})
		return open
	}
	r.add(Step{Do: Unknown, MayStop: isOwn && (isEnd || strings.Contains(where, "drain")), Text: text})
	return open
}

// isOthers reports whether a port is another container's.
func (r *reading) isOthers(port int) bool {
	for _, c := range carrier.Containers(r.spec) {
		for _, p := range c.Ports {
			if int(p.ContainerPort) == port && c.Name != r.container.Name {
				return true
			}
		}
	}
	return false
}
