package server

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/capacitorset/liqo-broker-vk/pkg/catalog/api"
	"github.com/capacitorset/liqo-broker-vk/pkg/catalog/caller"
	"github.com/capacitorset/liqo-broker-vk/pkg/catalog/middleware"
	"github.com/capacitorset/liqo-broker-vk/pkg/catalog/problem"
	"github.com/capacitorset/liqo-broker-vk/pkg/catalog/view"
)

const (
	// streamTimeout ends a stream, so that rights are checked again when its client reconnects.
	streamTimeout = 10 * time.Minute
	// keepAlive is how often a comment is written to an idle stream.
	keepAlive = 15 * time.Second
	// streamWriteTimeout is how long one write may take.
	streamWriteTimeout = 10 * time.Second
)

// routeEvents registers the stream, and adds it to the document by hand: huma has operations with one answer only.
func (s *Server) routeEvents(document *huma.OpenAPI) {
	op := operation("streamEvents", http.MethodGet, eventsPath,
		"Changes of the objects that the caller may see, as server-sent events. The stream ends after 10 minutes: reconnect", byAnybody,
		http.StatusForbidden, http.StatusUnprocessableEntity)
	op.Parameters = []*huma.Param{{
		Name: "consumer", In: "query", Description: "The id of the consumer to act for",
		Schema: &huma.Schema{Type: huma.TypeString},
	}}
	schemas := document.Components.Schemas
	op.Responses = responses(&op, "text/event-stream", huma.TypeString,
		"sync (Sync), provider (Provider), provider-gone (Gone), placement (Placement), placement-gone (Gone)")
	schemas.Schema(reflect.TypeFor[api.Sync](), true, "")
	schemas.Schema(reflect.TypeFor[api.Gone](), true, "")
	document.AddOperation(&op)
	s.mux.HandleFunc(http.MethodGet+" "+eventsPath, s.events)
}

// events streams changes until the client disconnects, or streamTimeout.
func (s *Server) events(w http.ResponseWriter, r *http.Request) {
	scope, consumer, details, err := s.scopeOfStream(r.Context(), r.URL.Query().Get("consumer"))
	if err != nil {
		problem.Of(s.Log, err).Write(w)
		return
	}
	if r.Method == http.MethodHead {
		w.Header().Set("Content-Type", "text/event-stream")
		return
	}
	closed, ok := s.Allowances.Open(middleware.CallerOf(r.Context()), caller.Host(r))
	if !ok {
		s.guard.Refuse(w, "streams", problem.New(http.StatusTooManyRequests, "too many streams are open").RetryAfter(keepAlive))
		return
	}
	defer closed()
	middleware.Release(r.Context()) // Streams have limits of their own.
	subscription := s.subscribe(scope, consumer)
	if !details {
		subscription = publicChanges{subscription}
	}
	defer subscription.Close()

	control := http.NewResponseController(w)
	// The read deadline of the request would end the stream.
	if err := control.SetReadDeadline(time.Time{}); err != nil && !errors.Is(err, http.ErrNotSupported) {
		s.Log.Error(err, "Failed to clear the read deadline of an event stream")
		return
	}
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("X-Accel-Buffering", "no")
	ctx, cancel := context.WithTimeout(r.Context(), streamTimeout)
	defer cancel()
	s.stream(ctx, subscription, func(text []byte) error {
		if err := control.SetWriteDeadline(time.Now().Add(streamWriteTimeout)); err != nil {
			return err
		}
		if _, err := w.Write(text); err != nil {
			return err
		}
		if err := control.Flush(); err != nil {
			return err
		}
		// Over HTTP/2 a deadline ends the stream even if no write is pending.
		return control.SetWriteDeadline(time.Time{})
	})
}

// scopeOfStream returns the pods that a caller may see in a stream, which may be none, the consumer that it acts for,
// and whether it sees details of providers.
func (s *Server) scopeOfStream(ctx context.Context, named string) (view.Scope, string, bool, error) {
	consumer, details, err := s.seesProviders(ctx, named)
	if err != nil {
		return view.Scope{}, "", false, err
	}
	if consumer != "" {
		return view.Scope{Consumer: consumer}, consumer, details, nil
	}
	all, err := s.Rights.Has(ctx, middleware.CallerOf(ctx), caller.ListPods(""))
	return view.Scope{All: all}, "", details, err
}

// publicChanges removes the data of providers that anonymous callers may not see.
type publicChanges struct{ changes }

func (p publicChanges) Next(ctx context.Context) ([]view.Change, error) {
	list, err := p.changes.Next(ctx)
	for i := range list {
		if list[i].Event != api.EventProvider {
			continue
		}
		provider, is := list[i].Data.(*api.Provider)
		if !is {
			return nil, fmt.Errorf("unexpected type %T in a change of a provider", list[i].Data)
		}
		list[i].Data, list[i].Encoded = publicProvider{provider}, list[i].Public
	}
	return list, err
}

// publicProvider is a provider as anonymous callers see it. It is made when its JSON is.
type publicProvider struct{ of *api.Provider }

func (p publicProvider) MarshalJSON() ([]byte, error) { return json.Marshal(p.of.Public()) }

// stream writes changes, and a comment when there were none for a while, until ctx ends or a write fails.
func (s *Server) stream(ctx context.Context, subscription changes, write func([]byte) error) {
	for ctx.Err() == nil {
		waiting, cancel := context.WithTimeout(ctx, keepAlive)
		list, err := subscription.Next(waiting)
		cancel()
		switch {
		case ctx.Err() != nil:
			return
		case err != nil && !errors.Is(err, context.DeadlineExceeded):
			s.Log.Error(err, "Event stream failed")
			return
		}
		if s.writeEvents(list, write) != nil {
			return // The client has disconnected, or is too slow.
		}
	}
}

// writeEvents writes changes with one write, or a comment if there are none. A thousand streams that wait have no
// buffers.
func (s *Server) writeEvents(list []view.Change, write func([]byte) error) error {
	text, ok := s.texts.Get().(*bytes.Buffer)
	if !ok {
		text = &bytes.Buffer{}
	}
	text.Reset()
	if len(list) == 0 {
		text.WriteString(": still here\n\n")
	}
	for i := range list {
		if err := s.writeEvent(text, &list[i]); err != nil {
			s.Log.Error(err, "Failed to encode an event", "event", list[i].Event)
			return err
		}
	}
	if err := write(text.Bytes()); err != nil {
		return err // Over HTTP/2 the server may still send from the buffer.
	}
	if text.Cap() <= middleware.MaxPooled {
		s.texts.Put(text)
	}
	return nil
}

// writeEvent writes an event in the format of https://html.spec.whatwg.org/multipage/server-sent-events.html. JSON has
// no line breaks.
func (s *Server) writeEvent(text *bytes.Buffer, change *view.Change) error {
	data := change.Data
	if change.Event == api.EventSync {
		data = api.Sync{Version: s.Version}
	}
	encoded, err := change.Encoded.JSON(data)
	if err != nil {
		return err
	}
	fmt.Fprintf(text, "event: %s\ndata: %s\n\n", change.Event, encoded)
	return nil
}
