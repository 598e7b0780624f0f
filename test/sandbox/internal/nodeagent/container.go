package nodeagent

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sort"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kubernetes/pkg/fieldpath"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capacitorset/liqo-broker-vk/test/sandbox/internal/proc"
)

// startContainer prepares a container's files and runs its process.
func (w *podWorker) startContainer(ctx context.Context, c *container) (*proc.Process, error) {
	image, ok := w.agent.cfg.Images[c.spec.Image]
	if !ok {
		known := make([]string, 0, len(w.agent.cfg.Images))
		for name := range w.agent.cfg.Images {
			known = append(known, name)
		}
		sort.Strings(known)
		return nil, fmt.Errorf("no image %q; the sandbox knows %s", c.spec.Image, strings.Join(known, ", "))
	}
	env, binds, err := w.prepare(ctx, c, image)
	if err != nil {
		return nil, err
	}
	command := c.spec.Command
	if len(command) == 0 {
		command = image.Command
	}
	if len(command) == 0 {
		return nil, fmt.Errorf("container %s has no command, and its image names none here", c.spec.Name)
	}
	program, err := image.program(command[0])
	if err != nil {
		return nil, err
	}
	args := expandAll(slices.Concat(command[1:], c.spec.Args), env)
	own, ports, err := w.agent.ownPorts(image, slices.Concat(command[:1], args))
	if err != nil {
		return nil, err
	}
	args = append(args, own...)
	p, err := w.agent.cfg.Group.Start(proc.Spec{
		Name:    w.agent.cfg.Cluster + "/" + w.component,
		Path:    w.agent.cfg.Contain,
		Args:    slices.Concat([]string{"--hostname=" + hostname(w.pod.Name)}, binds, []string{"--", program, command[0]}, args),
		Env:     env,
		Log:     w.logFile(c.spec.Name),
		Private: true,
		Network: w.network.descriptor(),
	})
	if err != nil {
		return nil, err
	}
	w.mu.Lock()
	c.process, c.ports = p, ports
	c.status = corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Now()}}
	w.mu.Unlock()
	w.report(ctx)
	return p, nil
}

// rerunTimeout bounds the requests for a container that ran before.
const rerunTimeout = 2 * time.Second

// prepare reads the environment and the volumes of a container from the API. A kubelet restarts a container without the
// API server: without an answer, the container has the environment and the volumes of its last start.
func (w *podWorker) prepare(ctx context.Context, c *container, image Image) (env, binds []string, err error) {
	if c.env != nil {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, rerunTimeout)
		defer cancel()
	}
	env, err = w.environment(ctx, c.spec)
	if err == nil {
		binds, err = w.mounts(ctx, c.spec, image)
	}
	if err == nil {
		c.env, c.binds = env, binds
	} else if c.env == nil {
		return nil, nil, err
	}
	return c.env, c.binds, nil
}

func (w *podWorker) logFile(container string) string {
	return filepath.Join(w.agent.cfg.LogDir, w.pod.Name+"-"+container+".log")
}

// program returns the file to run for a command.
func (i Image) program(command string) (string, error) {
	if !i.Machine {
		return i.Binary, nil
	}
	if filepath.Base(command) == "sh" {
		command = "bash" // Debian's sh drops variables whose names are not identifiers.
	}
	return exec.LookPath(command)
}

// hostname returns the host name of a pod: its name, up to the maximum length.
func hostname(pod string) string { return strings.TrimRight(pod[:min(len(pod), 63)], "-.") }

// ownPorts chooses free ports for a process. It returns the arguments to append, and the local port for each port of
// the container.
func (a *Agent) ownPorts(image Image, command []string) (args []string, ports map[int]int, err error) {
	if image.Ports == nil {
		return nil, nil, nil
	}
	ports = map[int]int{}
	given := map[string]int{}
	for _, p := range image.Ports(command) {
		if port, is := given[p.Argument]; is { // Another number of the same port.
			ports[p.Container] = port
			continue
		}
		free, err := a.cfg.Ports.Free()
		if err != nil {
			return nil, nil, err
		}
		args = append(args, fmt.Sprintf(p.Argument, free))
		ports[p.Container], given[p.Argument] = free, free
	}
	return args, ports, nil
}

// environment resolves the container's variables, in order, because later ones may refer to earlier ones. The variables
// of every pod come first.
func (w *podWorker) environment(ctx context.Context, c corev1.Container) ([]string, error) {
	env := []string{
		"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
		"HOSTNAME=" + hostname(w.pod.Name),
		"KUBERNETES_SERVICE_HOST=127.0.0.1",
		"KUBERNETES_SERVICE_PORT=" + strconv.Itoa(w.agent.cfg.APIPort),
		"KUBERNETES_SERVICE_PORT_HTTPS=" + strconv.Itoa(w.agent.cfg.APIPort),
	}
	for _, from := range c.EnvFrom {
		own, err := w.variablesFrom(ctx, from)
		if err != nil {
			return nil, err
		}
		env = append(env, own...)
	}
	for _, v := range c.Env {
		value := expand(v.Value, env)
		if v.ValueFrom != nil {
			var err error
			if value, err = w.valueFrom(ctx, v.ValueFrom); err != nil {
				return nil, fmt.Errorf("variable %s: %w", v.Name, err)
			}
		}
		env = append(env, v.Name+"="+value)
	}
	return env, nil
}

