package cli

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
)

// drainedPods is the follower of pods.
type drainedPods drainage

func (f *drainedPods) all(objects []client.Object) error {
	d := (*drainage)(f)
	if err := d.seePods(objects); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.check()
	return nil
}

func (f *drainedPods) changed(o client.Object) error {
	d := (*drainage)(f)
	d.mu.Lock()
	defer d.mu.Unlock()
	if pod, ok := o.(*corev1.Pod); ok {
		if err := d.pod(pod); err != nil {
			return err
		}
	}
	d.check()
	return nil
}

func (f *drainedPods) gone(o client.Object) error {
	d := (*drainage)(f)
	d.mu.Lock()
	defer d.mu.Unlock()
	key := client.ObjectKeyFromObject(o)
	_, known := d.pods[key]
	delete(d.pods, key)
	delete(d.waiting, key)
	if known {
		if err := d.line("pod %s is gone", key); err != nil {
			return err
		}
	}
	d.check()
	return nil
}

// drainedProviders is the follower of providers.
type drainedProviders drainage

func (f *drainedProviders) all(objects []client.Object) error {
	d := (*drainage)(f)
	there := map[string]bool{}
	for _, o := range objects {
		there[o.GetName()] = true
		if err := f.changed(o); err != nil {
			return err
		}
	}
	for _, id := range d.ids {
		if !there[id] {
			return fmt.Errorf("%s was deleted meanwhile", id)
		}
	}
	return nil
}

func (f *drainedProviders) changed(o client.Object) error {
	d := (*drainage)(f)
	d.mu.Lock()
	defer d.mu.Unlock()
	pc, ok := o.(*v1alpha1.ProviderCluster)
	if !ok || d.providers[pc.Name] == nil {
		return nil
	}
	if !pc.Spec.Drain {
		return fmt.Errorf("%s: somebody has ended the drain", pc.Name)
	}
	d.see(pc)
	d.check()
	return nil
}

func (f *drainedProviders) gone(o client.Object) error {
	d := (*drainage)(f)
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.providers[o.GetName()] == nil {
		return nil
	}
	return fmt.Errorf("%s was deleted meanwhile", o.GetName())
}
