package proc

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Spec describes a process.
type Spec struct {
	// Name identifies the process within its Group.
	Name string
	Path string
	Args []string
	// Env is the whole environment; nothing is inherited.
	Env []string
	// Log is the file to which standard output and error are appended.
	Log string
	// Private gives the process its own mount namespace and host name.
	Private bool
	// Network is the descriptor of the network namespace that the process is in; 0 for this process's own.
	Network int
	// First makes the process the first one of a PID namespace, which ends with it. Inside, if set, is such a process,
	// whose PID namespace this process is in. Both need root.
	First  bool
	Inside *Process
}

// Group starts processes and ends them together. Its methods are safe for concurrent use.
type Group struct {
	records string
	start   chan startRequest
	stop    chan struct{}

	// starting is held by each Start, and by Close until no Start is running and no new one can begin: a process that
	// starts later would write its log into directories that are being removed.
	starting sync.RWMutex
	closed   bool

	mu   sync.Mutex
	live map[*Process]struct{}
}

type startRequest struct {
	cmd  *exec.Cmd
	spec *Spec
	done chan error
}

// NewGroup returns a group that records its processes in the directory records,
// which must exist.
func NewGroup(records string) *Group {
	g := &Group{
		records: records,
		start:   make(chan startRequest),
		stop:    make(chan struct{}),
		live:    map[*Process]struct{}{},
	}
	go g.startLoop()
	return g
}

// startLoop starts all processes from one thread that lives as long as the group: the kernel sends the parent-death
// signal when the *thread* that forked dies, not the process. The thread is never unlocked, so it dies with the loop,
// and so do all processes that are being started while the group is closed.
func (g *Group) startLoop() {
	runtime.LockOSThread()
	for {
		select {
		case r := <-g.start:
			r.done <- startIn(r.spec, r.cmd)
		case <-g.stop:
			return
		}
	}
}

// startIn starts cmd in the namespaces of a spec. The calling thread is locked, and returns to its own ones. If it
// cannot return, no other process could be started from it.
func startIn(spec *Spec, cmd *exec.Cmd) error {
	start := cmd.Start
	if spec.Inside != nil {
		pids, err := os.Open(fmt.Sprintf("/proc/%d/ns/pid", spec.Inside.PID))
		if err != nil {
			return err
		}
		defer pids.Close()
		start = within("pid", unix.CLONE_NEWPID, int(pids.Fd()), start)
	}
	if spec.Network != 0 {
		start = within("net", unix.CLONE_NEWNET, spec.Network, start)
	}
	return start()
}

// within returns do, called in another namespace of a kind.
func within(name string, kind, namespace int, do func() error) func() error {
	return func() error {
		own, err := os.Open("/proc/thread-self/ns/" + name)
		if err != nil {
			return err
		}
		defer own.Close()
		if err := unix.Setns(namespace, kind); err != nil {
			return fmt.Errorf("enter %s namespace: %w", name, err)
		}
		err = do()
		if err := unix.Setns(int(own.Fd()), kind); err != nil {
			panic(fmt.Errorf("return to the %s namespace of this process: %w", name, err))
		}
		return err
	}
}

// Process is a started process.
type Process struct {
	Spec Spec
	PID  int
	// Done is closed when the process has ended; Err then returns the result.
	Done chan struct{}

	group *Group
	err   error
	asked atomic.Bool
}

