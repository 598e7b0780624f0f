package histories

import (
	"fmt"
	"strings"
)

// writesOfPod is how many writes of each pod, also those that met a conflict, the brokers may send in a minute. In most
// histories they send two. While watches lag by 5 s, each change of a pod is tried eight times.
const writesOfPod = 60

// requests returns how many requests the brokers sent whose names have one of the prefixes.
func (w *weather) requests(prefixes ...string) (n uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for name, times := range w.counts {
		process, request, _ := strings.Cut(name, " ")
		for _, prefix := range prefixes {
			if strings.HasPrefix(process, "broker-") && strings.HasPrefix(request, prefix) {
				n += times
			}
		}
	}
	return n
}

// judgeRequests checks that writes that meet a conflict are tried again less and less, and that what has not changed is not
// written.
func (o *outcome) judgeRequests() []string {
	most := writesOfPod * o.ended.Sub(o.began).Minutes() * float64(len(o.history.Pods))
	writes := float64(o.world.weather.requests("patch *v1.Pod ", "update *v1.Pod ", "delete *v1.Pod "))
	if writes <= most {
		return nil
	}
	return []string{fmt.Sprintf("the brokers sent %.0f writes of pods, %.0f are enough", writes, most)}
}
