package sandbox

import (
	"path/filepath"
	"sort"
	"time"

	"github.com/capacitorset/liqo-broker-vk/test/sandbox/internal/nodeagent"
	"github.com/capacitorset/liqo-broker-vk/test/sandbox/internal/proc"
)

// ProcessStatus describes a running process of a sandbox.
type ProcessStatus struct {
	Cluster   string `json:"cluster"`
	Component string `json:"component"`
	// Pod is empty for a process outside of pods.
	Pod string `json:"pod,omitempty"`
	PID int    `json:"pid"`
	// Memory is the proportional set size in bytes, ResidentMemory the resident set size. In the sum over processes, a
	// shared page counts once in Memory, and once for each process in ResidentMemory.
	Memory         int64         `json:"memoryBytes"`
	ResidentMemory int64         `json:"residentMemoryBytes"`
	CPU            time.Duration `json:"cpuNanoseconds"`
	// Log is empty for a container of a real node.
	Log string `json:"log"`
}

// Status is the resource usage of a sandbox.
type Status struct {
	State
	Processes []ProcessStatus `json:"processes"`
	// Held are components that were killed and wait for a restart.
	Held []string `json:"held,omitempty"`
}

// Memory is the sum over all processes, in bytes.
func (s *Status) Memory() int64 {
	var sum int64
	for i := range s.Processes {
		sum += s.Processes[i].Memory
	}
	return sum
}

// Status reads the current usage of every process.
func (s *Sandbox) Status() Status {
	out := Status{}
	_ = readJSON(filepath.Join(s.dir, stateFile), &out.State)
	for _, c := range s.Clusters {
		for _, p := range c.running() {
			if st, ok := processStatus(c.Name, p); ok {
				out.Processes = append(out.Processes, st)
			}
		}
		processes, _ := c.containerProcesses("") // A container that has none now has no usage.
		for _, p := range processes {
			if u, err := proc.UsageOf(p.pid); err == nil {
				out.Processes = append(out.Processes, ProcessStatus{
					Cluster: c.Name, Component: p.component, Pod: p.pod, PID: p.pid, Memory: u.PSS, ResidentMemory: u.RSS, CPU: u.CPU,
				})
			}
		}
		for _, h := range c.agent.Held() {
			out.Held = append(out.Held, c.Name+"/"+h)
		}
	}
	sort.Slice(out.Processes, func(i, j int) bool {
		a, b := &out.Processes[i], &out.Processes[j]
		if a.Cluster != b.Cluster {
			return a.Cluster < b.Cluster
		}
		return a.Component < b.Component || a.Component == b.Component && a.PID < b.PID
	})
	return out
}

func processStatus(cluster string, p nodeagent.Process) (ProcessStatus, bool) {
	u, err := proc.UsageOf(p.PID)
	if err != nil || !p.Running() {
		return ProcessStatus{}, false
	}
	return ProcessStatus{
		Cluster: cluster, Component: p.Component, Pod: p.Pod, PID: p.PID,
		Memory: u.PSS, ResidentMemory: u.RSS, CPU: u.CPU, Log: p.Spec.Log,
	}, true
}
