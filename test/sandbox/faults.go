package sandbox

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"syscall"

	"github.com/capacitorset/liqo-broker-vk/test/sandbox/internal/nodeagent"
	"github.com/capacitorset/liqo-broker-vk/test/sandbox/internal/packets"
	"github.com/capacitorset/liqo-broker-vk/test/sandbox/internal/proc"
)

// target returns the cluster, and the component or pod, that CLUSTER, CLUSTER/COMPONENT or CLUSTER/POD names.
func (s *Sandbox) target(name string) (c *Cluster, component string, err error) {
	cluster, component, _ := strings.Cut(name, "/")
	if c = s.Cluster(cluster); c == nil {
		names := make([]string, len(s.Clusters))
		for i := range s.Clusters {
			names[i] = s.Clusters[i].Name
		}
		return nil, "", fmt.Errorf("no cluster %q; there are %s", cluster, strings.Join(names, ", "))
	}
	known := slices.Sorted(maps.Keys(c.plane.Processes()))
	if c.kwok != nil {
		known = append(known, "kwok")
	}
	if c.machine != nil {
		known = append(known, slices.Sorted(maps.Keys(c.machine.Processes()))...)
	}
	deployed := c.components()
	known = append(known, slices.Sorted(maps.Keys(deployed))...)
	known = append(known, c.agent.Held()...)
	pods := slices.Concat(slices.Collect(maps.Values(deployed))...)
	if component != "" && !slices.Contains(known, component) && !slices.Contains(pods, component) {
		return nil, "", fmt.Errorf("no component %q in %s; there are %s", component, cluster, strings.Join(known, ", "))
	}
	return c, component, nil
}

// running returns all processes of the cluster.
func (c *Cluster) running() []nodeagent.Process {
	out := c.agent.Processes()
	for name, p := range c.plane.Processes() {
		out = append(out, nodeagent.Process{Component: name, Process: p})
	}
	if c.kwok != nil {
		out = append(out, nodeagent.Process{Component: "kwok", Process: c.kwok})
	}
	if c.machine != nil {
		for name, p := range c.machine.Processes() {
			out = append(out, nodeagent.Process{Component: name, Process: p})
		}
	}
	if c.proxy != nil {
		out = append(out, nodeagent.Process{Component: "kube-proxy", Process: c.proxy})
	}
	return out
}

// processes returns the processes of a component, of a pod, or of the whole cluster for the empty name.
func (c *Cluster) processes(name string) (out []*proc.Process) {
	for _, p := range c.running() {
		if name == "" || p.Component == name || p.Pod == name {
			out = append(out, p.Process)
		}
	}
	return out
}

func (s *Sandbox) signal(name string, sig syscall.Signal) error {
	c, component, err := s.target(name)
	if err != nil {
		return err
	}
	var errs []error
	for _, p := range c.processes(component) {
		errs = append(errs, p.Signal(sig))
	}
	return errors.Join(append(errs, c.signalContainers(component, sig))...)
}

// Replicas returns the names of the pods of a component (CLUSTER/COMPONENT). Each is a valid name for Freeze, Resume,
// Kill and Restart.
func (s *Sandbox) Replicas(name string) ([]string, error) {
	c, component, err := s.target(name)
	if err != nil {
		return nil, err
	}
	pods := c.components()[component]
	slices.Sort(pods)
	for i := range pods {
		pods[i] = c.Name + "/" + pods[i]
	}
	return pods, nil
}

// Address returns the address of a port of a running replica (CLUSTER/POD), by the port's name in the pod.
func (s *Sandbox) Address(replica, port string) (string, error) {
	c, pod, err := s.target(replica)
	if err != nil {
		return "", err
	}
	if number := c.agent.HostPort(pod, port); number != 0 {
		return fmt.Sprintf("127.0.0.1:%d", number), nil
	}
	address, err := c.expose(pod, port)
	if err == nil && address == "" {
		err = fmt.Errorf("%s does not run, or has no port %q", replica, port)
	}
	return address, err
}

// Freeze stops the processes of CLUSTER, CLUSTER/COMPONENT or CLUSTER/POD
// without ending them: connections stay open and are not answered. The kubelet of a real node ends a container whose
// liveness probe fails.
func (s *Sandbox) Freeze(name string) error { return s.signal(name, syscall.SIGSTOP) }

// Resume resumes processes that Freeze stopped.
func (s *Sandbox) Resume(name string) error { return s.signal(name, syscall.SIGCONT) }

// Kill ends the processes with SIGKILL; they stay down until Restart. Containers of a real node do not: its kubelet starts
// them again.
func (s *Sandbox) Kill(name string) error {
	c, component, err := s.target(name)
	if err != nil {
		return err
	}
	// Pods first: otherwise the API server would see their restarts.
	for n, pods := range c.agent.Components() {
		switch {
		case component == "" || n == component:
			c.agent.Kill(n)
		case slices.Contains(pods, component):
			c.agent.Kill(component)
		}
	}
	for _, p := range c.processes(component) {
		p.Kill()
	}
	if component == "" {
		return nil // The containers end with their node.
	}
	return c.signalContainers(component, syscall.SIGKILL)
}

// Restart ends the processes that still run, and restarts all of them.
func (s *Sandbox) Restart(ctx context.Context, name string) error {
	c, component, err := s.target(name)
	if err != nil {
		return err
	}
	planeHas := component == "" || c.plane.Processes()[component] != nil
	if planeHas {
		if err := c.plane.Restart(ctx, component); err != nil {
			return err
		}
	}
	if c.kwok != nil && (component == "" || component == "kwok") {
		c.kwok.Kill()
		if c.kwok, err = s.group.Start(c.kwok.Spec); err != nil {
			return err
		}
	}
	if c.machine != nil && (component == "" || c.machine.Processes()[component] != nil) {
		if err := c.machine.Restart(ctx, component); err != nil {
			return err
		}
	}
	if component != "" {
		c.agent.Restart(component)
		return c.signalContainers(component, syscall.SIGKILL)
	}
	pods := slices.Collect(maps.Keys(c.agent.Components()))
	for _, n := range append(pods, c.agent.Held()...) {
		c.agent.Restart(n)
	}
	return nil
}

// pair returns two clusters by their names.
func (s *Sandbox) pair(a, b string) (ca, cb *Cluster, err error) {
	if ca, _, err = s.target(a); err != nil {
		return nil, nil, err
	}
	cb, _, err = s.target(b)
	return ca, cb, err
}

// Link reports the network between two connected clusters up or down. With Options.Packets it delivers or drops the
// packets between them, and their gateways report the state that they observe. It needs Options.Networking.
func (s *Sandbox) Link(ctx context.Context, a, b string, up bool) error {
	if !s.opts.Networking {
		return errors.New("this sandbox has no links: start it with --networking")
	}
	ca, cb, err := s.pair(a, b)
	if err != nil {
		return err
	}
	direct := slices.Contains(s.opts.DirectNetworks, a+":"+b) || slices.Contains(s.opts.DirectNetworks, b+":"+a)
	if !direct && !slices.Contains(s.providersOf(ca), b) && !slices.Contains(s.providersOf(cb), a) {
		return fmt.Errorf("%s and %s are not connected", a, b)
	}
	if s.opts.Packets {
		return packets.SetLink(ca.node, cb.node, up)
	}
	return setLink(ctx, ca, cb, up)
}
