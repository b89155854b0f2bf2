package pipe

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2/hpack"
)

// taken writes down the fields that were looked for.
type taken []string

func (t *taken) field(name fieldName, value []byte) {
	*t = append(*t, fmt.Sprintf("%d=%s", name, value))
}

// decoded is what x/net's decoder makes of a block, of the names that are looked for.
func decoded(d *hpack.Decoder, want fieldSet, block []byte) (out taken, err error) {
	d.SetEmitFunc(func(f hpack.HeaderField) {
		if name := nameOf([]byte(f.Name)); want.has(name) {
			out.field(name, []byte(f.Value))
		}
	})
	if _, err := d.Write(block); err != nil {
		return nil, err
	}
	return out, d.Close()
}

func TestH2StaticTableAndHuffmanCode(t *testing.T) {
	d := hpack.NewDecoder(0, nil)
	for i, f := range staticFields {
		d.SetEmitFunc(func(h hpack.HeaderField) {
			if f.name != nameOf([]byte(h.Name)) || int(f.nameLen) != len(h.Name) || string(f.value) != h.Value {
				t.Errorf("index %d is %+v; want %q %q", i+1, f, h.Name, h.Value)
			}
		})
		if _, err := d.Write([]byte{0x80 | byte(i+1)}); err != nil {
			t.Fatal(err)
		}
	}
	for symbol := range 256 {
		for n := range 12 {
			s := strings.Repeat(string([]byte{byte(symbol)}), n) + "a"
			code := hpack.AppendHuffmanString(nil, s)
			out, count, ok := huffman.decode([]byte{}, code)
			if _, only, _ := huffman.decode(nil, code); !ok || string(out) != s || count != len(s) || only != count {
				t.Fatalf("%x is %q, %d, %d, %v; want %q", code, out, count, only, ok, s)
			}
		}
	}
}

func FuzzH2Huffman(f *testing.F) {
	f.Add([]byte("\xf1\xe3\xc2\xe5\xf2\x3a\x6b\xa0\xab\x90\xf4\xff"))
	f.Add([]byte("\xff\xff\xff\xff"))
	f.Add(hpack.AppendHuffmanString(nil, "\x00\xff^|<>{}@Hello, world"))
	f.Fuzz(huffmanAsNet)
}

func huffmanAsNet(t *testing.T, p []byte) {
	want, err := hpack.HuffmanDecodeToString(p)
	got, n, ok := huffman.decode([]byte{}, p)
	if ok != (err == nil) || ok && (string(got) != want || n != len(want)) {
		t.Fatalf("%x: %q %v; want %q %v", p, got, ok, want, err)
	}
	if _, only, same := huffman.decode(nil, p); same != ok || ok && only != n {
		t.Fatalf("%x: counted %d, %v; decoded %d, %v", p, only, same, n, ok)
	}
}

// FuzzH2Fields reads header blocks, each led by its length in two bytes, one after
// another with one table. What is accepted, and every field that is looked for, is as
// x/net's decoder has it, but for two cases that RFC 7541, 4.2 decides: a change of
// the table's size after a field is refused even when the table is empty, and a
// second change before the first field is accepted even when the table is not.
func FuzzH2Fields(f *testing.F) {
	var seed bytes.Buffer
	var block bytes.Buffer
	e := hpack.NewEncoder(&block)
	for i := range 20 {
		block.Reset()
		if i == 10 {
			e.SetMaxDynamicTableSize(200)
		}
		for _, h := range []hpack.HeaderField{
			{Name: ":method", Value: "GET"}, {Name: ":path", Value: fmt.Sprintf("/%d", i/3)}, {Name: "user-agent", Value: "kube-probe/1.34"},
			{Name: "content-type", Value: "application/grpc"}, {Name: ":status", Value: fmt.Sprint(200 + i)}, {Name: "x-own", Value: strings.Repeat("é", i*10)},
		} {
			_ = e.WriteField(h)
		}
		seed.Write([]byte{byte(block.Len() >> 8), byte(block.Len())})
		seed.Write(block.Bytes())
	}
	f.Add(seed.Bytes(), uint16(4096))
	f.Add(seed.Bytes(), uint16(100))
	f.Add([]byte("\x00\x01\x80\x00\x02\x20\x82\x00\x03\x20\x20\x82"), uint16(0))
	f.Fuzz(fieldsAsNet)
}

