package kubeletapi

import (
	"net"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/testr"
	"github.com/stretchr/testify/require"
	"golang.org/x/net/http2"

	"github.com/capacitorset/liqo-broker-vk/pkg/httpserve/unreadtest"
)

// An HTTP/2 client that stops the server from sending any part of an answer would block the handler of a rejected
// request as long as its connection is open.
func TestARefusalThatNobodyReadsEnds(t *testing.T) {
	gate, err := newGate(Config{Log: testr.New(t), NodeName: "vnode", ClientCAFile: newAuthority(t).file(), Local: (&reviews{}).client()})
	require.NoError(t, err)
	synctest.Test(t, func(t *testing.T) {
		local, remote := net.Pipe()
		var serving sync.WaitGroup
		defer serving.Wait()
		defer local.Close()
		serving.Go(func() {
			(&http2.Server{}).ServeConn(remote, &http2.ServeConnOpts{Handler: gate.protect(http.NotFoundHandler())})
		})
		client, err := unreadtest.New(local, 0)
		require.NoError(t, err)
		begin := time.Now()
		require.NoError(t, local.SetDeadline(begin.Add(time.Minute)))
		require.NoError(t, client.Get(logsPath))
		answer, err := client.Next()
		require.NoError(t, err)
		require.Equal(t, http.StatusUnauthorized, answer.Status)
		_, err = client.Next()
		require.ErrorAs(t, err, &http2.StreamError{})
		require.Equal(t, refusalTimeout, time.Since(begin))
	})
}
