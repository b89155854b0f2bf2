package webhook

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"runtime"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/semaphore"
	admission "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lastcall-dev/lastcall/internal/printable"
	"github.com/lastcall-dev/lastcall/internal/sidecar/statusserver"
	"github.com/lastcall-dev/lastcall/internal/sidecar/terminal"
)

// refusal is an HTTP error instead of a review; with code 0 an object beyond the limits, which is admitted unchanged.
type refusal struct {
	code int
	text string
}

func (r refusal) Error() string { return r.text }

// firstRead is the size of the first buffer, in bytes: most reviews fit, and the fields for an answer always do.
const firstRead = 8 << 10

// readReview reads the API server's request, with the object if it is within the limits. If it is not, the review can
// be answered nevertheless. The error is a refusal. Memory beyond firstRead is reserved as the body arrives.
func (l *limits) readReview(ctx context.Context, w http.ResponseWriter, r *http.Request, maxBody int64,
	held *statusserver.Slot) (*review, error) {
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		return nil, refusal{http.StatusMethodNotAllowed, "the method must be POST"}
	}
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		text := fmt.Sprintf("Content-Type is %s: must be application/json", brief(r.Header.Get("Content-Type")))
		return nil, refusal{http.StatusUnsupportedMediaType, text}
	}
	body := io.Reader(http.MaxBytesReader(w, r.Body, maxBody))
	if r.ContentLength > maxBody {
		body = io.LimitReader(body, firstRead)
	}
	text, err := readBody(body, held)
	if tooLarge := (*http.MaxBytesError)(nil); errors.As(err, &tooLarge) || r.ContentLength > maxBody {
		err = excess("the body has more than %d bytes", int(maxBody))
	} else if err != nil && !held.Grow(0) {
		err = refusal{text: tooMany}
	}
	out := &review{}
	if err == nil {
		if leave, isMine := l.slot(ctx, len(text), 0); isMine {
			defer leave()
			err = out.read(text)
		} else {
			err = refusal{text: tooMany}
		}
	}
	if err != nil {
		no, isExcess := errors.AsType[refusal](err)
		if !isExcess {
			return nil, refusal{http.StatusBadRequest, fmt.Sprintf("the body is not an AdmissionReview: %v", err)}
		}
		if out.Request.UID == "" { // the part that was read is enough for an answer
			_ = out.read(text[:min(len(text), firstRead)])
		}
		if out.identify() != nil {
			no.code = http.StatusRequestEntityTooLarge
		}
		return out, no
	}
	return out, out.identify()
}

// readBody reads a body. If its memory is not available, it returns the part that fits.
func readBody(body io.Reader, held *statusserver.Slot) ([]byte, error) {
	text := make([]byte, 0, firstRead)
	for {
		n, err := body.Read(text[len(text):cap(text)])
		text = text[:len(text)+n]
		switch {
		case errors.Is(err, io.EOF):
			return text, nil
		case err != nil:
			return text, err
		case len(text) < cap(text):
		case !held.Grow(cap(text)):
			return text, refusal{text: tooMany}
		default:
			text = append(make([]byte, 0, 2*cap(text)), text...)
		}
	}
}

// identify reports the fields that an answer lacks.
func (r *review) identify() error {
	want := metav1.TypeMeta{APIVersion: admission.SchemeGroupVersion.String(), Kind: "AdmissionReview"}
	if r.TypeMeta != want {
		return refusal{http.StatusBadRequest, fmt.Sprintf("the body is %s %s: must be %s %s (admissionReviewVersions: [v1])",
			brief(r.APIVersion), brief(r.Kind), want.APIVersion, want.Kind)}
	}
	if r.Request.UID == "" {
		return refusal{http.StatusBadRequest, "the AdmissionReview has no request, or one without a uid"}
	}
	return nil
}

// encodeReview writes the response in a review of the same version.
func encodeReview(request *review, response *admission.AdmissionResponse) ([]byte, error) {
	response.UID = request.Request.UID
	response.Warnings = bounded(response.Warnings)
	return json.Marshal(admission.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: admission.SchemeGroupVersion.String(), Kind: "AdmissionReview"},
		Response: response,
	})
}

// The API server may cut warnings longer than this, and drops those beyond 4096 in all, bytes.
const (
	maxWarning  = 256
	maxWarnings = 4096
)

func bounded(warnings []string) []string {
	out, sum := warnings[:0:0], 0
	for _, text := range warnings {
		text = terminal.Shorten(printable.Text(strings.Join(strings.Fields(text), " ")), maxWarning)
		if sum += len(text); sum > maxWarnings {
			break
		}
		out = append(out, text)
	}
	return out
}

// brief is a client's text for a message.
func brief(text string) string { return strconv.Quote(terminal.Shorten(text, 80)) }

// Limits of everything that clients make the server hold. With them its memory stays below 128 MiB for any input.
const (
	maxConnections = 128      // for reviews; shared among addresses
	maxHeld        = 24 << 20 // bytes of requests, bodies and answers; shared among addresses
	requestSize    = 16 << 10 // bytes that a request holds with its first buffer
	maxPatch       = 1 << 20  // bytes
	maxAround      = 64 << 10 // bytes of a review that are not its object
	maxHeaders     = 8 << 10  // bytes of a request's header
	SoftLimit      = 64 << 20 // the value for debug.SetMemoryLimit, in bytes
)

