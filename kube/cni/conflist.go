package cni

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
)

// entry is the plugin in the list of plugins.
const entry = `{"type":"` + Name + `","capabilities":{"io.kubernetes.cri.pod-annotations":true}}`

// insert returns a network configuration list with the plugin at the end of its chain. A list that has it already is
// returned as it is.
func insert(text []byte) ([]byte, error) {
	l, err := readList(text)
	if err != nil || l.hasEntry {
		return text, err
	}
	return l.write(append(l.others, json.RawMessage(entry)))
}

// remove returns the list without the plugin.
func remove(text []byte) ([]byte, error) {
	l, err := readList(text)
	if err != nil || !l.hasOurs {
		return text, err
	}
	return l.write(l.others)
}

// list is a network configuration list. Only its plugins are read.
type list struct {
	fields   map[string]json.RawMessage
	others   []json.RawMessage // the plugins, without ours
	hasOurs  bool
	hasEntry bool // ours of this version
}

func readList(text []byte) (l list, err error) {
	var all []json.RawMessage
	if err := json.Unmarshal(text, &l.fields); err != nil {
		return l, err
	}
	if err := json.Unmarshal(l.fields["plugins"], &all); err != nil {
		return l, fmt.Errorf("it has no list of plugins, to which %s could be added: %w", Name, err)
	}
	for _, one := range all {
		var plugin struct{ Type string }
		var compact bytes.Buffer
		if err := errors.Join(json.Unmarshal(one, &plugin), json.Compact(&compact, one)); err != nil {
			return l, err
		}
		if plugin.Type != Name {
			l.others = append(l.others, one)
			continue
		}
		l.hasOurs, l.hasEntry = true, l.hasEntry || compact.String() == entry
	}
	if len(l.others) == 0 {
		return l, errors.New("it has no plugin but " + Name)
	}
	return l, nil
}

func (l list) write(plugins []json.RawMessage) (text []byte, err error) {
	if l.fields["plugins"], err = json.Marshal(plugins); err != nil {
		return nil, err
	}
	return json.MarshalIndent(l.fields, "", "  ")
}
