package sandbox

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"syscall"

	"github.com/capacitorset/liqo-broker-vk/test/sandbox/internal/proc"
)

// target finds the processes that CLUSTER or CLUSTER/COMPONENT names.
func (s *Sandbox) target(name string) (c *Cluster, component string, err error) {
	cluster, component, _ := strings.Cut(name, "/")
	if c = s.Cluster(cluster); c == nil {
		names := make([]string, len(s.Clusters))
		for i := range s.Clusters {
			names[i] = s.Clusters[i].Name
		}
		return nil, "", fmt.Errorf("no cluster %q; there are %s", cluster, strings.Join(names, ", "))
	}
	known := slices.Sorted(maps.Keys(c.components()))
	known = append(known, c.agent.Held()...)
	if component != "" && !slices.Contains(known, component) {
		return nil, "", fmt.Errorf("no component %q in %s; there are %s", component, cluster, strings.Join(known, ", "))
	}
	return c, component, nil
}

// components returns the running processes of a cluster by component.
func (c *Cluster) components() map[string][]*proc.Process {
	out := map[string][]*proc.Process{}
	for name, p := range c.plane.Processes() {
		out[name] = []*proc.Process{p}
	}
	if c.kwok != nil {
		out["kwok"] = []*proc.Process{c.kwok}
	}
	maps.Copy(out, c.agent.Processes())
	return out
}

func (s *Sandbox) signal(name string, sig syscall.Signal) error {
	c, component, err := s.target(name)
	if err != nil {
		return err
	}
	var errs []error
	for n, processes := range c.components() {
		if component != "" && n != component {
			continue
		}
		for _, p := range processes {
			errs = append(errs, p.Signal(sig))
		}
	}
	return errors.Join(errs...)
}

// Freeze stops the processes of CLUSTER or CLUSTER/COMPONENT without ending
// them: connections stay open and are not answered.
func (s *Sandbox) Freeze(name string) error { return s.signal(name, syscall.SIGSTOP) }

// Resume continues what Freeze stopped.
func (s *Sandbox) Resume(name string) error { return s.signal(name, syscall.SIGCONT) }

// Kill ends the processes by SIGKILL; they stay down until Restart.
func (s *Sandbox) Kill(name string) error {
	c, component, err := s.target(name)
	if err != nil {
		return err
	}
	// Pods first: their restarts would be seen by the API server otherwise.
	for n := range c.agent.Processes() {
		if component == "" || n == component {
			c.agent.Kill(n)
		}
	}
	for n, processes := range c.components() {
		if component == "" || n == component {
			for _, p := range processes {
				p.Kill()
			}
		}
	}
	return nil
}

// Restart ends the processes that still run, and runs all of them again.
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
	pods := slices.Sorted(maps.Keys(c.agent.Processes()))
	for _, n := range append(pods, c.agent.Held()...) {
		if component == "" || n == component {
			c.agent.Restart(n)
		}
	}
	return nil
}

// Link reports the network between two peered clusters up or down. It needs
// Options.Networking.
func (s *Sandbox) Link(ctx context.Context, a, b string, up bool) error {
	if !s.opts.Networking {
		return errors.New("this sandbox has no links: start it with --networking")
	}
	ca, _, err := s.target(a)
	if err != nil {
		return err
	}
	cb, _, err := s.target(b)
	if err != nil {
		return err
	}
	if !slices.Contains(s.providersOf(ca), b) && !slices.Contains(s.providersOf(cb), a) {
		return fmt.Errorf("%s and %s are not peered", a, b)
	}
	return setLink(ctx, ca, cb, up)
}
