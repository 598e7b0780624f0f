// Command contain prepares the file system of a "container" that is a host
// process, then becomes the program in it:
//
//	contain --hostname=NAME [--bind=HOST:CONTAINER]... -- PROGRAM ARG0 [ARG...]
//
// It must run in a mount and a UTS namespace of its own. /run is replaced by an empty
// tmpfs, so that mount points below it leave no trace on the host.
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "contain:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) == 0 {
		return fmt.Errorf("no host name given")
	}
	name, ok := strings.CutPrefix(args[0], "--hostname=")
	if !ok {
		return fmt.Errorf("%q is not --hostname=NAME", args[0])
	}
	if err := unix.Sethostname([]byte(name)); err != nil {
		return fmt.Errorf("host name: %w", err)
	}
	args = args[1:]
	var binds [][2]string
	for len(args) > 0 && args[0] != "--" {
		value, ok := strings.CutPrefix(args[0], "--bind=")
		from, to, ok2 := strings.Cut(value, ":")
		if !ok || !ok2 {
			return fmt.Errorf("%q is not --bind=HOST:CONTAINER", args[0])
		}
		binds = append(binds, [2]string{from, to})
		args = args[1:]
	}
	if len(args) < 3 {
		return fmt.Errorf("no program given")
	}
	// The program may lie below a directory that a mount is about to hide, so
	// it is opened first and executed through its descriptor.
	program, err := unix.Open(args[1], unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("%s: %w", args[1], err)
	}
	if err := mountAll(binds); err != nil {
		return err
	}
	return unix.Exec(fmt.Sprintf("/proc/self/fd/%d", program), args[2:], os.Environ())
}

// mountAll mounts every bind. Sources are opened before the first mount hides
// any of them.
func mountAll(binds [][2]string) error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	sources := make([]int, len(binds))
	for i, b := range binds {
		fd, err := unix.Open(b[0], unix.O_PATH|unix.O_CLOEXEC, 0)
		if err != nil {
			return fmt.Errorf("%s: %w", b[0], err)
		}
		sources[i] = fd
	}
	if err := unix.Mount("tmpfs", "/run", "tmpfs", 0, "mode=755"); err != nil {
		return fmt.Errorf("/run: %w", err)
	}
	for i, b := range binds {
		target := b[1]
		// /var/run is a link to /run on every current distribution.
		if rest, ok := strings.CutPrefix(filepath.Clean(target), "/var/run/"); ok {
			target = "/run/" + rest
		}
		if err := os.MkdirAll(target, 0o755); err != nil {
			return err
		}
		if err := unix.Mount(fmt.Sprintf("/proc/self/fd/%d", sources[i]), target, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("%s: %w", b[1], err)
		}
	}
	return nil
}
