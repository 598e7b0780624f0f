package sandbox

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/capacitorset/liqo-broker-vk/test/sandbox/internal/binaries"
)

func TestOptionsValidate(t *testing.T) {
	for name, c := range map[string]struct {
		opts Options
		want []string // parts of the error, none for no error
	}{
		"only the numbers must be given": {Options{Consumers: 1, Providers: 1}, nil},
		"a name that is no file name":    {Options{Name: "../x", Consumers: 1, Providers: 1}, []string{`--name="../x"`}},
		"another version":                {Options{Consumers: 1, Providers: 1, Liqo: LiqoV11Version}, nil},
		"an unknown version":             {Options{Consumers: 1, Providers: 1, Liqo: "v1"}, []string{`--liqo="v1"`, LiqoV11Version}},
		"another Kubernetes":             {Options{Consumers: 1, Providers: 1, Kubernetes: binaries.LaterKubernetes[0]}, nil},
		"an unknown Kubernetes": {
			Options{Consumers: 1, Providers: 1, Kubernetes: "v1"}, []string{`--kubernetes="v1"`, binaries.LaterKubernetes[0]},
		},
		"a version of another API":     {Options{Consumers: 1, Providers: 1, Liqo: "v0.9.4"}, []string{`--liqo="v0.9.4"`, LiqoVersion}},
		"an unknown image":             {Options{Image: "nginx:1", Consumers: 1, Providers: 1}, []string{`--image="nginx:1"`, ImageOurs}},
		"a node that cannot be":        {Options{Consumers: 1, Providers: 1, BrokerNode: "No_Node"}, []string{`--broker-node="No_Node"`}},
		"arguments of no broker":       {Options{Consumers: 1, Providers: 1, BrokerArgs: []string{"--x"}}, []string{"--broker-arg=--x"}},
		"an answer before its request": {Options{Consumers: 1, Providers: 1, Latency: -1}, []string{"--latency=-1ns"}},
		"all faults are reported at once": {
			Options{Name: "A", Consumers: 99}, []string{`--name="A"`, "--consumers=99", "--providers=0"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			err := c.opts.Validate()
			if c.want == nil {
				require.NoError(t, err)
				return
			}
			for _, part := range c.want {
				assert.ErrorContains(t, err, part)
			}
		})
	}
}

func TestOptionsCompleteKeepsWhatIsGiven(t *testing.T) {
	o := Options{Name: "mine", Providers: 2, Image: ImageStock}
	o.complete()
	assert.Equal(t, "mine", o.Name)
	assert.Equal(t, 2, o.Providers)
	assert.Equal(t, ImageStock, o.Image)
	assert.NotNil(t, o.Progress)
}
