package proc

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Identity names a process permanently: a pid is reused, but not with the same start time.
type Identity struct {
	Name string `json:"name"`
	PID  int    `json:"pid"`
	// Start is field 22 of /proc/PID/stat: clock ticks after boot.
	Start uint64 `json:"start"`
}

// Self returns the identity of the calling process.
func Self(name string) (Identity, error) { return identify(name, os.Getpid()) }

func identify(name string, pid int) (Identity, error) {
	fields, err := statFields(pid)
	if err != nil {
		return Identity{}, err
	}
	if fields[0] == "Z" {
		return Identity{}, fmt.Errorf("process %d has ended: %w", pid, os.ErrNotExist)
	}
	start, err := strconv.ParseUint(fields[19], 10, 64)
	if err != nil {
		return Identity{}, err
	}
	return Identity{Name: name, PID: pid, Start: start}, nil
}

// statFields returns the fields of /proc/PID/stat from the third on, at least 20: field n of proc(5) is at index n-3.
func statFields(pid int) ([]string, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return nil, err
	}
	// The second field is the command in parentheses and may contain any character.
	fields := strings.Fields(string(data[strings.LastIndexByte(string(data), ')')+1:]))
	if len(fields) < 20 {
		return nil, fmt.Errorf("/proc/%d/stat has %d fields", pid, len(fields)+2)
	}
	return fields, nil
}

// Alive reports whether this process still exists.
func (id Identity) Alive() bool {
	now, err := identify(id.Name, id.PID)
	return err == nil && now.Start == id.Start
}

// Kill ends this process, if it still exists, and waits until it is gone.
func (id Identity) Kill(timeout time.Duration) error {
	deadline := time.Now().Add(timeout)
	for id.Alive() {
		if err := syscall.Kill(id.PID, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
			return fmt.Errorf("%s (pid %d): %w", id.Name, id.PID, err)
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%s (pid %d) has not ended", id.Name, id.PID)
		}
		time.Sleep(10 * time.Millisecond)
	}
	return nil
}

func (g *Group) record(p *Process) error {
	id, err := identify(p.Spec.Name, p.PID)
	if errors.Is(err, os.ErrNotExist) {
		return nil // ended already
	}
	if err != nil {
		return err
	}
	data, err := json.Marshal(id)
	if err != nil {
		return err
	}
	return os.WriteFile(g.recordPath(p), data, 0o600)
}

// KillRecorded ends every recorded process in the directory that still runs, and returns their number.
func KillRecorded(records string) (int, error) {
	files, err := filepath.Glob(filepath.Join(records, "*.json"))
	if err != nil {
		return 0, err
	}
	var killed int
	var errs []error
	for _, f := range files {
		data, err := os.ReadFile(f)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		var id Identity
		if err := json.Unmarshal(data, &id); err != nil {
			continue // Partially written by a process that was killed; its child ended with it.
		}
		if id.Alive() {
			killed++
			errs = append(errs, id.Kill(10*time.Second))
		}
	}
	return killed, errors.Join(errs...)
}
