package pod

import (
	"net"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/lastcall-dev/lastcall/internal/sidecar/course"
)

// address matches a URL, or one without its scheme.
var address = regexp.MustCompile(`^(?:https?://)?([^/?\s{}'"]+)(/[^\s]*)?$`)

// method matches what sets another method than GET.
var method = regexp.MustCompile(`^(?:-X|--request=|--method=)?(?:POST|PUT|DELETE)$`)

// fetch reads a request by curl or wget.
func (r *reading) fetch(args []string, text string) result {
	isPost := slices.ContainsFunc(args, func(a string) bool {
		return a == "-d" || strings.HasPrefix(a, "--data") || strings.HasPrefix(a, "--post-") || method.MatchString(a)
	})
	for i, a := range args {
		m := address.FindStringSubmatch(a)
		isValue := i > 0 && strings.HasPrefix(args[i-1], "-") && !strings.Contains(a, "://") && !strings.Contains(a, ":")
		if strings.HasPrefix(a, "-") || m == nil || m[2] == "" || isValue && !strings.HasPrefix(a, "localhost/") {
			continue
		}
		name, port, err := net.SplitHostPort(m[1])
		if err != nil {
			name = m[1]
		}
		n, _ := strconv.Atoi(port)
		return r.request(name, n, m[2], !isPost, text)
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
	case isOwn && at == knativeWait:
		r.add(Step{Do: Unknown, For: knativeQuiet, Text: text})
		return open
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
	for _, c := range Containers(r.spec) {
		for _, p := range c.Ports {
			if int(p.ContainerPort) == port && c.Name != r.container.Name {
				return true
			}
		}
	}
	return false
}
