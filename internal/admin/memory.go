package admin

import (
	"runtime/metrics"
	"strconv"
)

// memory is the Go runtime's, in bytes.
type memory struct {
	allocated uint64 // live objects, and garbage that is not collected yet
	heap      uint64 // from the operating system
	unmapped  uint64 // of it, returned
	free      uint64 // of it, kept for later
	total     uint64 // of the runtime as a whole
}

func readMemory() memory {
	samples := []metrics.Sample{
		{Name: "/memory/classes/heap/objects:bytes"},
		{Name: "/memory/classes/heap/unused:bytes"},
		{Name: "/memory/classes/heap/free:bytes"},
		{Name: "/memory/classes/heap/released:bytes"},
		{Name: "/memory/classes/total:bytes"},
	}
	metrics.Read(samples)
	value := func(i int) uint64 {
		if samples[i].Value.Kind() != metrics.KindUint64 {
			return 0
		}
		return samples[i].Value.Uint64()
	}
	objects, unused, free, released, total := value(0), value(1), value(2), value(3), value(4)
	return memory{
		allocated: objects,
		heap:      objects + unused + free,
		unmapped:  released,
		free:      free,
		total:     total - released,
	}
}

func (s *Server) memory(query) answer {
	m := readMemory()
	decimal := func(n uint64) string { return strconv.FormatUint(n, 10) } // as protobuf writes 64 bits in JSON
	return indented(struct {
		Allocated   string `json:"allocated"`
		HeapSize    string `json:"heap_size"`
		Unmapped    string `json:"pageheap_unmapped"`
		Free        string `json:"pageheap_free"`
		ThreadCache string `json:"total_thread_cache"`
		Physical    string `json:"total_physical_bytes"`
	}{decimal(m.allocated), decimal(m.heap), decimal(m.unmapped), decimal(m.free), "0", decimal(m.total)})
}
