package inject

import (
	"encoding/json"
	"fmt"
	"strconv"

	kjson "sigs.k8s.io/json"
)

// object is one object of a document: the document itself, or an item of its list.
type object struct {
	path string // JSON pointer in the document
	text []byte
}

func (o object) where() string {
	if o.path == "" {
		return ""
	}
	return o.path + ": "
}

// unlist returns the objects of a document: itself, or the items of a List, including nested lists. A document that is not
// an object has none.
func unlist(text []byte, path string) ([]object, error) {
	var list struct {
		APIVersion string            `json:"apiVersion"`
		Kind       string            `json:"kind"`
		Items      []json.RawMessage `json:"items"`
	}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(text, &list); err != nil {
		return nil, nil // comments only, or not a Kubernetes object
	}
	if list.Kind != "List" || list.APIVersion != "v1" {
		return []object{{path, text}}, nil
	}
	var out []object
	for i, item := range list.Items {
		inner, err := unlist(item, at(path+"/items", strconv.Itoa(i)))
		if err != nil {
			return nil, fmt.Errorf("item %d: %w", i, err)
		}
		out = append(out, inner...)
	}
	return out, nil
}
