package gateway

import "testing"

// The table of the Ingress API's documentation (Kubernetes, "Ingress", path types, examples), row by
// row, and what it leaves open.
func TestPaths(t *testing.T) {
	type rule struct {
		kind PathKind
		path string
	}
	for _, tt := range []struct {
		name  string
		rules []rule
		path  string
		want  string // the rule's path; "" for none
	}{
		{"prefix, all", []rule{{Prefix, "/"}}, "/any/path", "/"},
		{"exact", []rule{{Exact, "/foo"}}, "/foo", "/foo"},
		{"exact, another", []rule{{Exact, "/foo"}}, "/bar", ""},
		{"exact, a slash more", []rule{{Exact, "/foo"}}, "/foo/", ""},
		{"exact, a slash less", []rule{{Exact, "/foo/"}}, "/foo", ""},
		{"exact, case", []rule{{Exact, "/foo"}}, "/Foo", ""},
		{"prefix itself", []rule{{Prefix, "/foo"}}, "/foo", "/foo"},
		{"prefix, a slash more", []rule{{Prefix, "/foo"}}, "/foo/", "/foo"},
		{"prefix with a slash, without", []rule{{Prefix, "/foo/"}}, "/foo", "/foo/"},
		{"prefix with a slash, with", []rule{{Prefix, "/foo/"}}, "/foo/", "/foo/"},
		{"prefix, part of an element", []rule{{Prefix, "/aaa/bb"}}, "/aaa/bbb", ""},
		{"prefix, whole", []rule{{Prefix, "/aaa/bbb"}}, "/aaa/bbb", "/aaa/bbb"},
		{"prefix, trailing slash of the rule", []rule{{Prefix, "/aaa/bbb/"}}, "/aaa/bbb", "/aaa/bbb/"},
		{"prefix, trailing slash of the request", []rule{{Prefix, "/aaa/bbb"}}, "/aaa/bbb/", "/aaa/bbb"},
		{"prefix, below", []rule{{Prefix, "/aaa/bbb"}}, "/aaa/bbb/ccc", "/aaa/bbb"},
		{"prefix, no element", []rule{{Prefix, "/aaa/bbb"}}, "/aaa/bbbxyz", ""},
		{"several: the longest", []rule{{Prefix, "/"}, {Prefix, "/aaa"}}, "/aaa/ccc", "/aaa"},
		{"several: the longer one does not match", []rule{{Prefix, "/"}, {Prefix, "/aaa"}, {Prefix, "/aaa/bbb"}}, "/aaa/bbbb", "/aaa"},
		{"several: none but all", []rule{{Prefix, "/"}, {Prefix, "/aaa"}, {Prefix, "/aaa/bbb"}}, "/ccc", "/"},
		{"several: none", []rule{{Prefix, "/aaa"}}, "/ccc", ""},
		{"exact before prefix", []rule{{Prefix, "/foo/"}, {Exact, "/foo"}}, "/foo", "/foo"},
		{"exact does not match below", []rule{{Prefix, "/foo/"}, {Exact, "/foo"}}, "/foo/bar", "/foo/"},
		{"empty elements are elements", []rule{{Prefix, "/a"}}, "/a//b", "/a"},
		{"no path at all, as OPTIONS and CONNECT have", []rule{{Prefix, "/"}}, "", "/"},
		{"a star", []rule{{Prefix, "/a"}}, "*", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var routes Routes
			for _, r := range tt.rules {
				if !routes.Add("a.example", r.kind, r.path, &Route{Name: r.path}) {
					t.Fatal("refused", r)
				}
			}
			got := ""
			if r := routes.match("a.example", tt.path); r != nil {
				got = r.Name
			}
			if got != tt.want {
				t.Errorf("%s goes to %q, want %q", tt.path, got, tt.want)
			}
		})
	}
}

func TestHosts(t *testing.T) {
	var routes Routes
	for _, host := range []string{"foo.bar.com", "*.bar.com", ""} {
		routes.Add(host, Prefix, "/app", &Route{Name: "rule of " + host})
	}
	routes.Add("foo.bar.com", Prefix, "/only", &Route{Name: "only of foo.bar.com"})
	routes.Add("", Prefix, "/everywhere", &Route{Name: "everywhere"})
	routes.AddDefault("", &Route{Name: "default"})
	routes.AddDefault("*.bar.com", &Route{Name: "default of *.bar.com"})
	for _, tt := range []struct{ host, path, want string }{
		{"foo.bar.com", "/app", "rule of foo.bar.com"},
		{"FOO.bar.com:8080", "/app", "rule of foo.bar.com"},
		{"foo.bar.com.", "/app", "rule of foo.bar.com"},
		{"baz.bar.com", "/app", "rule of *.bar.com"},
		{"baz.foo.bar.com", "/app", "rule of "}, // two labels
		{"bar.com", "/app", "rule of "},         // none
		{".bar.com", "/app", "rule of "},        // an empty one
		{"", "/app", "rule of "},
		{"[::1]:80", "/app", "rule of "},
		{"10.0.0.1", "/app", "rule of "},
		{"foo.bar.com", "/everywhere/x", "everywhere"}, // a rule without a host holds for all traffic
		{"baz.bar.com", "/only", "default of *.bar.com"},
		{"foo.bar.com", "/nowhere", "default of *.bar.com"},
		{"elsewhere.org", "/", "default"},
	} {
		if r := routes.match(tt.host, tt.path); r == nil || r.Name != tt.want {
			t.Errorf("%q %q goes to %+v, want %q", tt.host, tt.path, r, tt.want)
		}
	}
}

// The first rule for a host and path stays: that of the older Ingress.
func TestTwiceTheSame(t *testing.T) {
	var routes Routes
	first, second := &Route{Name: "first"}, &Route{Name: "second"}
	for _, add := range []func(*Route) bool{
		func(r *Route) bool { return routes.Add("a", Prefix, "/x", r) },
		func(r *Route) bool { return routes.Add("a", Exact, "/x", r) },
		func(r *Route) bool { return routes.AddDefault("b", r) },
	} {
		if !add(first) || add(second) {
			t.Error("the second was taken")
		}
	}
	if routes.Add("a", Prefix, "/x/", second) {
		t.Error("a slash at its end makes no other prefix")
	}
	if r := routes.match("a", "/x"); r != first {
		t.Error(r.Name)
	}
}

// A request that found its way before a change of the routes is still served.
func TestClosedPool(t *testing.T) {
	g := start(t, setup{Endpoints: []string{raw(t, answers)}})
	g.pool.Close()
	c, url := g.client(t, false)
	for range 2 {
		if resp, _ := get(t, c, url); resp.StatusCode != 200 {
			t.Error(resp.Status)
		}
	}
}
