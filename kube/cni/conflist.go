package cni

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// entry is the plugin in the list of plugins.
const entry = `{"type":"` + Name + `","capabilities":{"io.kubernetes.cri.pod-annotations":true}}`

// element is one plugin of a list, with its place in the text.
type element struct {
	isOurs     bool
	start, end int
}

// insert returns the text of a network configuration list with the plugin at the end of its chain. A list that has it
// already is returned as it is.
func insert(text []byte) ([]byte, error) {
	all, err := elements(text)
	if err != nil {
		return nil, err
	}
	for _, e := range all {
		if e.isOurs && string(text[e.start:e.end]) == entry {
			return text, nil
		}
	}
	if text, err = remove(text); err != nil { // that of another version
		return nil, err
	}
	if all, err = elements(text); err != nil {
		return nil, err
	}
	end := all[len(all)-1].end
	return bytes.Join([][]byte{text[:end], []byte(",\n    " + entry), text[end:]}, nil), nil
}

// remove returns the text without the plugin: what insert has been given.
func remove(text []byte) ([]byte, error) {
	all, err := elements(text)
	if err != nil {
		return nil, err
	}
	for i, e := range all {
		switch {
		case !e.isOurs:
		case i > 0:
			return remove(bytes.Join([][]byte{text[:all[i-1].end], text[e.end:]}, nil))
		case len(all) > 1:
			return remove(bytes.Join([][]byte{text[:e.start], text[all[1].start:]}, nil))
		default:
			return nil, errors.New("it has no plugin but " + Name)
		}
	}
	return text, nil
}

// elements finds the plugins in the text of a list. Only their places are used, so that all else stays as it is.
func elements(text []byte) (all []element, err error) {
	in := json.NewDecoder(bytes.NewReader(text))
	if err := delimiter(in, '{'); err != nil {
		return nil, err
	}
	for in.More() {
		key, err := in.Token()
		if err != nil {
			return nil, err
		}
		if key != "plugins" {
			var other json.RawMessage
			if err := in.Decode(&other); err != nil {
				return nil, err
			}
			continue
		}
		if all != nil {
			return nil, errors.New("it has two lists of plugins")
		}
		if err := delimiter(in, '['); err != nil {
			return nil, err
		}
		for in.More() {
			var value json.RawMessage
			if err := in.Decode(&value); err != nil {
				return nil, err
			}
			var plugin struct{ Type string }
			if err := json.Unmarshal(value, &plugin); err != nil {
				return nil, err
			}
			end := int(in.InputOffset())
			all = append(all, element{plugin.Type == Name, end - len(value), end})
		}
		if err := delimiter(in, ']'); err != nil {
			return nil, err
		}
	}
	if err := delimiter(in, '}'); err != nil {
		return nil, err
	}
	if _, err := in.Token(); err != io.EOF {
		return nil, errors.New("text follows the JSON object")
	}
	if len(all) == 0 {
		return nil, errors.New("it has no list of plugins, to which " + Name + " could be added")
	}
	return all, nil
}

func delimiter(in *json.Decoder, want json.Delim) error {
	got, err := in.Token()
	if err == nil && got != want {
		err = fmt.Errorf("%v where %v is expected", got, want)
	}
	return err
}
