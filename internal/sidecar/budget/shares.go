package budget

import "math"

const (
	// processMemory is the memory of the process without connections, bytes.
	processMemory = 16 << 20

	// connectionMemory is the memory of a connection that has been used within the last second, bytes: 20 KB for its
	// state, its stacks and its descriptors, 7 KB in the kernel, 8 KB for HPACK's tables, and its share of buffers and
	// garbage. TLS that ends here takes as much again. One that is idle takes a third.
	connectionMemory = 48 << 10

	// defaultUnfinished is the budget of a process without a limit of its memory, bytes.
	defaultUnfinished = 64 << 20
)

// Shares are the most connections and the budget that fit into the memory of the process, 0 for unknown. isSet is
// whether another limit of connections applies.
func Shares(memory int64, isSet, terminatesTLS bool) (connections, unfinished int64) {
	connections, unfinished = math.MaxInt64/2, defaultUnfinished // twice as many connections fit into an int64
	if memory <= 0 {
		return connections, unfinished
	}
	rest := max(memory-processMemory, memory/4)
	unfinished = rest / 6
	rest -= unfinished
	switch {
	case isSet:
	case terminatesTLS:
		connections = rest / connectionMemory / 2
	default:
		connections = rest / connectionMemory
	}
	return connections, unfinished
}
