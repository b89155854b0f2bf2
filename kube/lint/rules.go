package lint

// Rule is one kind of problem.
type Rule struct {
	ID   string `json:"id"`
	Text string `json:"text"`
}

// Home is the project's page.
const Home = "https://github.com/lastcall-dev/lastcall"

// Page is the address of the rule's page, with an example.
func (r Rule) Page() string { return Home + "/blob/main/docs/rules/" + r.ID + ".md" }

// Rules lists all rules in the order of their IDs. The ID of a removed rule is not used again: comments in manifests
// may still contain it.
func Rules() []Rule {
	return []Rule{
		{"LC000", "a manifest that is not readable"},
		{"LC001", "a preStop that sleeps as long as the grace period or longer"},
		{"LC002", "preStop, minimum drain and last call together take longer than the grace period"},
		{"LC003", "a drain that is set to last longer than the grace period"},
		{"LC005", "EXIT_ON_ZERO_ACTIVE_CONNECTIONS where it is not read"},
		{"LC007", "settings that are misplaced, misspelt or wrong"},
		{"LC008", "a hook that fails at once, because it cannot run"},
		{"LC009", "a native istio-proxy whose preStop has been replaced"},
		{"LC011", "another mesh's timer that is longer than the grace period"},
		{"LC014", "a grace period of 0"},
		{"LC015", "a preStop loop without a time limit"},
		{"LC016", "pods that exit before their load balancer has learned of it"},
		{"LC018", "a lastcall sidecar that cannot distinguish a container's restart from the end of the pod"},
		{"LC019", "a Service's pods without any preStop hook or sidecar"},
		{"LC020", "a sidecar that ends before the app's preStop hook"},
		{"LC029", "a shell or a package manager as PID 1, which does not pass SIGTERM on"},
		{"LC035", "a preStop that ends the app before clients have learned of it"},
		{"LC036", "a container that ends before another one that passes requests to it"},
		{"LC037", "a server that reloads at its stop signal"},
		{"LC038", "a server's own timer that exceeds the rest of the grace period"},
		{"LC039", "a Job's helper that does not exit"},
	}
}
