package admin

import "runtime/metrics"

// memory is the Go runtime's, in bytes, as /memory shows it: protobuf's JSON writes 64 bits as a string.
type memory struct {
	Allocated   uint64 `json:"allocated,string"`          // live objects, and garbage that is not collected yet
	Heap        uint64 `json:"heap_size,string"`          // from the operating system
	Unmapped    uint64 `json:"pageheap_unmapped,string"`  // of it, returned
	Free        uint64 `json:"pageheap_free,string"`      // of it, kept for later
	ThreadCache uint64 `json:"total_thread_cache,string"` // always 0
	Total       uint64 `json:"total_physical_bytes,string"`
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
	return memory{Allocated: objects, Heap: objects + unused + free, Unmapped: released, Free: free, Total: total - released}
}

func (s *Server) memory(query) answer { return indented(readMemory()) }
