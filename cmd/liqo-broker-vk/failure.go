package main

import (
	"errors"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/capacitorset/liqo-broker-vk/api/v1alpha1"
	"github.com/capacitorset/liqo-broker-vk/cmd/liqo-broker-vk/internal/plugin"
)

// failure returns the text of an error, in lines.
func failure(err error) []string {
	if lines := plugin.Lines(err); lines != nil {
		return lines
	}
	return []string{"liqo-broker-vk: " + strings.Join(strings.Fields(err.Error()), " ") + missing(err)}
}

// missing returns a hint about the component that may not be installed, if the API server does not serve a kind.
func missing(err error) string {
	var kind *meta.NoKindMatchError
	switch {
	case !errors.As(err, &kind):
		return ""
	case kind.GroupKind.Group == v1alpha1.GroupVersion().Group:
		return ": are the CRDs of the broker installed there?"
	case strings.HasSuffix(kind.GroupKind.Group, ".liqo.io"):
		return ": is Liqo v1.2 installed there?"
	}
	return ""
}