func fieldsAsNet(t *testing.T, p []byte, allowed uint16) {
	want := loggedRequestFields | responseFields
	ours := newTable(want)
	theirs := hpack.NewDecoder(defaultTable, nil)
	theirs.SetAllowedMaxDynamicTableSize(uint32(allowed))
	for len(p) >= 2 {
		n := min(int(p[0])<<8|int(p[1]), len(p)-2)
		block := p[2 : 2+n]
		p = p[2+n:]
		var got taken
		err := ours.read(block, uint32(allowed), &got)
		fields, wantErr := decoded(theirs, want, block)
		if err == errLateUpdate || wantErr != nil && strings.Contains(wantErr.Error(), "MUST occur at the beginning") {
			return
		}
		if (err == nil) != (wantErr == nil) {
			t.Fatalf("%x: %v; x/net says %v", block, err, wantErr)
		}
		if err != nil {
			return
		}
		if strings.Join(got, "\n") != strings.Join(fields, "\n") {
			t.Fatalf("%x: %q; want %q", block, got, fields)
		}
		if ours.size > ours.max {
			t.Fatalf("the table holds %d of %d bytes", ours.size, ours.max)
		}
	}
}

// A list's size is what RFC 9113, 6.5.2 says it is.
func TestH2HeaderListSize(t *testing.T) {
	var block bytes.Buffer
	e := hpack.NewEncoder(&block)
	size := 0
	for _, h := range []hpack.HeaderField{
		{Name: ":method", Value: "GET"}, {Name: ":path", Value: "/long/enough"}, {Name: ":path", Value: "/long/enough"},
		{Name: "x-name", Value: "value"}, {Name: "x-name", Value: "other", Sensitive: true},
	} {
		_ = e.WriteField(h)
		size += int(h.Size())
	}
	for _, tt := range []struct {
		most int
		err  error
	}{{size, nil}, {size - 1, floodHeaderList}, {0, nil}} {
		r := newTable(requestFields)
		r.maxList = tt.most
		if err := r.read(block.Bytes(), defaultTable, new(taken)); err != tt.err {
			t.Errorf("%d of %d bytes: %v; want %v", size, tt.most, err, tt.err)
		}
	}
}

func TestH2TableAllocatesNothing(t *testing.T) {
	var blocks [][]byte
	var block bytes.Buffer
	e := hpack.NewEncoder(&block)
	for i := range 300 {
		block.Reset()
		for _, h := range []hpack.HeaderField{
			{Name: ":method", Value: "GET"}, {Name: ":path", Value: fmt.Sprintf("/some/path/%d", i)},
			{Name: "user-agent", Value: "client/1.0"}, {Name: "x-request-id", Value: fmt.Sprintf("%032d", i)},
		} {
			_ = e.WriteField(h)
		}
		blocks = append(blocks, bytes.Clone(block.Bytes()))
	}
	r := newTable(loggedRequestFields)
	s := &streamHead{stream: newStream(1, time.Now())}
	read := func() {
		for _, b := range blocks {
			if err := r.read(b, defaultTable, s); err != nil {
				t.Fatal(err)
			}
			s.method, s.path, s.stream.line = false, false, s.stream.line[:0]
		}
	}
	read()
	// The encoder's table has moved on, but so has the reader's: the same bytes are other fields of the same cost.
	if n := testing.AllocsPerRun(10, read); n > 0 {
		t.Errorf("%v allocations for %d blocks", n, len(blocks))
	}
}
