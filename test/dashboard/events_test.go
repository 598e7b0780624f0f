package dashboard

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/capacitorset/liqo-broker-vk/pkg/catalog/api"
)

type event struct {
	name string
	data any
	// pods means that only callers that may see pods get the event.
	pods bool
}

func (f *fake) events(w http.ResponseWriter, r *http.Request) {
	me, ok := f.callerOf(w, r)
	if !ok {
		return
	}
	news := make(chan event, 4096)
	f.mu.Lock()
	f.listeners[news] = struct{}{}
	f.mu.Unlock()
	defer func() {
		f.mu.Lock()
		delete(f.listeners, news)
		f.mu.Unlock()
	}()
	w.Header().Set("Content-Type", "text/event-stream")
	out := http.NewResponseController(w)
	send := func(e event) {
		data, _ := json.Marshal(e.data)
		fmt.Fprintf(w, "event: %s\ndata: %s\n\n", e.name, data)
	}
	for send(event{name: api.EventSync, data: api.Sync{Version: version}}); out.Flush() == nil; {
		select {
		case e := <-news:
			if !e.pods || me.Can.Placements {
				send(e)
			}
		case <-r.Context().Done():
			return
		}
	}
}

func (f *fake) send(e event) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for news := range f.listeners {
		news <- e
	}
}

// place creates or changes a pod, and sends the event.
func (f *fake) place(p api.Placement) {
	f.mu.Lock()
	f.placements = append(slices.DeleteFunc(f.placements, samePod(p.Namespace, p.Pod)), p)
	f.sort()
	f.mu.Unlock()
	f.send(event{name: api.EventPlacement, data: p, pods: true})
}

// remove deletes a pod, and sends the event.
func (f *fake) remove(namespace, pod string) {
	f.mu.Lock()
	f.placements = slices.DeleteFunc(f.placements, samePod(namespace, pod))
	f.mu.Unlock()
	f.send(event{name: api.EventPlacementGone, data: api.Gone{Namespace: namespace, Pod: pod}, pods: true})
}

func samePod(namespace, pod string) func(api.Placement) bool {
	return func(p api.Placement) bool { return p.Namespace == namespace && p.Pod == pod }
}

// stir changes a provider and a placement at every tick.
func (f *fake) stir(ctx context.Context, every time.Duration) {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for i := 0; ctx.Err() == nil; i++ {
		f.mu.Lock()
		p := &f.providers[i*7%len(f.providers)]
		p.Pods = 4242
		provider, placement := *p, f.placements[i*13%len(f.placements)]
		f.mu.Unlock()
		f.send(event{name: api.EventProvider, data: provider})
		f.send(event{name: api.EventPlacement, data: placement, pods: true})
		select {
		case <-ticker.C:
		case <-ctx.Done():
		}
	}
}
