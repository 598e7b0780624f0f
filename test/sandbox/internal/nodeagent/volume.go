package nodeagent

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// tokenSeconds is the lifetime of a ServiceAccount token. Tokens are written only when a container starts, so they must
// outlast any sandbox.
const tokenSeconds = 7 * 24 * 3600

// writeVolume writes the files of a volume to dir.
func (w *podWorker) writeVolume(ctx context.Context, v corev1.Volume, dir string) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	switch {
	case v.EmptyDir != nil:
		return nil
	case v.Secret != nil:
		return w.writeSecret(ctx, dir, v.Secret.SecretName, v.Secret.Items)
	case v.ConfigMap != nil:
		return w.writeConfigMap(ctx, dir, v.ConfigMap.Name, v.ConfigMap.Items)
	case v.Projected != nil:
		for _, src := range v.Projected.Sources {
			if err := w.writeProjection(ctx, dir, src); err != nil {
				return err
			}
		}
		return nil
	}
	return fmt.Errorf("this kind of volume is not supported by the sandbox's node agent")
}

func (w *podWorker) writeProjection(ctx context.Context, dir string, src corev1.VolumeProjection) error {
	switch {
	case src.ServiceAccountToken != nil:
		token, err := w.token(ctx, src.ServiceAccountToken.Audience)
		if err != nil {
			return err
		}
		return writeFile(dir, src.ServiceAccountToken.Path, []byte(token))
	case src.ConfigMap != nil:
		return w.writeConfigMap(ctx, dir, src.ConfigMap.Name, src.ConfigMap.Items)
	case src.Secret != nil:
		return w.writeSecret(ctx, dir, src.Secret.Name, src.Secret.Items)
	case src.DownwardAPI != nil:
		for _, item := range src.DownwardAPI.Items {
			value, err := w.field(item.FieldRef.FieldPath)
			if err != nil {
				return err
			}
			if err := writeFile(dir, item.Path, []byte(value)); err != nil {
				return err
			}
		}
		return nil
	}
	return fmt.Errorf("this kind of projection is not supported by the sandbox's node agent")
}

// token requests a token for the pod's ServiceAccount that is bound to the pod.
func (w *podWorker) token(ctx context.Context, audience string) (string, error) {
	req := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		ExpirationSeconds: ptr.To(int64(tokenSeconds)),
		BoundObjectRef:    &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: w.pod.Name, UID: w.pod.UID},
	}}
	if audience != "" {
		req.Spec.Audiences = []string{audience}
	}
	resp, err := w.agent.cfg.Client.CoreV1().ServiceAccounts(w.pod.Namespace).
		CreateToken(ctx, w.pod.Spec.ServiceAccountName, req, metav1.CreateOptions{})
	if err != nil {
		return "", err
	}
	return resp.Status.Token, nil
}

func (w *podWorker) writeSecret(ctx context.Context, dir, name string, items []corev1.KeyToPath) error {
	s, err := w.agent.cfg.Client.CoreV1().Secrets(w.pod.Namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	return writeItems(dir, items, s.Data)
}

func (w *podWorker) writeConfigMap(ctx context.Context, dir, name string, items []corev1.KeyToPath) error {
	cm, err := w.agent.cfg.Client.CoreV1().ConfigMaps(w.pod.Namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	data := map[string][]byte{}
	for k, v := range cm.Data {
		data[k] = []byte(v)
	}
	return writeItems(dir, items, data)
}

// writeItems writes the selected keys to their paths, or all keys to files with their names.
func writeItems(dir string, items []corev1.KeyToPath, data map[string][]byte) error {
	if len(items) == 0 {
		for k, v := range data {
			if err := writeFile(dir, k, v); err != nil {
				return err
			}
		}
		return nil
	}
	for _, item := range items {
		if err := writeFile(dir, item.Path, data[item.Key]); err != nil {
			return err
		}
	}
	return nil
}

func writeFile(dir, path string, data []byte) error {
	return os.WriteFile(filepath.Join(dir, path), data, 0o600)
}
