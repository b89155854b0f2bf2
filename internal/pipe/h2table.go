package pipe

import "errors"

// What a header block cannot hold.
var (
	errTruncated  = errors.New("a header block that ends within a field")
	errIndex      = errors.New("a header field that no table holds")
	errInteger    = errors.New("an integer of a header block that is too large")
	errHuffman    = errors.New("a string that is no Huffman code")
	errTableSize  = errors.New("a header table larger than the receiver allows")
	errLateUpdate = errors.New("a change of the header table's size after a field")
)

// fieldTaker is told the fields that are looked for. The value is good until it
// returns.
type fieldTaker interface {
	field(name fieldName, value []byte)
}

// table reads the header blocks of one direction as the receiver does (RFC 7541).
// It follows the dynamic table exactly, since later blocks refer to it, but keeps
// of an entry only its size, and the value of those names that are looked for.
// It allocates nothing once its buffers have grown.
type table struct {
	want    fieldSet
	maxList int // bytes of a header list as SETTINGS_MAX_HEADER_LIST_SIZE counts them; 0: no limit

	max     int // bytes that the dynamic table may hold
	size    int // bytes that it holds (RFC 7541, 4.1)
	entries []entry
	first   int // of the ring of entries: the oldest
	count   int
	values  []byte // of the entries, the oldest first, and of those that have gone
	kept    int    // bytes of values that entries hold

	scratch []byte
}

// entry is a field in the dynamic table.
type entry struct {
	name     fieldName
	nameLen  int
	valueLen int
	at       int // in values, when it is looked for
}

func (e *entry) size() int { return e.nameLen + e.valueLen + 32 }

// defaultTable is the size of a header table that nobody has said a word about,
// bytes (RFC 9113, 6.5.2).
const defaultTable = 4096

func newTable(want fieldSet) table { return table{want: want, max: defaultTable} }

// release lets go of what a large block has needed.
func (t *table) release() {
	if cap(t.scratch) > 512 {
		t.scratch = nil
	}
}

// read takes a whole block. allowed is how large its sender may make the table,
// bytes.
func (t *table) read(block []byte, allowed uint32, taker fieldTaker) error {
	list := 0
	begun := false
	for len(block) > 0 {
		var n int
		var err error
		switch b := block[0]; {
		case b&0x80 != 0: // 6.1: indexed
			n, block, err = t.readIndexed(block, taker)
		case b&0xc0 == 0x40: // 6.2.1: literal, to be indexed
			n, block, err = t.readLiteral(block, 6, taker)
		case b&0xe0 == 0x20: // 6.3: the table's size
			if begun {
				return errLateUpdate
			}
			var size uint64
			if size, block, err = readInteger(block, 5); err != nil {
				return err
			}
			if size > uint64(allowed) {
				return errTableSize
			}
			t.max = int(size)
			t.evict(0)
			continue
		default: // 6.2.2, 6.2.3: literal, not to be indexed
			n, block, err = t.readLiteral(block, 4, taker)
		}
		if err != nil {
			return err
		}
		begun = true
		if list += n; t.maxList > 0 && list > t.maxList {
			return floodHeaderList
		}
	}
	return nil
}

// readIndexed and readLiteral read a field and return its size.
func (t *table) readIndexed(block []byte, taker fieldTaker) (int, []byte, error) {
	index, rest, err := readInteger(block, 7)
	if err != nil {
		return 0, nil, err
	}
	if index-1 < uint64(len(staticFields)) {
		f := &staticFields[index-1]
		if t.want.has(f.name) {
			taker.field(f.name, f.value)
		}
		return int(f.nameLen) + len(f.value) + 32, rest, nil
	}
	e := t.entry(index)
	if e == nil {
		return 0, nil, errIndex
	}
	if t.want.has(e.name) {
		taker.field(e.name, t.values[e.at:e.at+e.valueLen])
	}
	return e.size(), rest, nil
}

