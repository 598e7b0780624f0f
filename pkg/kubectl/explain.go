package kubectl

import (
	"context"
	"encoding/json"
	"io"
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
	table := e.Print
	if output == outputWide {
		table = e.PrintWide
	}
	return s.printExplained(output, e, table)
}

// printExplained prints a result as JSON or YAML, or as the table that a function writes.
func (s *Session) printExplained(output string, result any, table func(io.Writer) error) (err error) {
	var text []byte
	switch output {
	case outputJSON:
		text, err = json.MarshalIndent(result, "", "    ")
		text = append(text, '\n')
	case outputYAML:
		text, err = yaml.Marshal(result)
	default:
		var written strings.Builder
		err = table(&written)
		text = []byte(shown(written.String()))
	}
	if err != nil {
		return err
	}
	_, err = s.Out.Write(text)
	return err
}

// ExplainOutputs returns the output formats of Explain.
func ExplainOutputs() []string { return []string{outputJSON, "table", outputWide, outputYAML} }
