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
)

// maxBody is the most that a review may hold, bytes. The API server takes objects of
// 3 MiB at most, and a review of an update holds two.
const maxBody = 7 << 20

// refusal is an answer other than a review.
type refusal struct {
	code int
	text string
}

func (r refusal) Error() string { return r.text }

// readReview reads what the API server asks.
func readReview(w http.ResponseWriter, r *http.Request) (*admission.AdmissionReview, error) {
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		return nil, refusal{http.StatusMethodNotAllowed, "accepted is POST with an AdmissionReview"}
	}
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		return nil, refusal{http.StatusUnsupportedMediaType, fmt.Sprintf("Content-Type is %q: accepted is application/json", r.Header.Get("Content-Type"))}
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if tooLarge := (*http.MaxBytesError)(nil); errors.As(err, &tooLarge) {
		return nil, refusal{http.StatusRequestEntityTooLarge, fmt.Sprintf("the body has more than %d bytes", tooLarge.Limit)}
	}
	if err != nil {
		return nil, refusal{http.StatusBadRequest, fmt.Sprintf("read the body: %v", err)}
	}
	return parseReview(body)
}

func parseReview(body []byte) (*admission.AdmissionReview, error) {
	var kind metav1.TypeMeta
	if err := json.Unmarshal(body, &kind); err != nil {
		return nil, refusal{http.StatusBadRequest, fmt.Sprintf("the body is no AdmissionReview: %v", err)}
	}
	want := metav1.TypeMeta{APIVersion: admission.SchemeGroupVersion.String(), Kind: "AdmissionReview"}
	if kind != want {
		return nil, refusal{http.StatusBadRequest, fmt.Sprintf("the body is %s %s: accepted is %s %s (admissionReviewVersions: [v1])", brief(kind.APIVersion), brief(kind.Kind), want.APIVersion, want.Kind)}
	}
	var review admission.AdmissionReview
	if err := json.Unmarshal(body, &review); err != nil {
		return nil, refusal{http.StatusBadRequest, fmt.Sprintf("the body is no AdmissionReview: %v", err)}
	}
	if review.Request == nil || review.Request.UID == "" {
		return nil, refusal{http.StatusBadRequest, "the AdmissionReview has no request, or one without a uid"}
	}
	return &review, nil
}

// answerReview sends the response in a review of the same version.
func answerReview(w http.ResponseWriter, request *admission.AdmissionRequest, response *admission.AdmissionResponse) error {
	response.UID = request.UID
	response.Warnings = bounded(response.Warnings)
	text, err := json.Marshal(admission.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: admission.SchemeGroupVersion.String(), Kind: "AdmissionReview"},
		Response: response,
	})
	if err != nil {
		return fmt.Errorf("write the response: %w", err)
	}
	w.Header().Set("Content-Type", "application/json")
	_, err = w.Write(text)
	return err
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

// brief is somebody else's text for a message.
func brief(text string) string {
	if len(text) > 80 {
		text = cut(text, 80) + "…"
	}
	return fmt.Sprintf("%q", text)
}
