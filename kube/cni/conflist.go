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
// returned unchanged.
func insert(text []byte) ([]byte, error) { return chain(text, true) }

// remove returns the list without the plugin.
func remove(text []byte) ([]byte, error) { return chain(text, false) }

// chain reads only the list's plugins; all other fields stay.
func chain(text []byte, isIn bool) ([]byte, error) {
	var fields map[string]json.RawMessage
	var all, others []json.RawMessage
	if err := json.Unmarshal(text, &fields); err != nil {
		return text, err
	}
	if err := json.Unmarshal(fields["plugins"], &all); err != nil {
		return text, fmt.Errorf("it has no list of plugins, to which %s could be added: %w", Name, err)
	}
	hasEntry := false // of this version
	for _, one := range all {
		var plugin struct{ Type string }
		var compact bytes.Buffer
		if err := errors.Join(json.Unmarshal(one, &plugin), json.Compact(&compact, one)); err != nil {
			return text, err
		}
		if plugin.Type != Name {
			others = append(others, one)
		} else if compact.String() == entry {
			hasEntry = true
		}
	}
	switch {
	case len(others) == 0:
		return text, errors.New("it has no plugin but " + Name)
	case isIn && hasEntry, !isIn && len(others) == len(all):
		return text, nil
	case isIn:
		others = append(others, json.RawMessage(entry))
	}
	plugins, err := json.Marshal(others)
	if err != nil {
		return text, err
	}
	fields["plugins"] = plugins
	return json.MarshalIndent(fields, "", "  ")
}
