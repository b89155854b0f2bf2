package inject

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	yamlv3 "go.yaml.in/yaml/v3"
	"sigs.k8s.io/yaml"

	"github.com/lastcall-dev/lastcall/kube/manifest"
)

const commented = `# The shop's front.
apiVersion: apps/v1
kind: Deployment
metadata:
  name: web # as the Service has it
spec:
  template:
    spec:
      # Requests take up to 20 s.
      terminationGracePeriodSeconds: 60
      containers:
      - name: web
        image: "web:1" # pinned
        command: [web, --port, "8080"]
        env:
        - {name: SWITCH, value: "yes"}
        - name: TEXT
          value: |
            one
            # no comment
        ports: [{containerPort: 8080}]
# The end.
`

// TestCommentsStay: each line of a manifest is in the injected one, in its order, comments and styles too.
func TestCommentsStay(t *testing.T) {
	for name, text := range map[string]string{
		"as it is": commented,
		"anchors": strings.Replace("x-label: &label {a: b}\n"+commented, "\nmetadata:",
			"\nx-labels:\n  <<: *label # both\nmetadata:", 1),
		"lists indented": strings.NewReplacer("\n      - ", "\n        -   ", "\n        ",
			"\n            ").Replace(commented),
		"CRLF":   strings.ReplaceAll(commented, "\n", "\r\n"),
		"a BOM":  "\ufeff" + commented,
		"an end": commented + "...\n",
		"wide":   strings.ReplaceAll(strings.ReplaceAll(commented, " # ", "   # "), "\n  ", "\n\n     "),
	} {
		out, _, err := Manifest([]byte(text), offline)
		if err != nil || string(out) == text {
			t.Fatalf("%s: %v", name, err)
		}
		rest := string(out)
		for line := range strings.Lines(text) {
			_, after, found := strings.Cut(rest, line)
			if !found {
				t.Fatalf("%s: %q is not in the rest, or not in its place:\n%s", name, line, out)
			}
			rest = after
		}
	}
}

// TestFlowKeepsComments: a document in flow style becomes one in block style, with its comments once.
func TestFlowKeepsComments(t *testing.T) {
	const text = "--- # doc\n# top\n" + deployment + "\n# end"
	out, _, err := Manifest([]byte(text), offline)
	if err != nil || !strings.HasPrefix(string(out), "--- # doc\n# top\napiVersion") ||
		!strings.HasSuffix(string(out), "\n# end") ||
		strings.Count(string(out), "#") != 3 {
		t.Errorf("%v:\n%s", err, out)
	}
}

// TestEditsAgree: the YAML that keeps its lines says the same as the JSON Patch, whatever layout the text has.
func TestEditsAgree(t *testing.T) {
	files, err := filepath.Glob("testdata/manifests/*")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	edited := 0
	for _, file := range files {
		for _, d := range manifest.Documents(readFile(t, file)) {
			if editsAgree(t, d.Text) != nil {
				edited++
			}
		}
	}
	if edited < 5 {
		t.Errorf("%d documents compared", edited)
	}
}

// TestLayoutStays: the same with any layout, of which the comments stay.
func TestLayoutStays(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	edited, kept, all := 0, 0, 0
	for i, pod := range Pods(3, 150) {
		text := laidOut(t, random, pod, i)
		out := editsAgree(t, text)
		if out == nil {
			continue
		}
		edited++
		comment := []byte("# a comment")
		kept, all = kept+bytes.Count(out, comment), all+bytes.Count(text, comment)
	}
	t.Logf("of %d documents, %d of %d comments stay", edited, kept, all) // not those within what is removed
	if edited < 90 || kept*100 < all*95 {
		t.Error("too few")
	}
}

// laidOut is a pod in one of the layouts that people give it, with comments and blank lines anywhere.
func laidOut(t *testing.T, random *rand.Rand, pod any, i int) []byte {
	t.Helper()
	text, err := yaml.Marshal(pod)
	if err != nil {
		t.Fatal(err)
	}
	var root yamlv3.Node
	if err := yamlv3.Unmarshal(text, &root); err != nil {
		t.Fatal(err)
	}
	var style func(n *yamlv3.Node)
	style = func(n *yamlv3.Node) {
		if n.Kind != yamlv3.ScalarNode && random.IntN(12) == 0 && n != &root && n != root.Content[0] {
			n.Style |= yamlv3.FlowStyle
		}
		for _, c := range n.Content {
			style(c)
		}
	}
	style(&root)
	var out bytes.Buffer
	encoder := yamlv3.NewEncoder(&out)
	encoder.SetIndent(2 + 2*(i%2))
	if i%3 == 0 {
		encoder.CompactSeqIndent()
	}
	if err := errors.Join(encoder.Encode(&root), encoder.Close()); err != nil {
		t.Fatal(err)
	}
	result := "apiVersion: v1\nkind: Pod # a pod\n"
	if i%5 == 0 {
		result = "--- # first\n" + result
	}
	for line := range strings.Lines(out.String()) {
		switch random.IntN(8) {
		case 0:
			result += "\n"
		case 1:
			result += strings.Repeat(" ", random.IntN(12)) + "# a comment: [of {no use\n"
		}
		result += line
	}
	switch i % 7 {
	case 0:
		result = strings.ReplaceAll(result, "\n", "\r\n")
	case 1:
		result = strings.TrimSuffix(result, "\n")
	}
	return []byte(result)
}

