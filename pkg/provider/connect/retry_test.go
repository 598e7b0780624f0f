package connect

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// answer is a server's reaction to a request.
type answer func(*http.Request) (*http.Response, error)

// server is an API server with no objects, or an answer that replaces it. A watch lasts until the server stops.
type server struct {
	// slow is the time that the API server takes to answer.
	slow    time.Duration
	mu      sync.Mutex
	instead answer // nil: the API server answers.
	up      context.Context
	stop    context.CancelFunc

	watches, attempts atomic.Int64
}

func newServer() *server {
	s := &server{stop: func() {}}
	s.restart(nil)
	return s
}

// restart ends all watches. From then on instead answers all requests; if it is nil, the API server does.
func (s *server) restart(instead answer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stop()
	s.up, s.stop = context.WithCancel(context.Background())
	s.instead = instead
}

func refuses(*http.Request) (*http.Response, error) {
	return nil, fmt.Errorf("dial: %w", syscall.ECONNREFUSED)
}

func answers(code int) answer {
	return func(req *http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: code, Request: req, Body: io.NopCloser(strings.NewReader("none")), Header: http.Header{}}, nil
	}
}

func (s *server) RoundTrip(req *http.Request) (*http.Response, error) {
	s.attempts.Add(1)
	time.Sleep(s.slow)
	s.mu.Lock()
	instead, up := s.instead, s.up
	s.mu.Unlock()
	if instead != nil {
		return instead(req)
	}
	return s.serve(up, req), nil
}

func (s *server) serve(up context.Context, req *http.Request) *http.Response {
	header := http.Header{"Content-Type": {"application/json"}}
	if !isWatch(req) {
		list := `{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"1"},"items":[]}`
		return &http.Response{StatusCode: http.StatusOK, Request: req, Header: header, Body: io.NopCloser(strings.NewReader(list))}
	}
	s.watches.Add(1)
	r, w := io.Pipe()
	closed, closing := context.WithCancel(context.Background())
	go func() {
		if req.URL.Query().Get("sendInitialEvents") == "true" {
			fmt.Fprintln(w, `{"type":"BOOKMARK","object":{"kind":"Pod","apiVersion":"v1","metadata":{"resourceVersion":"1",`+
				`"annotations":{"k8s.io/initial-events-end":"true"}}}}`)
		}
		select {
		case <-up.Done():
		case <-closed.Done():
		case <-req.Context().Done():
		}
		s.watches.Add(-1)
		w.CloseWithError(io.ErrUnexpectedEOF)
	}()
	return &http.Response{StatusCode: http.StatusOK, Request: req, Header: header, Body: body{r, closing}}
}

// but returns an answer that uses then for requests whose path contains a text, and the API server for all others.
func (s *server) but(path string, then answer) answer {
	return func(req *http.Request) (*http.Response, error) {
		if strings.Contains(req.URL.Path, path) {
			return then(req)
		}
		return s.serve(context.Background(), req), nil
	}
}

// retrying returns a client whose watches are retried.
func retrying(t *testing.T, s *server) kubernetes.Interface {
	t.Helper()
	config := &rest.Config{Host: "http://provider", Transport: s}
	RetryWatches(config, logr.Discard())
	kube, err := kubernetes.NewForConfig(config)
	require.NoError(t, err)
	return kube
}

type body struct {
	io.ReadCloser
	closing func()
}

func (b body) Close() error {
	b.closing()
	return b.ReadCloser.Close()
}

// watching runs n informers.
func watching(t *testing.T, s *server, n int, retried bool) {
	t.Helper()
	config := &rest.Config{Host: "http://provider", Transport: s}
	if retried {
		RetryWatches(config, logr.Discard())
	}
	ctx, stop := context.WithCancel(t.Context())
	var running wait.Group
	t.Cleanup(running.Wait)
	t.Cleanup(stop)
	for i := range n {
		kube, err := kubernetes.NewForConfig(config)
		require.NoError(t, err)
		factory := informers.NewSharedInformerFactoryWithOptions(kube, 0, informers.WithNamespace(fmt.Sprint("ns", i)))
		informer := factory.Core().V1().Pods().Informer()
		running.StartWithContext(ctx, informer.RunWithContext)
	}
	time.Sleep(time.Minute)
	require.EqualValues(t, n, s.watches.Load())
}

