package provider

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/informers/core"
	corev1informers "k8s.io/client-go/informers/core/v1"
	corev1listers "k8s.io/client-go/listers/core/v1"
)

// podLensFactory is an informer factory whose listers show other pods than the cache holds. The types below are the
// path from the factory to the lister.
type podLensFactory struct {
	informers.SharedInformerFactory
	pods podLensInformer
}

func (f podLensFactory) Core() core.Interface {
	return podLensCore{Interface: f.SharedInformerFactory.Core(), pods: f.pods}
}

type podLensCore struct {
	core.Interface
	pods podLensInformer
}

func (c podLensCore) V1() corev1informers.Interface {
	return podLensV1{Interface: c.Interface.V1(), pods: c.pods}
}

type podLensV1 struct {
	corev1informers.Interface
	pods podLensInformer
}

func (v podLensV1) Pods() corev1informers.PodInformer { return v.pods }

type podLensInformer struct {
	corev1informers.PodInformer
	show func(*corev1.Pod) *corev1.Pod
}

func (i podLensInformer) Lister() corev1listers.PodLister {
	return podLensLister{PodLister: i.PodInformer.Lister(), show: i.show}
}

type podLensLister struct {
	corev1listers.PodLister
	show func(*corev1.Pod) *corev1.Pod
}

func (l podLensLister) List(selector labels.Selector) ([]*corev1.Pod, error) {
	return showAll(l.show)(l.PodLister.List(selector))
}

func (l podLensLister) Pods(namespace string) corev1listers.PodNamespaceLister {
	return podLensNamespaceLister{PodNamespaceLister: l.PodLister.Pods(namespace), show: l.show}
}

type podLensNamespaceLister struct {
	corev1listers.PodNamespaceLister
	show func(*corev1.Pod) *corev1.Pod
}

func (l podLensNamespaceLister) List(selector labels.Selector) ([]*corev1.Pod, error) {
	return showAll(l.show)(l.PodNamespaceLister.List(selector))
}

func (l podLensNamespaceLister) Get(name string) (*corev1.Pod, error) {
	pod, err := l.PodNamespaceLister.Get(name)
	if err != nil {
		// Liqo tells an absent pod from a present one by the pointer too.
		return nil, err
	}
	return l.show(pod), nil
}

func showAll(show func(*corev1.Pod) *corev1.Pod) func([]*corev1.Pod, error) ([]*corev1.Pod, error) {
	return func(pods []*corev1.Pod, err error) ([]*corev1.Pod, error) {
		if err != nil {
			return nil, err
		}
		shown := make([]*corev1.Pod, 0, len(pods))
		for _, pod := range pods {
			shown = append(shown, show(pod))
		}
		return shown, nil
	}
}
