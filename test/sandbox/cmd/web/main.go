// Command web runs in the pods of a sandbox with packets. It answers HTTP requests with the names of the pod and of the
// addresses that it sees.
//
//	{"pod":"web-1","called":"10.244.3.7","caller":"10.71.1.4"}
package main

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"time"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "web:", err)
		os.Exit(1)
	}
}

func run() error {
	name, err := os.Hostname()
	if err != nil {
		return err
	}
	server := &http.Server{Addr: ":8080", ReadHeaderTimeout: 10 * time.Second, Handler: http.HandlerFunc(
		func(w http.ResponseWriter, r *http.Request) {
			called, _ := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
			_ = json.NewEncoder(w).Encode(map[string]string{ // The caller may already be gone.
				"pod": name, "called": hostOf(called.String()), "caller": hostOf(r.RemoteAddr),
			})
		})}
	return server.ListenAndServe()
}

// hostOf returns the address without the port.
func hostOf(address string) string {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return address
	}
	return host
}
