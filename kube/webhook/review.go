package webhook

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strings"
	"unicode/utf8"

	admission "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
)

// refusal is an HTTP error instead of a review.
type refusal struct {
	code int
	text string
}

func (r refusal) Error() string { return r.text }

// review is the API server's request and the size of its object.
type review struct {
	admission.AdmissionRequest
	values int
	from   string // the client's address
}

// readReview reads the API server's request, with the object if it is within the limits. An excessError means that it is
// not, and comes with a review that can be answered. Memory beyond firstRead is reserved as the body arrives.
func readReview(w http.ResponseWriter, r *http.Request, maxBody int64, take func(n int) bool) (*review, error) {
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		return nil, refusal{http.StatusMethodNotAllowed, "the method must be POST"}
	}
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		return nil, refusal{http.StatusUnsupportedMediaType, fmt.Sprintf("Content-Type is %s: must be application/json", brief(r.Header.Get("Content-Type")))}
	}
	var s scanner
	out := &review{from: host(r.RemoteAddr)}
	body := http.MaxBytesReader(w, r.Body, maxBody)
	kept := make([]byte, 0, firstRead)
	var rest []byte
	for {
		into := rest
		if s.end == 0 {
			if len(kept) == cap(kept) {
				if !take(cap(kept)) {
					return s.excess(out, excessError{"too many reviews at once"})
				}
				kept = append(make([]byte, 0, 2*cap(kept)), kept...)
			}
			into = kept[len(kept):cap(kept)]
		} else if rest == nil { // nothing behind the object is needed
			rest = make([]byte, firstRead)
			into = rest
		}
		n, err := body.Read(into)
		if s.end == 0 {
			kept = kept[:len(kept)+n]
		}
		if wrong := s.write(into[:n]); wrong != nil {
			return s.excess(out, wrong)
		}
		if r.ContentLength > maxBody && len(s.uid) > 0 {
			return s.excess(out, &http.MaxBytesError{Limit: maxBody})
		}
		switch {
		case errors.Is(err, io.EOF):
			return s.review(out, kept)
		case err != nil:
			return s.excess(out, err)
		}
	}
}

// firstRead is the size of the first buffer, in bytes: most reviews fit, and the fields for an answer always do.
const firstRead = 8 << 10

// excess ends a body that is not read completely. The part that was read is enough for an answer if it has the API
// server's order of fields.
func (s *scanner) excess(out *review, err error) (*review, error) {
	switch tooLarge := (*http.MaxBytesError)(nil); {
	case errors.As(err, &tooLarge):
		err = excessError{fmt.Sprintf("the body has more than %d bytes", tooLarge.Limit)}
	case !errors.As(err, &excessError{}):
		return nil, refusal{http.StatusBadRequest, fmt.Sprintf("the body is not an AdmissionReview: %v", err)}
	}
	if s.identify(out) != nil {
		return nil, refusal{http.StatusRequestEntityTooLarge, err.Error()}
	}
	return out, err
}

// review is a body that has been read to its end.
func (s *scanner) review(out *review, body []byte) (*review, error) {
	if err := s.finish(); err != nil {
		return nil, refusal{http.StatusBadRequest, fmt.Sprintf("the body is not an AdmissionReview: %v", err)}
	}
	if err := s.identify(out); err != nil {
		return nil, err
	}
	out.Object, out.values = runtime.RawExtension{Raw: body[s.start:s.end]}, s.values
	return out, nil
}

// identify takes the fields that an answer needs.
func (s *scanner) identify(out *review) error {
	want := metav1.TypeMeta{APIVersion: admission.SchemeGroupVersion.String(), Kind: "AdmissionReview"}
	if kind := (metav1.TypeMeta{APIVersion: text(s.apiVersion), Kind: text(s.kind)}); kind != want {
		return refusal{http.StatusBadRequest, fmt.Sprintf("the body is %s %s: must be %s %s (admissionReviewVersions: [v1])", brief(kind.APIVersion), brief(kind.Kind), want.APIVersion, want.Kind)}
	}
	out.UID, out.Operation = types.UID(text(s.uid)), admission.Operation(text(s.operation))
	out.SubResource, out.Namespace = text(s.sub), text(s.namespace)
	if out.UID == "" {
		return refusal{http.StatusBadRequest, "the AdmissionReview has no request, or one without a uid"}
	}
	return nil
}

// encodeReview writes the response in a review of the same version.
func encodeReview(request *review, response *admission.AdmissionResponse) ([]byte, error) {
	response.UID = request.UID
	response.Warnings = bounded(response.Warnings)
	return json.Marshal(admission.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: admission.SchemeGroupVersion.String(), Kind: "AdmissionReview"},
		Response: response,
	})
}

// The API server may cut warnings longer than this, and drops those beyond 4096 in
// all, bytes.
const (
	maxWarning  = 256
	maxWarnings = 4096
)

func bounded(warnings []string) []string {
	out, sum := warnings[:0:0], 0
	for _, text := range warnings {
		text = strings.Join(strings.Fields(text), " ")
		if len(text) > maxWarning {
			text = cut(text, maxWarning-len("…")) + "…"
		}
		if sum += len(text); sum > maxWarnings {
			break
		}
		out = append(out, text)
	}
	return out
}

// cut shortens at a rune's boundary.
func cut(text string, n int) string {
	for n > 0 && !utf8.RuneStart(text[n]) {
		n--
	}
	return text[:n]
}

// brief is a client's text for a message.
func brief(text string) string {
	if len(text) > 80 {
		text = cut(text, 80) + "…"
	}
	return fmt.Sprintf("%q", text)
}
