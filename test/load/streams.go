package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/util/wait"
)

const (
	// streaming is for how long changes are made while the streams are open.
	streaming = 20 * time.Second
	// opening is how many streams are opened at once.
	opening = 50
	// lastChange is how long the streams may take to deliver the last change.
	lastChange = 10 * time.Second
)

// arrivals has the changes, and when they arrived at the streams.
type arrivals struct {
	mu sync.Mutex
	// made is the time of each object's last change, by name.
	made map[string]time.Time
	took []time.Duration
	// synced is the number of streams that have delivered the initial objects.
	synced int
}

// arrived records an event. Events for objects that have not been changed yet do not count.
func (a *arrivals) arrived(name string) {
	now := time.Now()
	a.mu.Lock()
	defer a.mu.Unlock()
	if made, is := a.made[name]; is {
		a.took = append(a.took, now.Sub(made))
	}
}

// measureStreams opens streams to one replica, and measures how long each change takes to arrive at each of them.
func (l *load) measureStreams(ctx context.Context, out io.Writer) error {
	a := &arrivals{made: map[string]time.Time{}}
	reading, stop := context.WithCancel(ctx)
	defer stop()
	group, reading := errgroup.WithContext(reading)
	turn := make(chan struct{}, opening)
	for range l.streams {
		group.Go(func() error {
			turn <- struct{}{}
			return l.read(reading, a, sync.OnceFunc(func() { <-turn }))
		})
	}
	group.Go(func() error {
		defer stop()
		return l.changeStreams(reading, a, out)
	})
	return group.Wait()
}

// read reads a stream until ctx ends. It calls opened once the stream is open.
func (l *load) read(ctx context.Context, a *arrivals, opened func()) error {
	defer opened()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, l.address+"/api/v1/events", http.NoBody)
	if err != nil {
		return err
	}
	request.Header.Set("Authorization", "Bearer "+l.token)
	client := &http.Client{Transport: l.client.Transport} // Without its timeout.
	response, err := client.Do(request)
	if err != nil {
		return unlessDone(ctx, err)
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("a stream: %s", response.Status)
	}
	lines := bufio.NewReaderSize(response.Body, 16<<10)
	for synced := false; ; {
		line, err := lines.ReadSlice('\n')
		if err != nil {
			return unlessDone(ctx, fmt.Errorf("a stream: %w", err))
		}
		switch {
		case bytes.HasPrefix(line, []byte("event: sync")) && !synced:
			synced = true
			opened()
			a.mu.Lock()
			a.synced++
			a.mu.Unlock()
		case bytes.HasPrefix(line, []byte("data: ")):
			if name := nameIn(line); name != "" {
				a.arrived(name)
			}
		}
	}
}

func unlessDone(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// nameIn returns the name of the pod or of the provider in an event's data. Data of a pod also name its provider.
func nameIn(line []byte) string {
	for _, name := range []string{podName(0), providerName(0)} {
		if i := bytes.Index(line, []byte(`"`+name[:4])); i >= 0 && len(line) > i+len(name) {
			return string(line[i+1 : i+1+len(name)])
		}
	}
	return ""
}

// changeStreams makes changes once all streams are open, and reports when they arrived.
func (l *load) changeStreams(ctx context.Context, a *arrivals, out io.Writer) error {
	synced := 0
	err := wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, time.Minute, true, func(context.Context) (bool, error) {
		a.mu.Lock()
		defer a.mu.Unlock()
		synced = a.synced
		return synced == l.streams, nil
	})
	if err != nil {
		return fmt.Errorf("%d of %d streams are open: %w", synced, l.streams, err)
	}
	measuring, stop := context.WithCancel(ctx)
	defer stop()
	var used []usage
	group, measuring := errgroup.WithContext(measuring)
	group.Go(func() (err error) {
		used, err = usageOf(measuring, l.replicas())
		return err
	})
	made, err := l.changeFor(ctx, a)
	if err != nil {
		return err
	}
	// Changes that have not arrived after that are reported.
	_ = wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, lastChange, true, func(context.Context) (bool, error) {
		return a.count() >= made*l.streams, nil
	})
	stop()
	if err := group.Wait(); err != nil {
		return err
	}
	return l.reportStreams(out, a, made, used)
}

func (a *arrivals) count() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.took)
}

// changeFor makes a fixed number of changes each second for a while, and returns the total. It changes no object twice
// within 10 s.
func (l *load) changeFor(ctx context.Context, a *arrivals) (made int, err error) {
	group, changing := errgroup.WithContext(ctx)
	group.SetLimit(writers)
	tick := time.NewTicker(time.Second / time.Duration(l.streamChanges))
	defer tick.Stop()
	for end := time.Now().Add(streaming); time.Now().Before(end); made++ {
		select {
		case <-changing.Done():
			return made, group.Wait()
		case <-tick.C:
		}
		turn := made + 1 + 2*l.providers // Not the value of an earlier turn with the same provider (providerStatus).
		group.Go(func() error {
			a.mu.Lock()
			a.made[l.changed(turn)] = time.Now()
			a.mu.Unlock()
			return l.changeOne(changing, turn)
		})
	}
	return made, group.Wait()
}

func (l *load) reportStreams(out io.Writer, a *arrivals, made int, used []usage) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.took) == 0 {
		return fmt.Errorf("none of %d changes arrived", made)
	}
	slices.Sort(a.took)
	_, memory := heldBy(used)
	longest := a.took[len(a.took)-1]
	fmt.Fprintf(out, "catalog: %d streams at one replica, %d changes in %s, %d events arrived of %d\n", l.streams, made,
		streaming, len(a.took), made*l.streams)
	fmt.Fprintf(out,
		"  from before the write to the event: p50 %s, p99 %s, longest %s; memory (RSS) %.0f MB; %.2f CPUs, both replicas together\n",
		inMilliseconds(quantile(a.took, 0.5)), inMilliseconds(quantile(a.took, 0.99)), inMilliseconds(longest), memory, busy(used))
	switch {
	case len(a.took) < made*l.streams:
		return fmt.Errorf("%d of %d events did not arrive", made*l.streams-len(a.took), made*l.streams)
	case longest > time.Second:
		return fmt.Errorf("an event took %s, want at most 1s", longest)
	case memory > 300:
		return fmt.Errorf("the memory is %.0f MB, want at most 300", memory)
	}
	return nil
}