// Start starts the process of spec, and records it.
func (g *Group) Start(spec Spec) (*Process, error) {
	g.starting.RLock()
	defer g.starting.RUnlock()
	if g.closed {
		return nil, fmt.Errorf("%s: the group has ended", spec.Name)
	}
	log, err := os.OpenFile(spec.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer log.Close()

	cmd := exec.Command(spec.Path, spec.Args...)
	cmd.Env, cmd.Stdout, cmd.Stderr = spec.Env, log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if spec.Private {
		privateNamespaces(cmd.SysProcAttr)
	}
	if spec.First {
		cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWPID
	}
	if spec.Inside != nil {
		// The kernel ends it with the first process. Package syscall would take its parent, which has no PID there, for
		// dead (forkAndExecInChild1).
		cmd.SysProcAttr.Pdeathsig = 0
	}
	r := startRequest{cmd: cmd, spec: &spec, done: make(chan error, 1)}
	g.start <- r
	if err := <-r.done; err != nil {
		return nil, fmt.Errorf("%s: %w", spec.Name, err)
	}

	p := &Process{Spec: spec, PID: cmd.Process.Pid, Done: make(chan struct{}), group: g}
	g.mu.Lock()
	g.live[p] = struct{}{}
	g.mu.Unlock()
	if err := g.record(p); err != nil {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		return nil, err
	}
	go func() {
		p.err = cmd.Wait()
		g.mu.Lock()
		delete(g.live, p)
		g.mu.Unlock()
		_ = os.Remove(g.recordPath(p))
		close(p.Done)
	}()
	return p, nil
}

// privateNamespaces requests a mount and a UTS namespace, and, if the caller is not root, a user namespace in which it
// may change them.
func privateNamespaces(attr *syscall.SysProcAttr) {
	attr.Cloneflags |= syscall.CLONE_NEWNS | syscall.CLONE_NEWUTS
	if os.Getuid() == 0 {
		return
	}
	attr.Cloneflags |= syscall.CLONE_NEWUSER
	attr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}}
	attr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}}
}

// Err returns how a process that is Done ended; nil is exit code 0.
func (p *Process) Err() error {
	<-p.Done
	return p.err
}

// Running reports whether the process has not ended yet.
func (p *Process) Running() bool {
	select {
	case <-p.Done:
		return false
	default:
		return true
	}
}

// Signal sends sig. It returns no error if the process has ended.
func (p *Process) Signal(sig syscall.Signal) error {
	if !p.Running() {
		return nil
	}
	if err := syscall.Kill(p.PID, sig); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("%s: %w", p.Spec.Name, err)
	}
	return nil
}

// Asked reports whether Stop or Kill were called.
func (p *Process) Asked() bool { return p.asked.Load() }

// Stop asks the process to end, and kills it after grace.
func (p *Process) Stop(grace time.Duration) {
	p.asked.Store(true)
	_ = p.Signal(syscall.SIGTERM)
	_ = p.Signal(syscall.SIGCONT)
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case <-p.Done:
	case <-timer.C:
		p.Kill()
	}
}

// Kill ends the process at once and waits until it is gone.
func (p *Process) Kill() {
	p.asked.Store(true)
	_ = p.Signal(syscall.SIGKILL)
	<-p.Done
}

// Failure describes a process that has ended unexpectedly: its result, the path of its log, and the log's last lines.
func (p *Process) Failure() error {
	how := "by itself"
	if err := p.Err(); err != nil {
		how = err.Error()
	}
	return fmt.Errorf("%s ended: %s\nlast lines of %s:\n%s", p.Spec.Name, how, p.Spec.Log, Tail(p.Spec.Log, 15))
}

// Live returns the processes that have not ended.
func (g *Group) Live() []*Process {
	g.mu.Lock()
	defer g.mu.Unlock()
	out := make([]*Process, 0, len(g.live))
	for p := range g.live {
		out = append(out, p)
	}
	return out
}

// Close kills every process of the group and waits for them. No process starts afterwards.
func (g *Group) Close() {
	g.starting.Lock()
	g.closed = true
	g.starting.Unlock()
	close(g.stop)
	for _, p := range g.Live() {
		_ = p.Signal(syscall.SIGKILL)
	}
	for _, p := range g.Live() {
		<-p.Done
	}
}

// Tail returns the last n lines of a file, indented, or the error of reading it.
func Tail(path string, n int) string {
	data, err := os.ReadFile(path)
	if err != nil {
		return "  " + err.Error()
	}
	lines := strings.Split(strings.TrimRight(string(data), "\n"), "\n")
	if len(lines) > n {
		lines = lines[len(lines)-n:]
	}
	return "  " + strings.Join(lines, "\n  ")
}

// WaitFor polls ready until it returns nil. It gives up when the process or ctx ends, with the last error of ready.
func (p *Process) WaitFor(ctx context.Context, ready func(context.Context) error) error {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		err := ready(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-p.Done:
			return p.Failure()
		case <-ctx.Done():
			return fmt.Errorf("%s is not ready: %w\nlast lines of %s:\n%s", p.Spec.Name, err, p.Spec.Log, Tail(p.Spec.Log, 15))
		case <-tick.C:
		}
	}
}

func (g *Group) recordPath(p *Process) string {
	return filepath.Join(g.records, fmt.Sprintf("%d.json", p.PID))
}
