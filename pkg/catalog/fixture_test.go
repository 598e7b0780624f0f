package catalog

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	authorizationv1 "k8s.io/api/authorization/v1"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"
)

func TestMain(m *testing.M) {
	ctrllog.SetLogger(logr.Discard())
	goleak.VerifyTestMain(m)
}

const node = "liqo-broker"

// moment is the time when every condition changed.
var moment = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// lines has the logged lines.
type lines struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func (l *lines) logger() logr.Logger {
	return funcr.New(func(prefix, args string) {
		l.mu.Lock()
		defer l.mu.Unlock()
		fmt.Fprintln(&l.text, prefix, args)
	}, funcr.Options{})
}

// The users of the tokens.
var users = map[string]string{
	"operator":  "system:serviceaccount:ops:operator",
	"powerless": "system:serviceaccount:ops:powerless",
	"people-c1": "system:serviceaccount:liqo-tenant-c1:people",
}

// allowed is RBAC: the operator may do everything, the people of c1 may do everything that the ClusterRole of Liqo's
// peering allows.
func allowed(spec *authorizationv1.SubjectAccessReviewSpec) bool {
	what := spec.ResourceAttributes
	return spec.User == users["operator"] || spec.User == users["people-c1"] && what.Namespace == "liqo-tenant-c1" &&
		what.Group == "authentication.liqo.io" && what.Resource == "resourceslices"
}

// call is a request.
type call struct{ method, path, body, token string }

// reply is the answer to a call.
type reply struct {
	status int
	header http.Header
	body   string
}

// requester makes calls to a URL.
type requester struct {
	t   testing.TB
	url string
}

func (q *requester) do(in call) *reply {
	q.t.Helper()
	response := q.open(q.t.Context(), in)
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	require.NoError(q.t, err)
	return &reply{status: response.StatusCode, header: response.Header, body: string(body)}
}

func (q *requester) open(ctx context.Context, in call) *http.Response {
	q.t.Helper()
	request, err := http.NewRequestWithContext(ctx, in.method, q.url+in.path, strings.NewReader(in.body))
	require.NoError(q.t, err)
	if in.body != "" {
		request.Header.Set("Content-Type", "application/json")
	}
	if in.token != "" {
		request.Header.Set("Authorization", "Bearer "+in.token)
	}
	response, err := http.DefaultClient.Do(request)
	require.NoError(q.t, err)
	return response
}

// read reads lines of a stream.
func read(t *testing.T, lines *bufio.Scanner, n int) []string {
	t.Helper()
	var all []string
	for range n {
		require.True(t, lines.Scan(), lines.Err())
		all = append(all, lines.Text())
	}
	return all
}

// ids are the ids in a list of the API.
func ids(t *testing.T, body string) []string {
	t.Helper()
	var list struct {
		Items []struct{ ID, Pod, Name string }
	}
	require.NoError(t, json.Unmarshal([]byte(body), &list), body)
	var all []string
	for _, item := range list.Items {
		all = append(all, item.ID+item.Pod+item.Name)
	}
	return all
}
