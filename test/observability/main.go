package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"
)

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "observability:", err)
		os.Exit(1)
	}
}

// errUsage is the usage of the command.
var errUsage = errors.New("usage: observability generate | show [-every 30s] JOB/POD=FILE…")

func run(args []string, out io.Writer) error {
	if len(args) == 0 {
		return errUsage
	}
	root := repository("../..")
	switch args[0] {
	case "generate":
		return root.generate()
	case "show":
		flags := flag.NewFlagSet("show", flag.ContinueOnError)
		every := flags.Duration("every", 30*time.Second, "how far apart the scrapes of one job are")
		if err := flags.Parse(args[1:]); err != nil {
			return err
		}
		return root.show(flags.Args(), *every, out)
	}
	return errUsage
}

// generate writes the files that are generated from the rules, the dashboard and the document.
func (r repository) generate() error {
	made, err := r.generated()
	if err != nil {
		return err
	}
	for name, text := range made {
		if err := os.WriteFile(filepath.Join(string(r), name), text, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// generated returns the expected content of the generated files, by name.
func (r repository) generated() (map[string][]byte, error) {
	found, faults := r.uses()
	if len(faults) > 0 {
		return nil, errors.Join(faults...)
	}
	uses, err := json.MarshalIndent(found, "", "  ")
	if err != nil {
		return nil, err
	}
	dashboard, err := r.read(dashboardFile)
	if err != nil {
		return nil, err
	}
	return map[string][]byte{usesFile: append(uses, '\n'), configMapFile: configMap(dashboard)}, nil
}

const configMapHead = `# The dashboard for the sidecar of Grafana's Helm chart, which looks for the label grafana_dashboard. It is made from
# dashboard.json: make generate.
apiVersion: v1
kind: ConfigMap
metadata:
  name: liqo-broker-dashboard
  namespace: liqo-broker
  labels:
    app.kubernetes.io/name: liqo-broker-vk
    app.kubernetes.io/component: broker
    grafana_dashboard: "1"
  annotations:
    grafana_folder: Liqo
data:
  liqo-broker.json: |
`

func configMap(dashboard []byte) []byte {
	var out bytes.Buffer
	out.WriteString(configMapHead)
	for line := range strings.Lines(string(dashboard)) {
		out.WriteString("    " + line)
	}
	return out.Bytes()
}