// TestSharedNodes: what an anchor, an alias or a merge stands for is changed only where it is meant.
func TestSharedNodes(t *testing.T) {
	const served = "image: web, ports: [{containerPort: 80}]"
	web := shared("- {name: web, " + served + "}")
	for name, text := range map[string]string{
		"an anchored image": shared("- name: web\n        image: &image web # all\n"+
			"        ports: [{containerPort: 80}]") + "x: *image\n",
		"an aliased template": strings.Replace(web, "template:", "template: &pod", 1) + "x: *pod\n",
		"a merged container": "x: &base {" + served + ", lifecycle: {preStop: {sleep: {seconds: 9}}}}\n" +
			shared("- {<<: *base, name: web}"),
		"a merge that stays": "x: &base {imagePullPolicy: Always}\n" + shared("- <<: *base # all\n"+
			"        name: web\n        image: web\n        ports: [{containerPort: 80}]"),
		"labels that are shared": strings.NewReplacer(
			"{matchLabels: {app: web}}", "{matchLabels: &labels {app: web}} # all",
			"metadata: {labels: {app: web}}", "metadata:\n      labels: *labels # here").Replace(web),
		"a list that is shared": "x: &ports [{containerPort: 80}]\n" +
			shared("- {name: web, image: web, ports: *ports}"),
		"a hook that stands twice": shared("- {name: web, " + served +
			strings.Repeat(", lifecycle: {preStop: {sleep: {seconds: 9}}}", 2) + "}"),
		"a hook that is an alias": "x: &hook {sleep: {seconds: 9}}\n" +
			shared("- {name: web, "+served+", lifecycle: {preStop: *hook}}"),
	} {
		if got := editsAgree(t, []byte(text)); got == nil {
			t.Errorf("%s: no edit", name)
		} else if isKept := strings.Contains(string(got), "# all"); isKept != strings.Contains(text, "# all") {
			t.Errorf("%s: the comment is lost:\n%s", name, got)
		}
	}
}

// shared is a Deployment with a container.
func shared(container string) string {
	return "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\n" +
		"spec:\n  selector: {matchLabels: {app: web}}\n  template:\n    metadata: {labels: {app: web}}\n" +
		"    spec:\n      containers:\n      " + container + "\n"
}

// editsAgree returns a document with its edits, if there are any.
func editsAgree(t *testing.T, text []byte) []byte {
	t.Helper()
	d := &manifest.Document{Text: text, Line: 1}
	objects, problems := d.Objects()
	got, _, err := inject(d, objects, offline)
	if err != nil {
		t.Fatalf("%v of\n%s", err, text)
	}
	if bytes.Equal(got, text) || len(problems) > 0 {
		return nil
	}
	// A separator of lines makes the other way the only one.
	_, rest, _ := bytes.Cut(append([]byte("\n"), bytes.TrimPrefix(text, []byte("---"))...), []byte("\n"))
	want, _, err := inject(&manifest.Document{Text: append([]byte("x-other: \"\u2028\"\n"), rest...)}, objects, offline)
	if err != nil {
		return nil // the document is not in block style
	}
	var a, b map[string]any
	if err := yaml.Unmarshal(got, &a); err != nil {
		t.Fatalf("%v:\n%s", err, got)
	}
	if err := yaml.Unmarshal(want, &b); err != nil {
		t.Fatal(err)
	}
	delete(b, "x-other")
	if !reflect.DeepEqual(a, b) {
		t.Errorf("the two ways differ:\n%s\n%s\nof\n%s", got, want, text)
	}
	return got
}

// TestTexts: the API server's parser, of YAML 1.1, reads every text and key that injection adds as it is.
func TestTexts(t *testing.T) {
	for _, text := range []string{
		"yes", "on", "Off", "y", "N", "true", "null", "~", "", "12:30:00", "1_000", "0x1f", "0o17", "017", "0b11",
		"1e3",
		".NaN", "2024-01-01", "=", "<<", "- a", "a: b", "x: ", ":", "?", "? a", "---", "...", "#x", "x #y", "&a", "*a",
		"!x", "@x", "`x", "%x", "'", " a", "a\nb", "a\n", "\n a", "a\n b\n\n", "\ta", "a\rb", "é", "\u0085", "0.5Gi",
	} {
		added, err := yamlv3.Marshal(nodeOf(map[string]any{"text": text, text: "key"}))
		if err != nil {
			t.Fatal(err)
		}
		var got map[string]string
		if err := yaml.UnmarshalStrict(added, &got); err != nil || got["text"] != text || got[text] != "key" {
			t.Errorf("%q is read as %q, %v:\n%s", text, got, err, added)
		}
	}
}