// back returns the time until n watches are established again after the server was away.
func back(t *testing.T, s *server, n int, away time.Duration, meanwhile, then answer) time.Duration {
	t.Helper()
	s.restart(meanwhile)
	time.Sleep(away)
	s.restart(then)
	began := time.Now()
	require.Eventually(t, func() bool { return s.watches.Load() == int64(n) }, 5*time.Minute, 10*time.Millisecond)
	return time.Since(began)
}

func TestWatchesAreBackSoonAfterAnOutage(t *testing.T) {
	for name, meanwhile := range map[string]answer{
		"connections are refused": refuses, "a gateway answers 502": answers(502), "a gateway answers 503": answers(503),
	} {
		for _, away := range []time.Duration{3 * time.Second, 10 * time.Second, time.Minute, 10 * time.Minute, time.Hour} {
			t.Run(fmt.Sprintf("%s for %s", name, away), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					const n = 300
					s := newServer()
					s.slow = 100 * time.Millisecond
					watching(t, s, n, true)
					s.attempts.Store(0)
					require.LessOrEqual(t, back(t, s, n, away, meanwhile, nil), lastRetry+spread+3*s.slow)
					// Each watch makes an attempt when it ends and when another one is answered, in addition to its
					// turns.
					require.LessOrEqual(t, s.attempts.Load(), n*2+int64(away/(lastRetry/2))+10)
				})
			})
		}
	}
}

// TestWatchesOfClientGoAreBackLate shows why RetryWatches exists: client-go alone retries late.
func TestWatchesOfClientGoAreBackLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		watching(t, s, 30, false)
		require.Greater(t, back(t, s, 30, 10*time.Minute, refuses, nil), 20*time.Second)
	})
}

func TestAWatchWithoutAnAnswerDelaysNoOtherForLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 10
		s := newServer()
		watching(t, s, n, true)
		hangs := s.but("/ns1/", func(req *http.Request) (*http.Response, error) {
			<-req.Context().Done()
			return nil, req.Context().Err()
		})
		require.LessOrEqual(t, back(t, s, n-1, time.Minute, refuses, hangs), 3*lastRetry+spread)
	})
}

func TestOnlyWatchesOfAServerThatIsAwayAreRetried(t *testing.T) {
	certificate := answer(func(*http.Request) (*http.Response, error) {
		return nil, &tls.CertificateVerificationError{Err: errors.New("by an unknown authority")}
	})
	for name, c := range map[string]struct {
		answer answer
		opts   metav1.ListOptions
	}{
		"a list":                     {refuses, metav1.ListOptions{}},
		"a watch that is forbidden":  {answers(http.StatusForbidden), metav1.ListOptions{Watch: true}},
		"a watch that is too old":    {answers(http.StatusGone), metav1.ListOptions{Watch: true}},
		"a certificate is not valid": {certificate, metav1.ListOptions{Watch: true}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newServer()
				s.restart(c.answer)
				kube := retrying(t, s)
				var err error
				if c.opts.Watch {
					_, err = kube.CoreV1().Pods("ns").Watch(t.Context(), c.opts)
				} else {
					_, err = kube.CoreV1().Pods("ns").List(t.Context(), c.opts)
				}
				require.Error(t, err)
				require.EqualValues(t, 1, s.attempts.Load())
			})
		})
	}
}

func TestAWatchThatIsRetriedEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		s.restart(answers(http.StatusServiceUnavailable))
		kube := retrying(t, s)
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		began := time.Now()
		_, err := kube.CoreV1().Pods("ns").Watch(ctx, metav1.ListOptions{})
		require.Error(t, err)
		require.Equal(t, time.Hour, time.Since(began))
	})
}

func TestAWatchThatFailsAloneReturnsItsError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 10
		s := newServer()
		watching(t, s, n, true)
		alone := s.but("/alone/", answers(http.StatusServiceUnavailable))
		s.restart(alone)
		kube := retrying(t, s)
		failed := make(chan error, 1)
		go func() {
			_, err := kube.CoreV1().Pods("alone").Watch(t.Context(), metav1.ListOptions{})
			failed <- err
		}()
		for range mostAlone { // Other requests arrive and are answered.
			time.Sleep(10 * time.Second)
			require.Empty(t, failed)
			w, err := kube.CoreV1().Pods("ns").Watch(t.Context(), metav1.ListOptions{})
			require.NoError(t, err)
			w.Stop()
		}
		time.Sleep(spread)
		require.Len(t, failed, 1)
		require.Error(t, <-failed)
		require.LessOrEqual(t, s.attempts.Load(), int64(2*n+30))
	})
}
