package untrusted

import (
	"bufio"
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/capacitorset/liqo-broker-vk/pkg/resources/quantity"
)

// A list is read in chunks, as kubectl does. The number of items is limited, for a provider that always has one more.
// Servers that ignore the limit of a chunk, as metrics-server does, may answer with all items at once.
const (
	chunkSize = 500
	maxItems  = 200 * chunkSize
)

const (
	// maxToken is several times the length of an API server's token for the next chunk (bytes).
	maxToken = 4 << 10
	// maxName is the longest name in Kubernetes, in quotes (bytes).
	maxName = 253 + 2
	// maxElements is several times the number of containers or conditions of a pod.
	maxElements = 256
)

// Lists is a resource of a provider in a namespace there.
type Lists struct {
	Client              rest.Interface
	Namespace, Resource string
	// Limit is the number of items in a chunk; 500 if it is 0.
	Limit int64
	// MetadataOnly requests only the metadata of the objects. Servers that do not support this answer with whole
	// objects.
	MetadataOnly bool
}

// Progress is the position in a list that is being read. Its zero value is the beginning.
type Progress struct {
	token string
	// limit is the limit of the next chunk: it is reduced when a chunk was too long or took too long.
	limit int64
	// used is the number of items that the chunks read so far could have had.
	used int
}

// List reads all chunks of a list at a provider and calls each with every item, see Next.
func List[T any](ctx context.Context, of Lists, options metav1.ListOptions, each func(*T)) error {
	for at := (Progress{}); ; {
		if done, err := Next(ctx, of, options, &at, each); done || err != nil {
			return err
		}
	}
}

// Next reads the next chunk of a list at a provider and calls each with every item. done reports that it was the last
// chunk. T has only the needed fields of an object: its texts should be Names, its lists Few, its amounts Quantities.
// Apart from the data that each keeps, one item at a time is in memory, as it was sent (4 MiB at most). The error is
// the API server's, or the error of a rejected answer. After an error, Next goes on from the same chunk, of which some
// items may have been read. A chunk that is too long, or not read within the deadline of ctx, is halved for the next
// time. A token that has expired is replaced by the token that the API server offers, or by the beginning.
func Next[T any](ctx context.Context, of Lists, options metav1.ListOptions, at *Progress, each func(*T)) (done bool, err error) {
	if at.limit == 0 {
		at.limit = cmp.Or(of.Limit, chunkSize)
	}
	options.Limit, options.Continue = at.limit, at.token
	left := maxItems - at.used
	next, err := chunk(ctx, of, options, &left, each)
	tooLong := (*TooLongError)(nil)
	switch {
	case err == nil && next == "":
		return true, nil
	case err == nil:
		at.token, at.used = next, max(at.used+int(at.limit), maxItems-left)
		if at.used >= maxItems {
			*at = Progress{}
			return false, fmt.Errorf("%s in remote namespace %s: more than %d items", of.Resource, of.Namespace, maxItems)
		}
		return false, nil
	case errors.As(err, &tooLong) && tooLong.Limit == maxList && at.limit > 1:
		at.limit /= 2
		return false, nil
	case errors.Is(ctx.Err(), context.DeadlineExceeded) && at.limit > 1:
		at.limit /= 2
	case kerrors.IsResourceExpired(err) || kerrors.IsGone(err):
		at.token = ""
		if status := kerrors.APIStatus(nil); errors.As(err, &status) && len(status.Status().Continue) <= maxToken {
			at.token = status.Status().Continue
		}
	}
	return false, err
}

// chunk reads one chunk of at most left items, and returns the token for the next one; "" if there is none.
func chunk[T any](ctx context.Context, of Lists, options metav1.ListOptions, left *int, each func(*T)) (next string, err error) {
	accept := runtime.ContentTypeJSON
	if of.MetadataOnly {
		accept = runtime.ContentTypeJSON + ";as=PartialObjectMetadataList;g=meta.k8s.io;v=v1," + accept
	}
	body, err := of.Client.Get().Namespace(of.Namespace).Resource(of.Resource).
		SpecificallyVersionedParams(&options, metav1.ParameterCodec, schema.GroupVersion{Version: "v1"}).
		SetHeader("Accept", accept).SetHeader("Accept-Encoding", compressed).MaxRetries(0).Stream(ctx)
	if err != nil {
		return "", err
	}
	defer body.Close()
	plain, err := decompressed(body)
	if err == nil {
		next, err = readList(ctx, plain, left, each)
	}
	if err == nil {
		return next, nil
	}
	if tooLong := (*TooLongError)(nil); ctx.Err() == nil && !errors.As(err, &tooLong) {
		err = errors.New(Text(err.Error())) // It may quote the provider's answer.
	}
	return "", fmt.Errorf("list of %s in remote namespace %s: %w", of.Resource, of.Namespace, err)
}

// decompressed returns a list as it was before it was compressed, of maxList bytes at most.
func decompressed(body io.ReadCloser) (io.Reader, error) {
	in := bufio.NewReader(body)
	if magic, err := in.Peek(2); err != nil || magic[0] != 0x1f || magic[1] != 0x8b { // RFC 1952; no JSON begins so.
		return in, nil //nolint:nilerr // The reader has the error, too.
	}
	plain, err := gzip.NewReader(in)
	if err != nil {
		return nil, err
	}
	return &boundedBody{ReadCloser: plain, limit: maxList, left: maxList}, nil
}

