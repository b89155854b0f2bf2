package lint

// Rule is what is looked for.
type Rule struct {
	ID   string `json:"id"`
	Text string `json:"text"`
}

// Rules are all of them, in the order of their IDs.
func Rules() []Rule {
	return []Rule{
		{"LC001", "a preStop that sleeps as long as the grace period or longer"},
		{"LC002", "preStop, minimum drain and last call together take longer than the grace period"},
		{"LC003", "a drain that is set to last longer than the grace period"},
		{"LC004", "terminationDrainDuration where it is not used"},
		{"LC005", "EXIT_ON_ZERO_ACTIVE_CONNECTIONS where nobody reads it"},
		{"LC006", "EXIT_ON_ZERO_ACTIVE_CONNECTIONS in order to end a Job"},
		{"LC007", "settings that are misplaced, misspelt or wrong"},
		{"LC008", "a hook that needs a shell or a program in an image that hardly has one"},
		{"LC009", "a native istio-proxy whose preStop has been replaced"},
		{"LC010", "a readiness probe that takes longer to fail than the pod has"},
		{"LC011", "another mesh's timer that is longer than the grace period"},
		{"LC012", "a proxy's own wait (skipper) that is longer than the grace period"},
		{"LC013", "a grace period that a spot node does not give"},
		{"LC014", "a grace period of 0"},
		{"LC015", "a preStop loop that only its own condition ends"},
		{"LC016", "externalTrafficPolicy Local over pods that go before a load balancer has noticed"},
		{"LC017", "a stop signal that the container's program cannot act on"},
		{"LC018", "a lastcall sidecar that cannot tell a container's restart from the end of the pod"},
	}
}
