package http2

import "errors"

// Errors of header blocks. They end the connection, since later blocks could not be decoded (RFC 9113, 4.3).
var (
	errTruncated  = errors.New("a header block that ends within a field")
	errIndex      = errors.New("a header field with an index that is in no table")
	errInteger    = errors.New("an integer in a header block that is too large")
	errHuffman    = errors.New("a string that is not Huffman code")
	errTableSize  = errors.New("a dynamic table larger than the receiver allows")
	errLateUpdate = errors.New("a dynamic table size update after a field")
)

// FieldSink receives the fields that a Decoder looks for. value is valid until the call returns.
type FieldSink interface {
	Field(name FieldName, value []byte)
}

// Decoder decodes the header blocks of one direction (RFC 7541). It keeps the dynamic table exactly as the receiver's
// decoder does, since later blocks refer to it, but of an entry it stores only the size, and the value if it looks for
// the name. It allocates nothing once its buffers have grown.
type Decoder struct {
	Want    FieldSet // names to look for; fixed with the first block
	MaxList int      // limit of a header list as SETTINGS_MAX_HEADER_LIST_SIZE counts it, bytes; 0: none

	table   dynamicTable
	scratch []byte // for Huffman-coded strings
}

// NewDecoder returns a Decoder that looks for the given names.
func NewDecoder(want FieldSet) Decoder {
	return Decoder{Want: want, table: dynamicTable{max: DefaultTableSize}}
}

// Release frees the memory of a large block.
func (d *Decoder) Release() {
	if cap(d.scratch) > 512 {
		d.scratch = nil
	}
}

// Decode decodes a whole header block. allowed is how large its sender may make the dynamic table, bytes.
func (d *Decoder) Decode(block []byte, allowed uint32, to FieldSink) error {
	list := 0
	isFirst := true
	for len(block) > 0 {
		var size int
		var err error
		switch b := block[0]; {
		case b&0x80 != 0: // indexed (RFC 7541, 6.1)
			size, block, err = d.indexed(block, to)
		case b&0xc0 == 0x40: // literal with incremental indexing (6.2.1)
			size, block, err = d.literal(block, 6, to)
		case b&0xe0 == 0x20: // dynamic table size update (6.3)
			if !isFirst {
				return errLateUpdate
			}
			if block, err = d.resize(block, allowed); err != nil {
				return err
			}
			continue
		default: // literal without indexing (6.2.2), literal never indexed (6.2.3)
			size, block, err = d.literal(block, 4, to)
		}
		if err != nil {
			return err
		}
		isFirst = false
		if list += size; d.MaxList > 0 && list > d.MaxList {
			return FloodHeaderList
		}
	}
	return nil
}

func (d *Decoder) resize(block []byte, allowed uint32) ([]byte, error) {
	size, rest, err := readInteger(block, 5)
	if err != nil {
		return nil, err
	}
	if size > uint64(allowed) {
		return nil, errTableSize
	}
	d.table.max = int(size)
	d.evict(0)
	return rest, nil
}

// indexed takes an indexed field and returns its size in the header list.
func (d *Decoder) indexed(block []byte, to FieldSink) (int, []byte, error) {
	index, rest, err := readInteger(block, 7)
	if err != nil {
		return 0, nil, err
	}
	e, value := d.table.field(index)
	if e == nil {
		return 0, nil, errIndex
	}
	if d.Want.Has(e.name) {
		if value == nil {
			value = d.table.value(e)
		}
		to.Field(e.name, value)
	}
	return e.size(), rest, nil
}

// literal takes a literal field, whose name is an index with prefix bits or a string. It returns its header list size.
func (d *Decoder) literal(block []byte, prefix int, to FieldSink) (int, []byte, error) {
	index, rest, err := readInteger(block, prefix)
	if err != nil {
		return 0, nil, err
	}
	var e entry
	switch {
	case index == 0:
		var name []byte // a code has at least five bits, so some longer ones are decoded in vain
		if name, e.nameLen, rest, err = d.readString(rest, longestField); err != nil {
			return 0, nil, err
		}
		e.name = fieldNameOf(name)
	default:
		indexed, _ := d.table.field(index)
		if indexed == nil {
			return 0, nil, errIndex
		}
		e.name, e.nameLen = indexed.name, indexed.nameLen
	}
	isWanted, most := d.Want.Has(e.name), -1
	if isWanted {
		most = len(rest)
	}
	var value []byte
	if value, e.valueLen, rest, err = d.readString(rest, most); err != nil {
		return 0, nil, err
	}
	if isWanted {
		to.Field(e.name, value)
	} else {
		value = nil
	}
	if prefix == 6 {
		d.add(e, value)
	}
	return e.size(), rest, nil
}

// readString reads a string (RFC 7541, 5.2) and returns its length. Of one with a longer code than most only that.
func (d *Decoder) readString(p []byte, most int) (text []byte, n int, rest []byte, err error) {
	if len(p) == 0 {
		return nil, 0, nil, errTruncated
	}
	isHuffman := p[0]&0x80 != 0
	size, p, err := readInteger(p, 7)
	if err != nil {
		return nil, 0, nil, err
	}
	if size > uint64(len(p)) {
		return nil, 0, nil, errTruncated
	}
	text, rest = p[:size], p[size:]
	if !isHuffman {
		return text, len(text), rest, nil
	}
	var into []byte // nil: only to be counted
	if len(text) <= most {
		if room := len(text)*8/5 + 1; cap(d.scratch) < room {
			d.scratch = make([]byte, 0, max(room, 128))
		}
		into = d.scratch[:0]
	}
	text, n, ok := huffman.decode(into, text)
	if !ok {
		return nil, 0, nil, errHuffman
	}
	return text, n, rest, nil
}

// readInteger reads an integer of up to 63 bits that begins with the lowest prefix bits of p[0] (RFC 7541, 5.1).
func readInteger(p []byte, prefix int) (uint64, []byte, error) {
	mask := uint64(1)<<prefix - 1
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
