package main

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// SPDX 2.3 (spdx.github.io/spdx-spec/v2.3), the part that a Go program's build information covers.
type spdxDocument struct {
	Version           string         `json:"spdxVersion"`
	DataLicense       string         `json:"dataLicense"`
	ID                string         `json:"SPDXID"`
	Name              string         `json:"name"`
	DocumentNamespace string         `json:"documentNamespace"`
	CreationInfo      spdxCreation   `json:"creationInfo"`
	Packages          []spdxPackage  `json:"packages"`
	Relationships     []spdxRelation `json:"relationships"`
}

type spdxCreation struct {
	Created  string   `json:"created"`
	Creators []string `json:"creators"`
}

type spdxPackage struct {
	ID               string         `json:"SPDXID"`
	Name             string         `json:"name"`
	Version          string         `json:"versionInfo,omitempty"`
	FileName         string         `json:"packageFileName,omitempty"`
	DownloadLocation string         `json:"downloadLocation"`
	FilesAnalyzed    bool           `json:"filesAnalyzed"`
	LicenseConcluded string         `json:"licenseConcluded"`
	LicenseDeclared  string         `json:"licenseDeclared"`
	Copyright        string         `json:"copyrightText"`
	Checksums        []spdxChecksum `json:"checksums,omitempty"`
	ExternalRefs     []spdxExternal `json:"externalRefs,omitempty"`
	Purpose          string         `json:"primaryPackagePurpose,omitempty"`
}

type spdxChecksum struct {
	Algorithm string `json:"algorithm"`
	Value     string `json:"checksumValue"`
}

type spdxExternal struct {
	Category string `json:"referenceCategory"`
	Type     string `json:"referenceType"`
	Locator  string `json:"referenceLocator"`
}

type spdxRelation struct {
	From string `json:"spdxElementId"`
	Type string `json:"relationshipType"`
	To   string `json:"relatedSpdxElement"`
}

const (
	spdxDocumentID = "SPDXRef-DOCUMENT"
	noAssertion    = "NOASSERTION"
)

// spdx lists what the programs of an image were made of, by what the Go linker wrote into them.
// What is no Go program is listed as a file.
func (r *recipe) spdx(p v1.Platform, entries map[string]entry) ([]byte, error) {
	license := cmp.Or(r.labels[labelPrefix+"licenses"], noAssertion)
	modules := map[string]spdxPackage{}
	doc := spdxDocument{
		Version: "SPDX-2.3", DataLicense: "CC0-1.0", ID: spdxDocumentID, Name: fullName(r.names[0]) + " " + p.String(),
		CreationInfo: spdxCreation{Created: r.created.Format(time.RFC3339), Creators: []string{"Tool: lastcall-tools-image"}},
	}
	whole := sha256.New()
	for _, dest := range slices.Sorted(maps.Keys(entries)) {
		e := entries[dest]
		if e.source == "" {
			continue
		}
		content, err := os.ReadFile(e.source)
		if err != nil {
			return nil, err
		}
		sum := sha256.Sum256(content)
		_, _ = whole.Write(sum[:])
		own := spdxPackage{
			ID: spdxID("File", dest), Name: path.Base(dest), FileName: "/" + dest, DownloadLocation: noAssertion,
			LicenseConcluded: noAssertion, LicenseDeclared: noAssertion, Copyright: noAssertion, Purpose: "FILE",
			Checksums: []spdxChecksum{{"SHA256", hex.EncodeToString(sum[:])}},
		}
		info, err := buildinfo.Read(bytes.NewReader(content))
		if err == nil {
			own.Purpose, own.LicenseDeclared = "APPLICATION", license
			own.Version = cmp.Or(r.labels[labelPrefix+"version"], info.Main.Version)
			for _, m := range contained(info) {
				modules[m.ID] = m
				doc.Relationships = append(doc.Relationships, spdxRelation{own.ID, "CONTAINS", m.ID})
			}
		}
		doc.Packages = append(doc.Packages, own)
		doc.Relationships = append(doc.Relationships, spdxRelation{spdxDocumentID, "DESCRIBES", own.ID})
	}
	if len(doc.Packages) == 0 {
		return nil, errors.New("--sbom: there is no file to list")
	}
	for _, id := range slices.Sorted(maps.Keys(modules)) {
		doc.Packages = append(doc.Packages, modules[id])
	}
	_, _ = io.WriteString(whole, doc.Name)
	// The namespace is to be another one for each other document; nothing need answer there.
	doc.DocumentNamespace = fmt.Sprintf("https://spdx.org/spdxdocs/lastcall-%x", whole.Sum(nil)[:16])
	out, err := json.MarshalIndent(doc, "", "  ")
	return append(out, '\n'), err
}

// contained are the modules of a program, the standard library among them.
func contained(info *debug.BuildInfo) []spdxPackage {
	out := []spdxPackage{module("stdlib", strings.TrimPrefix(info.GoVersion, "go"), "https://go.dev/dl/")}
	for _, m := range info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		out = append(out, module(m.Path, m.Version, noAssertion))
	}
	return out
}

func module(name, version, from string) spdxPackage {
	p := spdxPackage{
		ID: spdxID("Module", name+"@"+version), Name: name, Version: version, DownloadLocation: from,
		LicenseConcluded: noAssertion, LicenseDeclared: noAssertion, Copyright: noAssertion, Purpose: "LIBRARY",
	}
	if version != "" {
		p.ExternalRefs = []spdxExternal{{"PACKAGE-MANAGER", "purl", "pkg:golang/" + name + "@" + strings.ReplaceAll(version, "+", "%2B")}}
	}
	return p
}

var notInID = regexp.MustCompile(`[^A-Za-z0-9.-]+`)

// spdxID makes an identifier of letters, digits, dots and hyphens, all that SPDX takes.
func spdxID(kind, text string) string {
	sum := sha256.Sum256([]byte(text)) // two names may become one
	return fmt.Sprintf("SPDXRef-%s-%s-%x", kind, notInID.ReplaceAllString(text, "-"), sum[:3])
}
