package nodeagent

import (
	"testing"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

func TestExpand(t *testing.T) {
	env := []string{"POD_IP=127.0.0.1", "EMPTY="}
	for in, want := range map[string]string{
		"--node-ip=$(POD_IP)":   "--node-ip=127.0.0.1",
		"$(POD_IP)/$(POD_IP)":   "127.0.0.1/127.0.0.1",
		"a$(EMPTY)b":            "ab",
		"$(UNKNOWN) stays":      "$(UNKNOWN) stays",
		"not $(closed":          "not $(closed",
		"no variable":           "no variable",
		"$(UNKNOWN) $(POD_IP)!": "$(UNKNOWN) 127.0.0.1!",
	} {
		assert.Equal(t, want, expand(in, env), "%q", in)
	}
}

func TestComponentOf(t *testing.T) {
	owned := func(kind, owner, hash string) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
			Name: "vk-p1-5d7f-abcde", Labels: map[string]string{"pod-template-hash": hash},
			OwnerReferences: []metav1.OwnerReference{{Kind: kind, Name: owner, Controller: ptr.To(true)}},
		}}
	}
	assert.Equal(t, "vk-p1", ComponentOf(owned("ReplicaSet", "vk-p1-5d7f", "5d7f")))
	assert.Equal(t, "vk-p1-5d7f-abcde", ComponentOf(owned("Job", "vk-p1", "")))
	assert.Equal(t, "alone", ComponentOf(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "alone"}}))
}
