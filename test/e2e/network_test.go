package e2e

import (
	"context"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/controller-runtime/pkg/client"

	ipamv1alpha1 "github.com/liqotech/liqo/apis/ipam/v1alpha1"
	networkingv1beta1 "github.com/liqotech/liqo/apis/networking/v1beta1"

	"github.com/capacitorset/liqo-broker-vk/test/sandbox"
)

// link breaks the network between the clusters: the node is not Ready meanwhile, and its pods are not affected
// otherwise.
func link(t *testing.T, f *federation) {
	local, remote := f.namespaces(t)
	f.runPod(t, newPod(local, "steady"))
	here, there := uids(t, f.local, local), uids(t, f.remote, remote)

	require.NoError(t, f.Link(t.Context(), f.local.Name, f.remote.Name, false))
	t.Cleanup(func() { _ = f.Link(context.Background(), f.local.Name, f.remote.Name, true) })
	f.expectNodeReady(t, 30*time.Second, false)
	require.Equal(t, here, uids(t, f.local, local))
	require.NoError(t, f.Link(t.Context(), f.local.Name, f.remote.Name, true))
	f.expectNodeReady(t, 30*time.Second, true)
	require.Equal(t, here, uids(t, f.local, local))
	require.Equal(t, there, uids(t, f.remote, remote))
}

func (f *federation) expectNodeReady(t *testing.T, timeout time.Duration, want bool) {
	t.Helper()
	eventually(t, timeout, func(ctx context.Context) error {
		ready, err := f.nodeReady(ctx)
		if err == nil && ready != want {
			err = fmt.Errorf("node %s: Ready is %v, want %v", f.node, ready, want)
		}
		return err
	})
}

// remapping changes the range at which this cluster sees the remote one's pods, as Liqo does when it has to give up a
// range.
//
// The stock virtual kubelet reads the Configuration only at its start (cmd/virtual-kubelet/root/root.go), and continues
// to show addresses that lead nowhere. The scenario expects this known bug of it.
func remapping(t *testing.T, f *federation) {
	local, _ := f.namespaces(t)
	pod := newPod(local, "moved")
	f.runPod(t, pod)
	before := f.remotePodRange(t)
	after := netip.MustParsePrefix("10.199.0.0/16")
	t.Cleanup(func() { f.setRemotePodRange(t, before) })
	f.setRemotePodRange(t, after)

	shows := func(want netip.Prefix) func(context.Context) error {
		return func(ctx context.Context) error {
			theirs, err := f.remotePod(ctx, pod)
			if err != nil {
				return err
			}
			if err := f.local.Client.Get(ctx, client.ObjectKeyFromObject(pod), pod); err != nil {
				return err
			}
			if address := translate(t, theirs.Status.PodIP, want); pod.Status.PodIP != address {
				return fmt.Errorf("the pod shows %s, want %s", pod.Status.PodIP, address)
			}
			return nil
		}
	}
	if f.image == sandbox.ImageStock {
		// A new pod shows best that the old ranges are still in use.
		pod = newPod(local, "late")
		f.runPod(t, pod)
		eventually(t, 10*time.Second, shows(before))
		return
	}
	eventually(t, 10*time.Second, shows(after))
	f.setRemotePodRange(t, before)
	eventually(t, 10*time.Second, shows(before))
}

// setRemotePodRange changes the range at which this cluster sees the remote one's pods: the status of the Network for
// them. Liqo copies it to the Configuration (RemapConfiguration), and overwrites the Configuration's content.
func (f *federation) setRemotePodRange(t *testing.T, to netip.Prefix) {
	t.Helper()
	namespace := client.InNamespace("liqo-tenant-" + f.remote.Name)
	ctx, cancel := context.WithTimeout(context.Background(), patient)
	defer cancel()
	within(ctx, t, func(ctx context.Context) error {
		var conf networkingv1beta1.Configuration
		if err := f.local.Client.Get(ctx, client.ObjectKey{Namespace: string(namespace), Name: f.remote.Name}, &conf); err != nil {
			return err
		}
		seen := conf.Status.Remote.CIDR.Pod[0]
		if string(seen) == to.String() {
			return nil
		}
		var networks ipamv1alpha1.NetworkList
		if err := f.local.Client.List(ctx, &networks, namespace); err != nil {
			return err
		}
		for i := range networks.Items {
			network := &networks.Items[i]
			if network.Status.CIDR != seen {
				continue
			}
			network.Status.CIDR = networkingv1beta1.CIDR(to.String())
			if err := f.local.Client.Status().Update(ctx, network); err != nil {
				return err
			}
		}
		return fmt.Errorf("the Configuration has %s, not %s yet", seen, to)
	})
}

// killed kills all processes of the provider at once, like a power failure, and starts them again.
func killed(t *testing.T, f *federation, local string) {
	remote := f.local.RemoteNamespace(local)
	require.NoError(t, f.local.Client.Create(t.Context(), newDeployment(local, "web", 5)))
	eventually(t, f.patience(), func(ctx context.Context) error { return allRunning(ctx, f.local, local, 5) })
	here, there := uids(t, f.local, local), uids(t, f.remote, remote)

	require.NoError(t, f.Kill(f.remote.Name))
	f.expectNodeReady(t, 3*time.Minute, false)
	require.Equal(t, here, uids(t, f.local, local), "pods are left in place")
	require.NoError(t, f.Restart(t.Context(), f.remote.Name))
	f.expectNodeReady(t, 2*time.Minute, true)
	f.runPod(t, newPod(local, "after"))
	require.Subset(t, uids(t, f.local, local), here)
	require.Subset(t, uids(t, f.remote, remote), there)
}
