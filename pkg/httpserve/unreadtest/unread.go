// Package unreadtest has an HTTP/2 client that does not read the answers it asked for, for tests of servers.
package unreadtest

import (
	"bytes"
	"io"
	"net"
	"net/http"
	"strconv"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// initialWindow is the window of a connection (RFC 9113, section 6.9.2), in bytes.
const initialWindow = 65535

// Client is a client with one connection.
type Client struct {
	framer *http2.Framer
	asked  uint32
}

// New begins HTTP/2 on conn. The server may never send more than so many bytes of the body of each answer.
func New(conn net.Conn, window uint32) (*Client, error) {
	if _, err := io.WriteString(conn, http2.ClientPreface); err != nil {
		return nil, err
	}
	framer := http2.NewFramer(conn, conn)
	framer.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	if err := framer.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: window}); err != nil {
		return nil, err
	}
	if window > initialWindow {
		if err := framer.WriteWindowUpdate(0, window-initialWindow); err != nil {
			return nil, err
		}
	}
	return &Client{framer: framer}, nil
}

// Get sends a request that accepts gzip.
func (c *Client) Get(path string) error {
	var block bytes.Buffer
	encoder := hpack.NewEncoder(&block)
	for _, field := range [][2]string{
		{":method", http.MethodGet}, {":scheme", "https"}, {":authority", "localhost"}, {":path", path}, {"accept-encoding", "gzip"},
	} {
		if err := encoder.WriteField(hpack.HeaderField{Name: field[0], Value: field[1]}); err != nil {
			return err
		}
	}
	c.asked++
	return c.framer.WriteHeaders(http2.HeadersFrameParam{
		StreamID: 2*c.asked - 1, BlockFragment: block.Bytes(), EndStream: true, EndHeaders: true,
	})
}

// Answer is the beginning of an answer.
type Answer struct {
	Status int
	Header http.Header
	// Ended means that the answer has no body.
	Ended bool
}

// Next returns the next answer that begins. An answer that the server has given up is an http2.StreamError.
func (c *Client) Next() (*Answer, error) {
	for {
		frame, err := c.framer.ReadFrame()
		if err != nil {
			return nil, err
		}
		if reset, ok := frame.(*http2.RSTStreamFrame); ok {
			return nil, http2.StreamError{StreamID: reset.StreamID, Code: reset.ErrCode}
		}
		headers, ok := frame.(*http2.MetaHeadersFrame)
		if !ok {
			continue
		}
		status, err := strconv.Atoi(headers.PseudoValue("status"))
		if err != nil {
			return nil, err
		}
		answer := &Answer{Status: status, Header: http.Header{}, Ended: headers.StreamEnded()}
		for _, field := range headers.RegularFields() {
			answer.Header.Add(field.Name, field.Value)
		}
		return answer, nil
	}
}
