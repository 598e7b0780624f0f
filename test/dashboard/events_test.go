package dashboard

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/capacitorset/liqo-broker-vk/pkg/catalog/api"
)

type event struct {
	name string
	data any
	// pods says that only those who may see pods hear of it.
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

func (f *fake) tell(e event) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for news := range f.listeners {
		news <- e
	}
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
		f.tell(event{name: api.EventProvider, data: provider})
		f.tell(event{name: api.EventPlacement, data: placement, pods: true})
		select {
		case <-ticker.C:
		case <-ctx.Done():
		}
	}
}
