package kubectl

import (
	"context"
	"encoding/json"
	"strings"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/capacitorset/liqo-broker-vk/pkg/explain"
)

// Explain prints the verdict on every provider for a pod of the broker's node.
func (s *Session) Explain(ctx context.Context, node, pod, output string) error {
	bounded, cancel := s.bounded(ctx)
	defer cancel()
	e, err := explain.Pod(bounded, s.Client, node, types.NamespacedName{Namespace: s.Namespace, Name: pod}, s.Now())
	if err != nil {
		return err
	}
	var text []byte
	switch output {
	case outputJSON:
		text, err = json.MarshalIndent(e, "", "    ")
		text = append(text, '\n')
	case outputYAML:
		text, err = yaml.Marshal(e)
	default:
		var table strings.Builder
		if output == outputWide {
			err = e.PrintWide(&table)
		} else {
			err = e.Print(&table)
		}
		text = []byte(shown(table.String()))
	}
	if err != nil {
		return err
	}
	_, err = s.Out.Write(text)
	return err
}

// ExplainOutputs returns the output formats of Explain.
func ExplainOutputs() []string { return []string{outputJSON, "table", outputWide, outputYAML} }
