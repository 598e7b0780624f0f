package process

import (
	"testing"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"
)

func TestUnknownFlags(t *testing.T) {
	for name, tc := range map[string]struct {
		args    []string
		node    string
		metrics bool
		want    []string
		rest    []string
		err     string
	}{
		"none":                           {args: []string{"--node=n", "--metrics=true"}, node: "n", metrics: true},
		"with a value":                   {args: []string{"--later=1", "--node=n"}, node: "n", want: []string{"later"}},
		"with an empty one":              {args: []string{"--later=", "--node=n"}, node: "n", want: []string{"later"}},
		"several times":                  {args: []string{"--later=1", "--node=n", "--later=2"}, node: "n", want: []string{"later"}},
		"several":                        {args: []string{"--z=1", "--later=1", "--node=n"}, node: "n", want: []string{"later", "z"}},
		"its value is the next argument": {args: []string{"--later", "1", "--node", "n"}, node: "n", want: []string{"later"}},
		"without a value":                {args: []string{"--later", "--node", "n"}, node: "n", want: []string{"later"}},
		"without a value, the last":      {args: []string{"--node", "n", "--later"}, node: "n", want: []string{"later"}},
		"the value of a known one":       {args: []string{"--node", "--later"}, node: "--later"},
		"after the end of flags":         {args: []string{"--node=n", "--", "--later=1"}, node: "n", rest: []string{"--later=1"}},
		"a known one with a bad value": {
			args: []string{"--later=1", "--metrics=perhaps"}, err: `invalid argument "perhaps" for "--metrics"`,
		},
		"a short one is no flag of Liqo":    {args: []string{"-x", "--node=n"}, err: "unknown shorthand flag: 'x'"},
		"an argument is still an argument":  {args: []string{"--node=n", "later"}, node: "n", rest: []string{"later"}},
		"a flag that could break a message": {args: []string{"--a\nb=1", "--node=n"}, node: "n", want: []string{"a\nb"}},
	} {
		t.Run(name, func(t *testing.T) {
			flags := pflag.NewFlagSet("", pflag.ContinueOnError)
			node, metrics := flags.String("node", "", ""), flags.Bool("metrics", false, "")
			AllowUnknown(flags, tc.args)
			err := flags.Parse(tc.args)
			if tc.err != "" {
				require.ErrorContains(t, err, tc.err)
				return
			}
			require.NoError(t, err)
			require.Equal(t, tc.node, *node)
			require.Equal(t, tc.metrics, *metrics)
			require.Equal(t, tc.want, Unknown(flags))
			require.ElementsMatch(t, tc.rest, flags.Args())
			require.NotContains(t, flags.FlagUsages(), "later")
		})
	}
}
