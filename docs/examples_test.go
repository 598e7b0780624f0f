package docs

import (
	"bytes"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	"github.com/capacitorset/liqo-broker-vk/pkg/explain"
	"github.com/capacitorset/liqo-broker-vk/pkg/explain/state"
)

const examples = "examples.md"

// Every example is a federation in a table, objects in YAML, and what is decided then. It is decided anew by the code
// that the broker decides with, from the objects on. With UPDATE=1 what is decided is written.
func TestExamples(t *testing.T) {
	d, err := Read(examples)
	require.NoError(t, err)
	text, err := os.ReadFile(examples)
	require.NoError(t, err)
	count, decided := 0, map[int]string{}
	for i := range d.Sections {
		section := &d.Sections[i]
		if !strings.Contains(section.Text, "\n|") {
			continue
		}
		count++
		t.Run(section.Title, func(t *testing.T) { example(t, d, section, decided) })
	}
	require.GreaterOrEqual(t, count, 11)
	if os.Getenv("UPDATE") != "" {
		require.NoError(t, os.WriteFile(examples, []byte(Rewritten(string(text), decided)), 0o600))
	}
}

// bold is the chosen provider in the text of an example.
var bold = regexp.MustCompile("\\*\\*`([^`]+)`\\*\\*")

// example decides about the pods of one, and keeps what the blocks are to say by the lines of their fences.
func example(t *testing.T, d *Document, section *Section, blocks map[int]string) {
	t.Helper()
	f := newFederation(t, section.Text)
	end := section.Line + strings.Count(section.Text, "\n")
	var decided []string
	for i := range d.Blocks {
		b := &d.Blocks[i]
		switch {
		case b.Line < section.Line || b.Line > end:
		case b.Language == "yaml":
			f.add(b.Text)
		case b.Language == "console":
			got, chosen := f.explain(b.Commands())
			decided = append(decided, chosen...)
			if os.Getenv("UPDATE") == "" {
				require.Equal(t, b.Text, got, "run UPDATE=1 go test ./docs/")
			}
			blocks[b.Line] = got
		}
	}
	require.NotEmpty(t, decided)
	var said []string
	for _, name := range bold.FindAllStringSubmatch(section.Text, -1) {
		said = append(said, name[1])
	}
	require.Equal(t, decided, said, "the providers in bold are those chosen, in order")
}

// explain runs commands of people, and returns what they print and which providers are chosen; for a pod that fits
// nowhere none is.
func (f *federation) explain(commands []string) (printed string, chosen []string) {
	f.t.Helper()
	c, now := f.client(), time.Date(2025, 6, 1, 12, 0, 0, 0, time.UTC)
	read, err := state.Read(f.t.Context(), c, node)
	require.NoError(f.t, err)
	explainer := explain.NewExplainer(c, node, read, func() time.Time { return now })
	for i := range f.policies {
		spec := &f.policies[i].Spec
		if spec.Selection != nil {
			continue
		}
		// What the API server would not take is a *PolicyError.
		_, err := explainer.Suppose(f.t.Context(), &explain.Hypothesis{Namespace: "shop-consumer1", Policy: spec})
		require.NoError(f.t, err, f.policies[i].Name)
	}
	var out bytes.Buffer
	for _, command := range commands {
		words := strings.Fields(command)
		require.Len(f.t, words, 6, "kubectl broker explain -n NAMESPACE POD")
		require.Equal(f.t, []string{"kubectl", "broker", "explain", "-n"}, words[:4])
		e, err := explain.Pod(f.t.Context(), c, node, types.NamespacedName{Namespace: words[4], Name: words[5]}, now)
		require.NoError(f.t, err)
		out.WriteString("$ " + command + "\n")
		require.NoError(f.t, e.Print(&out))
		if e.Chosen != "" {
			chosen = append(chosen, e.Chosen)
		} else {
			chosen = append(chosen, "nowhere")
		}
	}
	return out.String(), chosen
}
