package meshconfig

// unwrap finds the MeshConfig inside what is often pasted around it: an IstioOperator, Helm values, or the ConfigMap
// named istio.
func (r *resolver) unwrap(l *layer, content tree) (tree, []string) {
	var path []string
	for range 3 { // a ConfigMap of Helm values is the deepest
		inner, kind, key := content, "", []string(nil)
		if spec, ok := content["spec"].(tree); ok {
			if m, ok := spec["meshConfig"].(tree); ok {
				inner, kind, key = m, "an IstioOperator", []string{"spec", "meshConfig"}
			}
		}
		if m, ok := content["meshConfig"].(tree); ok {
			inner, kind, key = m, "Helm values", []string{"meshConfig"}
		}
		if data, ok := content["data"].(tree); ok {
			if text, ok := data["mesh"].(string); ok {
				m, _, err := parseTree(text)
				if err != nil {
					r.fail(&FieldError{Field: dotted(join(path, "data", "mesh")), Value: "not readable", Source: l.at(join(path, "data", "mesh")), Accepts: "a MeshConfig as YAML", Err: err})
					return tree{}, path
				}
				inner, kind, key = m, "a ConfigMap", []string{"data", "mesh"}
			}
		}
		if key == nil {
			break
		}
		path = join(path, key...)
		r.warn(l.at(path), dotted(path), "wrapped as in %s: lastcall unwraps it, Istio's proxy would not", kind)
		content = inner
	}
	return content, path
}
