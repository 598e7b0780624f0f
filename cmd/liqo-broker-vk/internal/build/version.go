// Package build describes the build of this binary to users and to API servers.
package build

import (
	"encoding/json"
	"fmt"
	"io"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"github.com/capacitorset/liqo-broker-vk/cmd/liqo-broker-vk/internal/flags"
)

// Unreleased is the version of a binary that was not built by make image.
const Unreleased = "dev"

const liqoModule = "github.com/liqotech/liqo"

// Info describes this binary.
type Info struct {
	Version  string `json:"version"`
	Commit   string `json:"commit"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
	Liqo     string `json:"liqo"`
	// LiqoV0 is the version of Liqo that the virtual kubelet of Liqo v0.x was built with; "" without that program.
	LiqoV0     string `json:"liqoV0,omitempty"`
	Kubernetes string `json:"kubernetes"`
}

// Of returns the description of this binary from the linker's values, and from the Go command's values for the ones
// that are not set.
func Of(version, commit string) Info {
	b := Info{
		Version: version, Commit: commit, Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH,
		Liqo: moduleVersion(liqoModule),
		// The client-go version v0.X corresponds to Kubernetes v1.X.
		Kubernetes: strings.Replace(moduleVersion("k8s.io/client-go"), "v0.", "v1.", 1),
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		b.complete(info)
	}
	if b.Commit == "" {
		b.Commit = "unknown"
	}
	return b
}

// liqos returns both versions of Liqo, with the other program's last.
func (b Info) liqos() string {
	if b.LiqoV0 == "" {
		return b.Liqo
	}
	return b.Liqo + ", " + b.LiqoV0
}

// complete adds values that the linker did not set: "go install …@version" records the version, a build in a clone
// records the commit.
func (b *Info) complete(info *debug.BuildInfo) {
	if b.Version == Unreleased && info.Main.Version != "" && info.Main.Version != "(devel)" {
		b.Version = info.Main.Version
	}
	if b.Commit == "" {
		for _, setting := range info.Settings {
			if setting.Key == "vcs.revision" {
				b.Commit = setting.Value
			}
		}
	}
}

func moduleVersion(path string) string {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, dep := range info.Deps {
			if dep.Path == path {
				return dep.Version
			}
		}
	}
	return "unknown"
}

// NewVersionCommand returns the command that prints the build of the binary.
func NewVersionCommand(built Info) *cobra.Command {
	var output string
	var short bool
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the version and the build information",
		Example: "  # Print the version, and the versions that it was built with\n  liqo-broker-vk version\n\n" +
			"  # Print the version alone\n  liqo-broker-vk version --short",
		Args: flags.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var f flags.Faults
			f.OneOf("--output", output, "text", "json", "yaml")
			f.When(short && output != "text", "--short together with --output="+output, "leave one of them out")
			if f != nil {
				return f
			}
			built := built
			if path, err := LegacyPath(); err == nil {
				built.LiqoV0 = LegacyLiqo(path)
			}
			if short {
				_, err := fmt.Fprintln(cmd.OutOrStdout(), built.Version)
				return err
			}
			return built.print(cmd.OutOrStdout(), output)
		},
	}
	cmd.Flags().StringVarP(&output, "output", "o", "text", "text, json or yaml")
	cmd.Flags().BoolVar(&short, "short", false, "Print the version alone")
	return cmd
}

func (b Info) print(w io.Writer, format string) error {
	var text []byte
	var err error
	switch format {
	case "json":
		text, err = json.MarshalIndent(b, "", "  ")
		text = append(text, '\n')
	case "yaml":
		text, err = yaml.Marshal(b)
	default:
		text = fmt.Appendf(nil, "liqo-broker-vk %s\n", b.Version)
		for _, line := range [][2]string{
			{"commit", b.Commit}, {"go", b.Go}, {"platform", b.Platform}, {"liqo", b.liqos()}, {"kubernetes", b.Kubernetes},
		} {
			text = fmt.Appendf(text, "%-13s%s\n", line[0]+":", line[1])
		}
	}
	if err != nil {
		return err
	}
	_, err = w.Write(text)
	return err
}
