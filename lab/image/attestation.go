package main

import (
	"encoding/json"
	"path"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// What BuildKit's attestation storage says (docs/attestations/attestation-storage.md there): a
// manifest in the image's index, for no platform, that names the image's digest; in it one
// in-toto statement.
const (
	inTotoType     = "application/vnd.in-toto+json"
	statementType  = "https://in-toto.io/Statement/v0.1"
	predicateSPDX  = "https://spdx.dev/Document"
	unknown        = "unknown"
	referenceType  = "vnd.docker.reference.type"
	referenceTo    = "vnd.docker.reference.digest"
	predicateField = "in-toto.io/predicate-type"
)

type statement struct {
	Type          string          `json:"_type"`
	PredicateType string          `json:"predicateType"`
	Subject       []subject       `json:"subject"`
	Predicate     json.RawMessage `json:"predicate"`
}

type subject struct {
	Name   string            `json:"name"`
	Digest map[string]string `json:"digest"`
}

// attest adds the list of an image's software to its index.
func attest(b built) (mutate.IndexAddendum, error) {
	var none mutate.IndexAddendum
	digest, err := b.image.Digest()
	if err != nil {
		return none, err
	}
	text, err := json.Marshal(statement{
		Type: statementType, PredicateType: predicateSPDX, Predicate: b.sbom,
		Subject: []subject{{Name: path.Join(b.platform.OS, b.platform.Architecture), Digest: map[string]string{digest.Algorithm: digest.Hex}}},
	})
	if err != nil {
		return none, err
	}
	img := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	img, err = mutate.ConfigFile(img, &v1.ConfigFile{OS: unknown, Architecture: unknown, RootFS: v1.RootFS{Type: "layers"}})
	if err != nil {
		return none, err
	}
	img, err = mutate.Append(img, mutate.Addendum{
		Layer:       static.NewLayer(text, inTotoType),
		Annotations: map[string]string{predicateField: predicateSPDX},
	})
	return mutate.IndexAddendum{Add: img, Descriptor: v1.Descriptor{
		Platform:    &v1.Platform{OS: unknown, Architecture: unknown},
		Annotations: map[string]string{referenceType: "attestation-manifest", referenceTo: digest.String()},
	}}, err
}
