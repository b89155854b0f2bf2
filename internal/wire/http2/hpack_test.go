package http2

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"golang.org/x/net/http2/hpack"

	"github.com/lastcall-dev/lastcall/internal/wire/http2/http2test"
	"github.com/lastcall-dev/lastcall/internal/wire/stormtest"
)

// someFields are names to look for.
var someFields = FieldsOf(FieldMethod, FieldPath, FieldStatus, FieldContentType, FieldUserAgent, FieldRequestID)

// counter counts the bytes of the fields that were looked for.
type counter int

func (c *counter) Field(_ FieldName, value []byte) { *c += counter(len(value)) }

// taken records the fields that were looked for.
type taken []string

func (t *taken) Field(name FieldName, value []byte) {
	*t = append(*t, fmt.Sprintf("%d=%s", name, value))
}

// decoded returns the fields with wanted names that x/net's decoder finds in a block.
func decoded(d *hpack.Decoder, want FieldSet, block []byte) (out taken, err error) {
	d.SetEmitFunc(func(f hpack.HeaderField) {
		if name := fieldNameOf([]byte(f.Name)); want.Has(name) {
			out.Field(name, []byte(f.Value))
		}
	})
	if _, err := d.Write(block); err != nil {
		return nil, err
	}
	return out, d.Close()
}

func TestStaticTableAndHuffmanCode(t *testing.T) {
	d := hpack.NewDecoder(0, nil)
	for i, f := range staticFields {
		d.SetEmitFunc(func(h hpack.HeaderField) {
			if f.name != fieldNameOf([]byte(h.Name)) || f.nameLen != len(h.Name) || string(f.value) != h.Value {
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

func FuzzHuffman(f *testing.F) {
	f.Add([]byte("\xf1\xe3\xc2\xe5\xf2\x3a\x6b\xa0\xab\x90\xf4\xff"))
	f.Add([]byte("\xff\xff\xff\xff"))
	f.Add(hpack.AppendHuffmanString(nil, "\x00\xff^|<>{}@Hello, world"))
	f.Fuzz(func(t *testing.T, p []byte) {
		for _, in := range stormtest.Mutations(t, p, http2test.Words) {
			huffmanAsNet(t, in)
		}
	})
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

// FuzzFields decodes header blocks, each preceded by its length in two bytes, in succession with one Decoder. It
// accepts the same blocks and finds the same fields as x/net's decoder, with two exceptions that RFC 7541, 4.2
// justifies: a size update after a field is an error even if the table is empty, and a second update before the first
// field is accepted even if the table is not empty.
func FuzzFields(f *testing.F) {
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
	f.Fuzz(func(t *testing.T, p []byte, allowed uint16) {
		for i, in := range stormtest.Mutations(t, p, http2test.Words) {
			fieldsAsNet(t, in, allowed+uint16(i))
		}
	})
}

func fieldsAsNet(t *testing.T, p []byte, allowed uint16) {
	want := someFields
	ours := NewDecoder(want)
	theirs := hpack.NewDecoder(DefaultTableSize, nil)
	theirs.SetAllowedMaxDynamicTableSize(uint32(allowed))
	for len(p) >= 2 {
		n := min(int(p[0])<<8|int(p[1]), len(p)-2)
		block := p[2 : 2+n]
		p = p[2+n:]
		var got taken
		err := ours.Decode(block, uint32(allowed), &got)
		fields, wantErr := decoded(theirs, want, block)
		if errors.Is(err, errLateUpdate) || wantErr != nil && strings.Contains(wantErr.Error(), "MUST occur at the beginning") {
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
		if ours.table.size > ours.table.max {
			t.Fatalf("the table holds %d of %d bytes", ours.table.size, ours.table.max)
		}
	}
}

// The size of a header list is computed as RFC 9113, 6.5.2 defines it.
func TestHeaderListSize(t *testing.T) {
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
	}{{size, nil}, {size - 1, FloodHeaderList}, {0, nil}} {
		r := NewDecoder(someFields)
		r.MaxList = tt.most
		if err := r.Decode(block.Bytes(), DefaultTableSize, new(taken)); !errors.Is(err, tt.err) {
			t.Errorf("%d of %d bytes: %v; want %v", size, tt.most, err, tt.err)
		}
	}
}

func TestDecoderAllocatesNothing(t *testing.T) {
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
	r := NewDecoder(someFields)
	var seen counter
	read := func() {
		for _, b := range blocks {
			if err := r.Decode(b, DefaultTableSize, &seen); err != nil {
				t.Fatal(err)
			}
		}
	}
	read()
	// The encoder's table has moved on, but so has the reader's: the same bytes are other fields of the same cost.
	if n := testing.AllocsPerRun(10, read); n > 0 {
		t.Errorf("%v allocations for %d blocks", n, len(blocks))
	}
}
