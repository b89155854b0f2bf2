package http2

import "encoding/binary"

// huffmanBits are the lengths of the codes of RFC 7541, appendix B, bits, in the order of the symbols. The last one is
// EOS, which no string may contain. The code is canonical, so the lengths define it.
const huffmanBits = "" +
	"\x0d\x17\x1c\x1c\x1c\x1c\x1c\x1c\x1c\x18\x1e\x1c\x1c\x1e\x1c\x1c\x1c\x1c\x1c\x1c\x1c\x1c\x1e\x1c\x1c\x1c\x1c\x1c\x1c\x1c\x1c\x1c" +
	"\x06\x0a\x0a\x0c\x0d\x06\x08\x0b\x0a\x0a\x08\x0b\x08\x06\x06\x06\x05\x05\x05\x06\x06\x06\x06\x06\x06\x06\x07\x08\x0f\x06\x0c\x0a" +
	"\x0d\x06\x07\x07\x07\x07\x07\x07\x07\x07\x07\x07\x07\x07\x07\x07\x07\x07\x07\x07\x07\x07\x07\x07\x08\x07\x08\x0d\x13\x0d\x0e\x06" +
	"\x0f\x05\x06\x05\x06\x05\x06\x06\x06\x05\x07\x07\x06\x06\x06\x05\x06\x07\x06\x05\x05\x06\x07\x07\x07\x07\x07\x0f\x0b\x0e\x0d\x1c" +
	"\x14\x16\x14\x14\x16\x16\x16\x17\x16\x17\x17\x17\x17\x17\x18\x17\x18\x18\x16\x17\x18\x17\x17\x17\x17\x15\x16\x17\x16\x17\x17\x18" +
	"\x16\x15\x14\x16\x16\x17\x17\x15\x17\x16\x16\x18\x15\x16\x17\x17\x15\x15\x16\x15\x17\x16\x17\x17\x14\x16\x16\x16\x17\x16\x16\x17" +
	"\x1a\x1a\x14\x13\x16\x17\x16\x19\x1a\x1a\x1a\x1b\x1b\x1a\x18\x19\x13\x15\x1a\x1b\x1b\x1a\x1b\x18\x15\x15\x1a\x1a\x1c\x1b\x1b\x1b" +
	"\x14\x18\x14\x15\x16\x15\x15\x17\x16\x16\x19\x19\x18\x18\x1a\x17\x1a\x1b\x1a\x1a\x1b\x1b\x1b\x1b\x1b\x1c\x1b\x1b\x1b\x1b\x1b\x1a" +
	"\x1e"

const (
	huffmanQuick   = 10 // bits that are looked up at once, enough for common characters
	huffmanLongest = 30
	huffmanEOS     = 256
)

var huffman = newHuffman()

// huffmanCode decodes codes of up to huffmanQuick bits by one lookup, longer ones by the rule of canonical codes.
type huffmanCode struct {
	quick   [1 << huffmanQuick]uint16 // symbol<<4 | bits; 0: a longer code
	first   [huffmanLongest + 1]uint32
	limit   [huffmanLongest + 1]uint32 // the last code of a length, plus one
	at      [huffmanLongest + 1]uint16 // index of a length's first symbol in symbols
	symbols [257]uint16                // by length, then by value
}

func newHuffman() *huffmanCode {
	h := new(huffmanCode)
	code, n := uint32(0), 0
	for bits := 1; bits <= huffmanLongest; bits++ {
		code <<= 1
		h.first[bits], h.at[bits] = code, uint16(n)
		for symbol := range len(huffmanBits) {
			if int(huffmanBits[symbol]) != bits {
				continue
			}
			if rest := huffmanQuick - bits; rest >= 0 {
				for i := range 1 << rest {
					h.quick[int(code)<<rest|i] = uint16(symbol<<4 | bits)
				}
			}
			h.symbols[n] = uint16(symbol)
			n++
			code++
		}
		h.limit[bits] = code
	}
	return h
}

// next decodes the symbol in the highest bits of acc. At the end of a string acc is padded with ones.
func (h *huffmanCode) next(acc uint64) (symbol, bits int) {
	if e := h.quick[acc>>(64-huffmanQuick)]; e != 0 {
		return int(e >> 4), int(e & 15)
	}
	for bits = huffmanQuick + 1; bits < huffmanLongest; bits++ {
		if code := uint32(acc >> (64 - bits)); code < h.limit[bits] {
			break
		}
	}
	return int(h.symbols[uint32(h.at[bits])+uint32(acc>>(64-bits))-h.first[bits]]), bits
}

// decode appends the symbols of src to dst, or only counts them if dst is nil. ok is false if src is not Huffman code,
// or is padded with anything other than up to seven ones (RFC 7541, 5.2).
func (h *huffmanCode) decode(dst, src []byte) (out []byte, n int, ok bool) {
	var acc uint64 // bits not decoded yet, beginning with the highest
	have := 0
	for {
		if len(src) >= 8 {
			acc |= binary.BigEndian.Uint64(src) >> have
			src = src[(63-have)>>3:]
			have |= 56
		} else {
			for have <= 56 && len(src) > 0 {
				acc |= uint64(src[0]) << (56 - have)
				src = src[1:]
				have += 8
			}
			if have < huffmanLongest {
				return h.decodeRest(dst, n, acc, have)
			}
		}
		for have >= huffmanLongest {
			symbol, bits := h.next(acc)
			if symbol == huffmanEOS {
				return dst, n, false
			}
			if dst != nil {
				dst = append(dst, byte(symbol))
			}
			acc <<= bits
			have -= bits
			n++
		}
	}
}

// decodeRest decodes the last have bits of a string, which are in acc.
func (h *huffmanCode) decodeRest(dst []byte, n int, acc uint64, have int) ([]byte, int, bool) {
	for have > 0 {
		symbol, bits := h.next(acc | ^uint64(0)>>have)
		if bits > have || symbol == huffmanEOS {
			break
		}
		if dst != nil {
			dst = append(dst, byte(symbol))
		}
		acc <<= bits
		have -= bits
		n++
	}
	return dst, n, have < 8 && acc|^uint64(0)>>have == ^uint64(0)
}
