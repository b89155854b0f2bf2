package http2

// DefaultTableSize is the size of the dynamic table before any SETTINGS, bytes (RFC 9113, 6.5.2).
const DefaultTableSize = 4096

// entryOverhead is the size of an entry without its name and value, bytes (RFC 7541, 4.1).
const entryOverhead = 32

// dynamicTable is the dynamic table of a decoder (RFC 7541, 2.3.2).
type dynamicTable struct {
	max  int // bytes that it may hold
	size int // bytes that it holds (4.1)

	entries []entry // a ring; its length is a power of two
	first   int     // the oldest in entries
	count   int

	values []byte // of the wanted entries, the oldest first, with those of evicted ones in front
	kept   int    // bytes of values that entries hold
}

// entry is a field in the table.
type entry struct {
	name     FieldName
	nameLen  int
	valueLen int
	at       int // index of its value in values, if its name is wanted
}

func (e *entry) size() int { return e.nameLen + e.valueLen + entryOverhead }

// field returns the entry with an index, or nil, and its value if it is one of the static table. Behind that the newest
// has the lowest index (RFC 7541, 2.3.3).
func (t *dynamicTable) field(index uint64) (*entry, []byte) {
	if index-1 < uint64(len(staticFields)) {
		f := &staticFields[index-1]
		return &f.entry, f.value
	}
	i := index - uint64(len(staticFields)) - 1
	if i >= uint64(t.count) {
		return nil, nil
	}
	return t.at(t.count - 1 - int(i)), nil
}

// at returns the i-th entry, beginning with the oldest.
func (t *dynamicTable) at(i int) *entry { return &t.entries[(t.first+i)&(len(t.entries)-1)] }

// value returns the value of an entry whose name is wanted.
func (t *dynamicTable) value(e *entry) []byte { return t.values[e.at : e.at+e.valueLen] }

// evict makes room for an entry of size bytes (RFC 7541, 4.3).
func (d *Decoder) evict(size int) {
	t := &d.table
	for t.count > 0 && t.size+size > t.max {
		oldest := t.at(0)
		t.size -= oldest.size()
		if d.Want.Has(oldest.name) {
			t.kept -= oldest.valueLen
		}
		t.first, t.count = t.first+1, t.count-1
	}
}

// add adds a field. One that is larger than the table only empties it (RFC 7541, 4.4).
func (d *Decoder) add(e entry, value []byte) {
	d.evict(e.size())
	t := &d.table
	if e.size() > t.max {
		return
	}
	if t.count == len(t.entries) {
		t.grow()
	}
	if d.Want.Has(e.name) {
		e.at = d.keep(value)
	}
	t.size += e.size()
	t.count++
	*t.at(t.count - 1) = e
}

func (t *dynamicTable) grow() {
	larger := make([]entry, max(8, 2*len(t.entries)))
	for i := range t.count {
		larger[i] = *t.at(i)
	}
	t.entries, t.first = larger, 0
}

// keep stores a value behind the others. If evicted values take more room than those, it moves them to the front first.
func (d *Decoder) keep(value []byte) (at int) {
	t := &d.table
	if len(t.values)+len(value) > 2*(t.kept+len(value))+128 {
		n := 0
		for i := range t.count {
			if e := t.at(i); d.Want.Has(e.name) {
				copy(t.values[n:], t.value(e))
				e.at = n
				n += e.valueLen
			}
		}
		t.values = t.values[:n]
	}
	at = len(t.values)
	t.values = append(t.values, value...)
	t.kept += len(value)
	return at
}
