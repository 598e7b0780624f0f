// Command node is the first process of the namespaces of a node, and starts others in them:
//
//	node init --hostname=NAME --ready=FILE [--keep=DIRECTORY]... [--kubelet=DIRECTORY]
//	node enter PID -- PROGRAM [ARG...]
//
// init must run in a mount, a PID and a UTS namespace of its own. It hides the state of the machine's own container
// runtime and kubelet behind empty directories, keeps the given directories visible, and the one for the kubelet at the
// kubelet's usual path, writes the file once that is done, and reaps processes. When it ends, the kernel ends all
// processes of the node, and all mounts.
//
// enter becomes a program in the mount and UTS namespace of an init, by the PID that it has for the caller.
package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"
)

func main() {
	err := errors.New("usage: node init|enter")
	switch {
	case len(os.Args) > 1 && os.Args[1] == "init":
		err = begin(os.Args[2:])
	case len(os.Args) > 4 && os.Args[1] == "enter" && os.Args[3] == "--":
		err = enter(os.Args[2], os.Args[4:])
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "node:", err)
		os.Exit(1)
	}
}

// hidden are directories with the state of a container runtime and of a kubelet, at paths that these do not let one
// choose.
var hidden = []string{"/run", "/var/lib", "/var/log"}

// kernelValues are the kernel's parameters that a kubelet sets (setupKernelTunables in Kubernetes' pkg/kubelet/cm). They
// are the machine's: it finds the values that it wants, and writes none.
var kernelValues = map[string]string{
	"vm/overcommit_memory": "1", "vm/panic_on_oom": "0", "kernel/panic": "10", "kernel/panic_on_oops": "1",
	"kernel/keys/root_maxkeys": "1000000", "kernel/keys/root_maxbytes": "25000000",
}

func begin(args []string) error {
	// Before anything is hidden: a child that ends is never missed.
	children := make(chan os.Signal, 1)
	signal.Notify(children, unix.SIGCHLD)
	ready := ""
	var keep []mount
	for _, arg := range args {
		name, value, _ := strings.Cut(arg, "=")
		switch name {
		case "--hostname":
			if err := unix.Sethostname([]byte(value)); err != nil {
				return fmt.Errorf("host name: %w", err)
			}
		case "--ready":
			ready = value
		case "--keep":
			keep = append(keep, mount{value, value})
		case "--kubelet":
			keep = append(keep, mount{value, "/var/lib/kubelet"})
		default:
			return fmt.Errorf("unknown argument %s", arg)
		}
	}
	if err := hide(keep); err != nil {
		return err
	}
	if err := os.WriteFile(ready, nil, 0o600); err != nil {
		return err
	}
	for range children {
		for {
			pid, err := unix.Wait4(-1, nil, unix.WNOHANG, nil)
			if pid <= 0 || err != nil {
				break
			}
		}
	}
	return nil
}

// mount is a directory that stays visible at a path.
type mount struct{ dir, path string }

func hide(keep []mount) error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	opened := make([]int, len(keep))
	for i, kept := range keep {
		fd, err := unix.Open(kept.dir, unix.O_PATH|unix.O_CLOEXEC, 0)
		if err != nil {
			return fmt.Errorf("%s: %w", kept.dir, err)
		}
		opened[i] = fd
	}
	for _, dir := range hidden {
		if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "mode=755"); err != nil {
			return fmt.Errorf("%s: %w", dir, err)
		}
	}
	for i, kept := range keep {
		if err := os.MkdirAll(kept.path, 0o755); err != nil {
			return err
		}
		if err := unix.Mount(fmt.Sprintf("/proc/self/fd/%d", opened[i]), kept.path, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
			return fmt.Errorf("%s: %w", kept.path, err)
		}
	}
	if err := unix.Mount("proc", "/proc", "proc", 0, ""); err != nil {
		return fmt.Errorf("/proc: %w", err)
	}
	for name, value := range kernelValues {
		file := filepath.Join("/run/kernel", name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(file, []byte(value+"\n"), 0o644); err != nil {
			return err
		}
		if err := unix.Mount(file, "/proc/sys/"+name, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("/proc/sys/%s: %w", name, err)
		}
	}
	// A kubelet's mounts of volumes have to reach containers.
	return unix.Mount("", "/", "", unix.MS_REC|unix.MS_SHARED, "")
}

func enter(pid string, command []string) error {
	runtime.LockOSThread() // Each thread has its namespaces, and exec keeps the calling thread.
	hostName, err := os.Open("/proc/" + pid + "/ns/uts")
	if err != nil {
		return err
	}
	mounts, err := os.Open("/proc/" + pid + "/ns/mnt")
	if err != nil {
		return err
	}
	if err := unix.Setns(int(hostName.Fd()), unix.CLONE_NEWUTS); err != nil {
		return fmt.Errorf("UTS namespace: %w", err)
	}
	// A thread that shares its working directory with others may enter no mount namespace.
	if err := unix.Unshare(unix.CLONE_FS); err != nil {
		return err
	}
	if err := unix.Setns(int(mounts.Fd()), unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("mount namespace: %w", err)
	}
	program, err := exec.LookPath(command[0])
	if err != nil {
		return err
	}
	return unix.Exec(program, command, os.Environ())
}