// listReader reads a list in JSON piece by piece.
type listReader struct {
	ctx     context.Context
	in      *allowance
	decoder *json.Decoder
}

// readList calls each with the items of a list in JSON, and returns the token with which the list continues.
func readList[T any](ctx context.Context, body io.Reader, left *int, each func(*T)) (next string, err error) {
	in := &allowance{Reader: body}
	l := &listReader{ctx: ctx, in: in, decoder: json.NewDecoder(in)}
	if err := l.expect('{'); err != nil {
		return "", err
	}
	found := false
	for l.more() {
		key, err := l.token()
		switch key {
		case "kind":
			err = l.kind()
		case "metadata":
			next, err = l.next()
		case "items":
			found, err = true, items(l, left, each)
		default:
			err = errors.Join(err, l.value(&skipped{}))
		}
		if err != nil {
			return "", err
		}
	}
	if err := l.expect('}'); err != nil {
		return "", err
	}
	if !found {
		return "", errors.New("the response is not a list")
	}
	return next, nil
}

func items[T any](l *listReader, left *int, each func(*T)) error {
	first, err := l.token()
	if first == nil || err != nil {
		return err // Kubernetes' libraries write null for an empty list, if they wrote it at all.
	}
	if first != json.Delim('[') {
		return errors.New("items is not an array")
	}
	for l.more() {
		var item T
		if err := l.value(&item); err != nil {
			return err
		}
		if *left--; *left < 0 {
			return fmt.Errorf("more than %d items", maxItems)
		}
		each(&item)
	}
	return l.expect(']')
}

func (l *listReader) kind() error {
	kind := Name("")
	if err := l.value(&kind); err != nil {
		return err
	}
	if kind != "" && !strings.HasSuffix(string(kind), "List") {
		return fmt.Errorf("the response is a %s, not a list", kind)
	}
	return nil
}

func (l *listReader) next() (token string, err error) {
	var metadata struct {
		Continue string `json:"continue"`
	}
	if err := l.value(&metadata); err != nil {
		return "", err
	}
	if len(metadata.Continue) > maxToken {
		return "", errors.New("the continue token is too long")
	}
	return metadata.Continue, nil
}

// allow limits the next piece to the size of an object.
func (l *listReader) allow() { l.in.left = l.decoder.InputOffset() + maxObject - l.in.read }

func (l *listReader) more() bool {
	l.allow()
	return l.decoder.More()
}

func (l *listReader) token() (json.Token, error) {
	l.allow()
	return l.decoder.Token()
}

func (l *listReader) expect(want json.Delim) error {
	got, err := l.token()
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	if err == nil && got != want {
		err = errors.New("the response is not a list")
	}
	return err
}

func (l *listReader) value(into any) error {
	if err := l.ctx.Err(); err != nil {
		return err
	}
	l.allow()
	return l.decoder.Decode(into)
}

// allowance is a reader that reads at most the bytes in left.
type allowance struct {
	io.Reader
	read, left int64
}

// Read implements io.Reader.
func (a *allowance) Read(data []byte) (int, error) {
	if a.left <= 0 {
		return 0, &TooLongError{Limit: maxObject}
	}
	n, err := a.Reader.Read(data[:min(int64(len(data)), a.left)])
	a.read, a.left = a.read+int64(n), a.left-int64(n)
	return n, err
}

// skipped is a value that is not kept.
type skipped struct{}

// UnmarshalJSON implements json.Unmarshaler.
func (skipped) UnmarshalJSON([]byte) error { return nil }

// Name is a text no longer than the names of Kubernetes. A longer one is an error.
type Name string

// UnmarshalJSON implements json.Unmarshaler.
func (n *Name) UnmarshalJSON(data []byte) error {
	if len(data) > maxName {
		return fmt.Errorf("a name of %d bytes is too long", len(data))
	}
	return json.Unmarshal(data, (*string)(n))
}

// Few is a list of which only the first elements are kept, more than an honest provider sends.
type Few[T any] []T

// UnmarshalJSON implements json.Unmarshaler.
func (f *Few[T]) UnmarshalJSON(data []byte) error {
	*f = nil
	decoder := json.NewDecoder(bytes.NewReader(data))
	if first, err := decoder.Token(); err != nil || first == nil {
		return err
	} else if first != json.Delim('[') {
		return errors.New("not an array")
	}
	for decoder.More() && len(*f) < maxElements {
		var element T
		if err := decoder.Decode(&element); err != nil {
			return err
		}
		*f = append(*f, element)
	}
	return nil
}

// Quantity is an amount that is read in a bounded time.
type Quantity struct{ resource.Quantity }

// UnmarshalJSON implements json.Unmarshaler. Like resource.Quantity it also reads a number.
func (q *Quantity) UnmarshalJSON(data []byte) (err error) {
	text := string(bytes.Trim(data[:min(len(data), maxName)], `"`))
	if text == "null" {
		return nil
	}
	q.Quantity, err = quantity.Parse(text)
	return err
}