func (t *table) readLiteral(block []byte, prefix int, taker fieldTaker) (int, []byte, error) {
	index, rest, err := readInteger(block, prefix)
	if err != nil {
		return 0, nil, err
	}
	var e entry
	switch {
	case index == 0:
		var s text
		if s, rest, err = readText(rest); err != nil {
			return 0, nil, err
		}
		if e.name, e.nameLen, err = t.readName(s); err != nil {
			return 0, nil, err
		}
	case index <= uint64(len(staticFields)):
		f := &staticFields[index-1]
		e.name, e.nameLen = f.name, int(f.nameLen)
	default:
		old := t.entry(index)
		if old == nil {
			return 0, nil, errIndex
		}
		e.name, e.nameLen = old.name, old.nameLen
	}
	s, rest, err := readText(rest)
	if err != nil {
		return 0, nil, err
	}
	value := s.b
	e.valueLen = len(value)
	wanted := t.want.has(e.name)
	if s.huffman {
		var into []byte
		if wanted {
			into = t.buffer(len(s.b))
		}
		var ok bool
		if value, e.valueLen, ok = huffman.decode(into, s.b); !ok {
			return 0, nil, errHuffman
		}
	}
	if wanted {
		taker.field(e.name, value)
	} else {
		value = nil
	}
	if prefix == 6 {
		t.add(e, value)
	}
	return e.size(), rest, nil
}

// readName tells which name it is, and how long.
func (t *table) readName(s text) (fieldName, int, error) {
	name, n := s.b, len(s.b)
	if s.huffman {
		var into []byte
		if len(s.b) <= longestField { // no code is shorter than five bits: some longer ones are decoded for nothing
			into = t.buffer(len(s.b))
		}
		var ok bool
		if name, n, ok = huffman.decode(into, s.b); !ok {
			return 0, 0, errHuffman
		}
	}
	return nameOf(name), n, nil
}

// buffer has room for what n bytes of Huffman code can hold.
func (t *table) buffer(n int) []byte {
	if most := n*8/5 + 1; cap(t.scratch) < most {
		t.scratch = make([]byte, 0, max(most, 128))
	}
	return t.scratch[:0]
}

// entry is what an index beyond the static table stands for: the newest has the
// lowest. It is nil when there is none.
func (t *table) entry(index uint64) *entry {
	i := index - uint64(len(staticFields)) - 1
	if i >= uint64(t.count) {
		return nil
	}
	return t.at(t.count - 1 - int(i))
}

// at is the i-th entry from the oldest on.
func (t *table) at(i int) *entry { return &t.entries[(t.first+i)&(len(t.entries)-1)] }

// evict makes room for an entry of size bytes.
func (t *table) evict(size int) {
	for t.count > 0 && t.size+size > t.max {
		oldest := t.at(0)
		t.size -= oldest.size()
		if t.want.has(oldest.name) {
			t.kept -= oldest.valueLen
		}
		t.first, t.count = t.first+1, t.count-1
	}
}

// add puts a field into the dynamic table. One that is larger than the table
// empties it (RFC 7541, 4.4).
func (t *table) add(e entry, value []byte) {
	t.evict(e.size())
	if e.size() > t.max {
		return
	}
	if t.count == len(t.entries) {
		t.grow()
	}
	if t.want.has(e.name) {
		e.at = t.keep(value)
	}
	t.size += e.size()
	t.count++
	*t.at(t.count - 1) = e
}

func (t *table) grow() {
	bigger := make([]entry, max(8, 2*len(t.entries)))
	for i := range t.count {
		bigger[i] = *t.at(i)
	}
	t.entries, t.first = bigger, 0
}

// keep stores a value behind the others; when more has gone than is held, what is
// held moves to the front.
func (t *table) keep(value []byte) (at int) {
	if len(t.values)+len(value) > 2*(t.kept+len(value))+128 {
		n := 0
		for i := range t.count {
			if e := t.at(i); t.want.has(e.name) {
				copy(t.values[n:], t.values[e.at:e.at+e.valueLen])
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

// text is a string as it stands in a block.
type text struct {
	b       []byte
	huffman bool
}

func readText(p []byte) (text, []byte, error) {
	if len(p) == 0 {
		return text{}, nil, errTruncated
	}
	isHuffman := p[0]&0x80 != 0
	n, p, err := readInteger(p, 7)
	if err != nil {
		return text{}, nil, err
	}
	if n > uint64(len(p)) {
		return text{}, nil, errTruncated
	}
	return text{p[:n], isHuffman}, p[n:], nil
}

// readInteger reads an integer that begins with the last bits of p[0] (RFC 7541,
// 5.1). It may be 63 bits long.
func readInteger(p []byte, bits int) (uint64, []byte, error) {
	mask := uint64(1)<<bits - 1
	n := uint64(p[0]) & mask
	p = p[1:]
	if n < mask {
		return n, p, nil
	}
	for shift := 0; shift < 63; shift += 7 {
		if len(p) == 0 {
			return 0, nil, errTruncated
		}
		b := p[0]
		p = p[1:]
		n += uint64(b&0x7f) << shift
		if b&0x80 == 0 {
			return n, p, nil
		}
	}
	return 0, nil, errInteger
}
