package sandbox

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/capacitorset/liqo-broker-vk/test/sandbox/internal/binaries"
	"github.com/capacitorset/liqo-broker-vk/test/sandbox/internal/containers"
	"github.com/capacitorset/liqo-broker-vk/test/sandbox/internal/proc"
)

// Files in a sandbox's directory.
const (
	ownerFile   = "owner.json"
	stateFile   = "state.json"
	recordsDir  = "processes"
	controlFile = "control.sock"
	toolsDir    = "tools"
)

// State is the state of a sandbox that other processes can read.
type State struct {
	Name        string            `json:"name"`
	Ready       time.Time         `json:"ready"`
	BootSeconds float64           `json:"bootSeconds"`
	Networking  bool              `json:"networking"`
	Image       string            `json:"image"`
	Kubeconfigs map[string]string `json:"kubeconfigs"`
	// Tools is the directory of the commands for a terminal: kubectl, of the clusters' version, and its plugin
	// kubectl-broker.
	Tools string `json:"tools"`
}

// CacheDir is where sandboxes keep binaries and state.
func CacheDir() (string, error) { return binaries.CacheDir() }

func sandboxesDir() (string, error) {
	cache, err := binaries.CacheDir()
	return filepath.Join(cache, "sandboxes"), err
}

func dirOf(name string) (string, error) {
	if !validName.MatchString(name) {
		return "", fmt.Errorf("--name=%q: use lower-case letters, digits and dashes, at most 32", name)
	}
	base, err := sandboxesDir()
	return filepath.Join(base, name), err
}

// Claim creates the directory of a sandbox and records this process as its owner.
func Claim(name string) (string, error) {
	dir, err := dirOf(name)
	if err != nil {
		return "", err
	}
	owner, alive, err := readOwner(dir)
	if err != nil {
		return "", err
	}
	if alive {
		return "", fmt.Errorf("a sandbox %q is up already (pid %d): take it down first, or choose another --name", name, owner.PID)
	}
	if err := errors.Join(containers.RemoveCgroups(cgroupOf(dir)), os.RemoveAll(dir)); err != nil {
		return "", err
	}
	if err := os.MkdirAll(filepath.Join(dir, recordsDir), 0o700); err != nil {
		return "", err
	}
	self, err := proc.Self("sandbox " + name)
	if err != nil {
		return "", err
	}
	return dir, writeJSON(filepath.Join(dir, ownerFile), self)
}

func readOwner(dir string) (owner proc.Identity, alive bool, err error) {
	err = readJSON(filepath.Join(dir, ownerFile), &owner)
	if errors.Is(err, fs.ErrNotExist) {
		return owner, false, nil
	}
	return owner, err == nil && owner.Alive(), err
}

// Sweep ends the processes, and removes the files, of every sandbox whose owner has died, and returns their names.
func Sweep() ([]string, error) {
	base, err := sandboxesDir()
	if err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(base)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var swept []string
	for _, e := range entries {
		dir := filepath.Join(base, e.Name())
		_, err := os.Stat(filepath.Join(dir, ownerFile))
		if errors.Is(err, fs.ErrNotExist) {
			continue // the logs of a start that failed
		}
		if _, alive, err := readOwner(dir); alive || err != nil {
			continue
		}
		if _, err := proc.KillRecorded(filepath.Join(dir, recordsDir)); err != nil {
			return swept, fmt.Errorf("clean up sandbox %s: %w", e.Name(), err)
		}
		if err := containers.RemoveCgroups(cgroupOf(dir)); err != nil {
			return swept, fmt.Errorf("clean up sandbox %s: %w", e.Name(), err)
		}
		if err := os.RemoveAll(dir); err != nil {
			return swept, err
		}
		swept = append(swept, e.Name())
	}
	return swept, nil
}

// Remove ends the processes and removes the files of a sandbox without an owner.
func Remove(name string) error {
	dir, err := dirOf(name)
	if err != nil {
		return err
	}
	if _, err := proc.KillRecorded(filepath.Join(dir, recordsDir)); err != nil {
		return err
	}
	return errors.Join(containers.RemoveCgroups(cgroupOf(dir)), os.RemoveAll(dir))
}

func (s *Sandbox) saveState() error {
	state := State{
		Name: s.opts.Name, Ready: time.Now(), BootSeconds: time.Since(s.began).Seconds(),
		Networking: s.opts.Networking, Image: s.opts.Image, Kubeconfigs: map[string]string{}, Tools: s.Tools(),
	}
	for _, c := range s.Clusters {
		state.Kubeconfigs[c.Name] = c.plane.Kubeconfig()
	}
	return writeJSON(filepath.Join(s.dir, stateFile), state)
}

// ReadState returns the state of a running sandbox.
func ReadState(name string) (State, error) {
	var state State
	dir, err := dirOf(name)
	if err != nil {
		return state, err
	}
	if _, alive, err := readOwner(dir); err != nil || !alive {
		return state, errors.Join(fmt.Errorf("no sandbox %q is up: start one with sandbox up --name=%s", name, name), err)
	}
	err = readJSON(filepath.Join(dir, stateFile), &state)
	if errors.Is(err, fs.ErrNotExist) {
		return state, fmt.Errorf("sandbox %q is still starting", name)
	}
	return state, err
}

// writeJSON replaces the whole file at once, so that no reader sees a part of it.
func writeJSON(path string, v any) error {
	data, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(path+".new", append(data, '\n'), 0o600); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

func readJSON(path string, v any) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(data, v); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

// Alive reports whether a sandbox of that name has a running owner.
func Alive(name string) bool {
	dir, err := dirOf(name)
	if err != nil {
		return false
	}
	_, alive, err := readOwner(dir)
	return err == nil && alive
}

// KillOwner kills the process that owns a sandbox. All processes that it started die with it.
func KillOwner(name string) error {
	dir, err := dirOf(name)
	if err != nil {
		return err
	}
	owner, alive, err := readOwner(dir)
	if err != nil || !alive {
		return err
	}
	return owner.Kill(10 * time.Second)
}

// Kubeconfig is the path of an administrator's kubeconfig of the cluster.
func (c *Cluster) Kubeconfig() string { return c.plane.Kubeconfig() }

// Tools is State.Tools.
func (s *Sandbox) Tools() string { return filepath.Join(s.dir, toolsDir) }

func (s *Sandbox) linkTools() error {
	if err := os.Mkdir(s.Tools(), 0o750); err != nil {
		return err
	}
	plugin := filepath.Join(s.Tools(), "kubectl-broker")
	return errors.Join(os.Symlink(filepath.Join(s.bin, binaries.Kubectl), filepath.Join(s.Tools(), "kubectl")),
		os.Symlink(s.Binary(), plugin), os.Symlink(plugin, filepath.Join(s.Tools(), "kubectl_complete-broker")))
}

// Binary is the path of this repository's program, as the sandbox built it.
func (s *Sandbox) Binary() string { return s.images[ImageOurs].Binary }
