package catalog

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
	"github.com/capacitorset/liqo-broker-vk/pkg/catalog/federation"
)

// routeEvents serves the stream, and describes it: it is none of those operations that give one answer.
func (s *server) routeEvents(document *huma.OpenAPI) {
	op := operation("streamEvents", http.MethodGet, eventsPath,
		"Changes of what the caller sees, as server-sent events. It ends after 10 minutes: connect again", byAnybody,
		http.StatusForbidden, http.StatusUnprocessableEntity)
	op.Parameters = []*huma.Param{{
		Name: "consumer", In: "query", Description: "The id of the consumer on whose behalf to ask",
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

// events streams what changes until the client leaves, or streamTimeout.
func (s *server) events(w http.ResponseWriter, r *http.Request) {
	scope, consumer, err := s.scopeOfStream(r.Context(), r.URL.Query().Get("consumer"))
	if err != nil {
		problemOf(s.log, err).write(w)
		return
	}
	if r.Method == http.MethodHead {
		w.Header().Set("Content-Type", "text/event-stream")
		return
	}
	closed, ok := s.allowances.Open(caller.Key(callerOf(r.Context()), caller.Host(r)))
	if !ok {
		s.refused(w, "streams", newProblem(http.StatusTooManyRequests, "too many streams are open").retryAfter(keepAlive))
		return
	}
	defer closed()
	subscription := s.subscribe(scope, consumer)
	defer subscription.Close()

	control := http.NewResponseController(w)
	// The client has nothing more to say; the deadline of its request would end the stream.
	if err := control.SetReadDeadline(time.Time{}); err != nil && !errors.Is(err, http.ErrNotSupported) {
		s.log.Error(err, "Cannot stream")
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
		return control.Flush()
	})
}

// scopeOfStream is what of pods a caller sees in a stream, which may be nothing, and the consumer on whose behalf.
func (s *server) scopeOfStream(ctx context.Context, named string) (federation.Scope, string, error) {
	consumer, err := s.seesProviders(ctx, named)
	if err != nil {
		return federation.Scope{}, "", err
	}
	if consumer != "" {
		return federation.Scope{Consumer: consumer}, consumer, nil
	}
	all, err := s.rights.Has(ctx, callerOf(ctx), caller.ListPods(""))
	return federation.Scope{All: all}, "", err
}

// stream writes what changes, and a comment whenever nothing does for a while, until ctx or a write ends.
func (s *server) stream(ctx context.Context, subscription changes, write func([]byte) error) {
	var text bytes.Buffer
	for ctx.Err() == nil {
		waiting, cancel := context.WithTimeout(ctx, keepAlive)
		list, err := subscription.Next(waiting)
		cancel()
		text.Reset()
		switch {
		case ctx.Err() != nil:
			return
		case errors.Is(err, context.DeadlineExceeded):
			text.WriteString(": still here\n\n")
		case err != nil:
			s.log.Error(err, "A stream failed")
			return
		}
		for i := range list {
			if err := s.writeEvent(&text, &list[i]); err != nil {
				s.log.Error(err, "Cannot write an event", "event", list[i].Event)
				return
			}
		}
		if write(text.Bytes()) != nil {
			return // The client has gone, or is too slow.
		}
	}
}

// writeEvent writes one as the standard has it (https://html.spec.whatwg.org/multipage/server-sent-events.html); JSON has
// no line breaks.
func (s *server) writeEvent(text *bytes.Buffer, change *federation.Change) error {
	data := change.Data
	if change.Event == api.EventSync {
		data = api.Sync{Version: s.version}
	}
	encoded, err := json.Marshal(data)
	if err != nil {
		return err
	}
	fmt.Fprintf(text, "event: %s\ndata: %s\n\n", change.Event, encoded)
	return nil
}