// variablesFrom returns the variables from a whole Secret or ConfigMap.
func (w *podWorker) variablesFrom(ctx context.Context, from corev1.EnvFromSource) (env []string, err error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	core, optional := w.agent.cfg.Client.CoreV1(), false
	switch {
	case from.SecretRef != nil:
		var s *corev1.Secret
		optional = ptr.Deref(from.SecretRef.Optional, false)
		s, err = core.Secrets(w.pod.Namespace).Get(ctx, from.SecretRef.Name, metav1.GetOptions{})
		if err == nil {
			for name, value := range s.Data {
				env = append(env, from.Prefix+name+"="+string(value))
			}
		}
	case from.ConfigMapRef != nil:
		var cm *corev1.ConfigMap
		optional = ptr.Deref(from.ConfigMapRef.Optional, false)
		cm, err = core.ConfigMaps(w.pod.Namespace).Get(ctx, from.ConfigMapRef.Name, metav1.GetOptions{})
		if err == nil {
			for name, value := range cm.Data {
				env = append(env, from.Prefix+name+"="+value)
			}
		}
	}
	if optional {
		err = client.IgnoreNotFound(err)
	}
	return env, err
}

func (w *podWorker) valueFrom(ctx context.Context, src *corev1.EnvVarSource) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	core := w.agent.cfg.Client.CoreV1()
	switch {
	case src.FieldRef != nil:
		return w.field(src.FieldRef.FieldPath)
	case src.ConfigMapKeyRef != nil:
		cm, err := core.ConfigMaps(w.pod.Namespace).Get(ctx, src.ConfigMapKeyRef.Name, metav1.GetOptions{})
		if err != nil {
			return "", err
		}
		return cm.Data[src.ConfigMapKeyRef.Key], nil
	case src.SecretKeyRef != nil:
		s, err := core.Secrets(w.pod.Namespace).Get(ctx, src.SecretKeyRef.Name, metav1.GetOptions{})
		if err != nil {
			return "", err
		}
		return string(s.Data[src.SecretKeyRef.Key]), nil
	}
	return "", fmt.Errorf("this kind of source is not supported by the sandbox's node agent")
}

func (w *podWorker) field(path string) (string, error) {
	switch path {
	case "spec.nodeName":
		return w.pod.Spec.NodeName, nil
	case "spec.serviceAccountName":
		return w.pod.Spec.ServiceAccountName, nil
	case "status.podIP":
		return w.network.address(), nil
	case "status.hostIP":
		return w.agent.hostAddress(), nil
	}
	value, err := fieldpath.ExtractFieldPathAsString(w.pod, path)
	if err != nil {
		return "", fmt.Errorf("field %s is not supported by the sandbox's node agent: %w", path, err)
	}
	return value, nil
}

// mounts writes the pod's volumes and returns a container's bind mounts: a private /tmp, an empty /etc if it has a
// network of its own, because Liqo writes the names of routing tables there (pkg/route/table.go), and its volume
// mounts.
func (w *podWorker) mounts(ctx context.Context, c corev1.Container, image Image) ([]string, error) {
	base := w.agent.podDir(w.pod)
	own := []string{"tmp"}
	if image.InNetwork {
		own = append(own, "etc")
	}
	var binds []string
	for _, name := range own {
		dir := filepath.Join(base, name+"-"+c.Name)
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, err
		}
		binds = append(binds, "--bind="+dir+":/"+name)
	}
	for _, m := range c.VolumeMounts {
		if image.Machine && !mountable(m.MountPath) {
			continue // Its directory would have to be created on this machine.
		}
		if !mountable(m.MountPath) {
			return nil, fmt.Errorf("mount path %s: only paths below /tmp and /run can be mounted here", m.MountPath)
		}
		i := slices.IndexFunc(w.pod.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == m.Name })
		if i < 0 {
			return nil, fmt.Errorf("no volume %q", m.Name)
		}
		dir := filepath.Join(base, "volume-"+m.Name)
		if err := w.writeVolume(ctx, w.pod.Spec.Volumes[i], dir); err != nil {
			return nil, fmt.Errorf("volume %s: %w", m.Name, err)
		}
		binds = append(binds, "--bind="+dir+":"+m.MountPath)
	}
	return binds, nil
}

// mountable reports whether a mount at a path leaves no trace on this machine.
func mountable(path string) bool {
	return path == "/tmp" || slices.ContainsFunc([]string{"/tmp/", "/var/run/", "/run/"}, func(below string) bool {
		return strings.HasPrefix(path, below)
	})
}

// expandAll replaces $(NAME) as Kubernetes does; unknown names stay as they are.
func expandAll(args, env []string) []string {
	out := make([]string, len(args))
	for i, a := range args {
		out[i] = expand(a, env)
	}
	return out
}

func expand(s string, env []string) string {
	var b strings.Builder
	for {
		start := strings.Index(s, "$(")
		if start < 0 {
			break
		}
		end := strings.IndexByte(s[start:], ')')
		if end < 0 {
			break
		}
		name, whole := s[start+2:start+end], s[start:start+end+1]
		b.WriteString(s[:start])
		if i := slices.IndexFunc(env, func(e string) bool { return strings.HasPrefix(e, name+"=") }); i >= 0 {
			b.WriteString(env[i][len(name)+1:])
		} else {
			b.WriteString(whole)
		}
		s = s[start+end+1:]
	}
	b.WriteString(s)
	return b.String()
}