// Larger reviews are rare: they are examined one at a time, with pauses, and use at most a fifth of one processor.
const (
	smallObject = 64 << 10
	smallValues = 1_000
	largePause  = 4 // times the duration of the previous one
)

// The time limit of a review: the API server's, which is in the query (timeout=5s), less the time to send the answer.
const (
	defaultTime = 3 * time.Second
	longestTime = 10 * time.Second
)

// limits are the limits of one server.
type limits struct {
	held  *statusserver.Slots // bytes
	slots *semaphore.Weighted // to examine reviews: as many as processors
	large *semaphore.Weighted // no more than one of them
}

func newLimits() limits {
	return limits{
		held: statusserver.NewSlots(maxHeld), slots: semaphore.NewWeighted(int64(runtime.GOMAXPROCS(0))),
		large: semaphore.NewWeighted(1),
	}
}

// slot waits until a review of this size may be examined; false if its time has passed before.
func (l *limits) slot(ctx context.Context, size, values int) (leave func(), isMine bool) {
	isLarge := size > smallObject || values > smallValues
	if isLarge && l.large.Acquire(ctx, 1) != nil {
		return nil, false
	}
	if l.slots.Acquire(ctx, 1) != nil {
		if isLarge {
			l.large.Release(1)
		}
		return nil, false
	}
	began := time.Now()
	return func() {
		l.slots.Release(1)
		if isLarge {
			time.AfterFunc(largePause*time.Since(began), func() { l.large.Release(1) })
		}
	}, true
}

// timeFor is the time limit of a request.
func timeFor(r *http.Request) time.Duration {
	d, err := time.ParseDuration(r.URL.Query().Get("timeout"))
	if err != nil || d <= 0 {
		return defaultTime
	}
	return min(d, longestTime) * 4 / 5
}

// Limits of an object under review. For comparison: an API server stores at most 1.5 MiB, and a pod of 50 containers
// with 40 variables each has 7,000 values. They limit the decoded size: {} is 3 bytes of text, but as a container it
// takes some 3 KiB in the pod, its copy and its patch.
const (
	maxObject   = 2 << 20 // bytes
	maxValues   = 10_000  // objects, lists and scalars
	maxElements = 1_000   // of one list
	maxDepth    = 100     // with the review around it
)

// maxField is the longest text field of a review outside the object, in bytes.
const maxField = 1 << 10

// excess is the refusal of an object beyond a limit.
func excess(format string, limit int) error { return refusal{text: fmt.Sprintf(format, limit)} }

// review is the API server's request, as far as an answer needs it, and the size of its object.
type review struct {
	metav1.TypeMeta
	Request struct {
		UID         types.UID
		Namespace   string
		Operation   admission.Operation
		SubResource string
		Object      json.RawMessage
	}
	values int
}

// read reads a review and measures its object. If the text is cut off, or nested too deep, the fields before the object
// are read, as the API server orders them.
func (r *review) read(text []byte) error {
	err := json.Unmarshal(text, r)
	object := []byte(r.Request.Object)
	if err != nil {
		var head []byte
		head, object, _ = bytes.Cut(text, []byte(`"object":`))
		*r = review{}
		if json.Unmarshal(append(bytes.Clone(head), `"object":null}}`...), r) != nil {
			return err
		}
	}
	q := &r.Request
	if max(len(q.UID), len(q.Namespace), len(q.Operation), len(q.SubResource)) > maxField {
		return fmt.Errorf("a field of the review is longer than %d bytes", maxField)
	}
	if tooLarge := r.measure(object); tooLarge != nil {
		return tooLarge
	}
	return err
}

// measure counts the values of an object, as far as its JSON text goes: it may be cut off.
func (r *review) measure(object []byte) error {
	if len(object) > maxObject {
		return excess("the object is larger than %d bytes", maxObject)
	}
	const around = 2 // the review and its request
	r.values = 0
	err := r.count(json.NewDecoder(bytes.NewReader(object)), around)
	if no, isExcess := errors.AsType[refusal](err); isExcess {
		return no
	}
	return nil // what is no JSON is read's error
}

// count counts one value and those in it.
func (r *review) count(text *json.Decoder, depth int) error {
	token, err := text.Token()
	if r.values++; err == nil && r.values > maxValues {
		err = excess("the object has more than %d values", maxValues)
	}
	open, isOpen := token.(json.Delim)
	if err != nil || !isOpen {
		return err
	}
	if depth++; depth > maxDepth {
		return excess("the review is nested deeper than %d", maxDepth)
	}
	for n := 0; text.More(); n++ {
		if open == '{' {
			_, err = text.Token() // its name
		} else if n == maxElements {
			err = excess("a list of the object has more than %d elements", maxElements)
		}
		if err == nil {
			err = r.count(text, depth)
		}
		if err != nil {
			return err
		}
	}
	_, err = text.Token()
	return err
}
