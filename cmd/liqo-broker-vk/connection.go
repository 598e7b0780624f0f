package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capacitorset/liqo-broker-vk/pkg/cli"
	apischeme "github.com/capacitorset/liqo-broker-vk/pkg/scheme"
)

// personQPS and personBurst are kubectl's limits.
const (
	personQPS   = 50
	personBurst = 300
)

// connection are kubectl's flags for the connection with the broker's cluster.
type connection struct {
	kubeconfig     string
	overrides      clientcmd.ConfigOverrides
	requestTimeout time.Duration
}

func (c *connection) install(f *pflag.FlagSet) {
	f.StringVar(&c.kubeconfig, clientcmd.RecommendedConfigPathFlag, "",
		"The kubeconfig of the broker's cluster; by default that of the environment")
	f.DurationVar(&c.requestTimeout, clientcmd.FlagTimeout, 30*time.Second,
		"The deadline of each request, 0 for none")
	names := clientcmd.RecommendedConfigOverrideFlags("")
	names.Timeout.LongName = "" // Defined above, as a duration.
	names.ClusterOverrideFlags.APIServer.ShortName = "s"
	clientcmd.BindOverrideFlags(&c.overrides, f, names)
}

func (c *connection) loader() clientcmd.ClientConfig {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = c.kubeconfig
	return clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &c.overrides)
}

// open returns a session. It makes no request.
func (c *connection) open(cmd *cobra.Command) (*cli.Session, error) {
	loader := c.loader()
	config, err := loader.ClientConfig()
	if clientcmd.IsEmptyConfig(err) {
		return nil, errors.New("no kubeconfig: name that of the broker's cluster by --kubeconfig or the environment variable KUBECONFIG")
	}
	if err != nil {
		return nil, fmt.Errorf("connecting to the broker's cluster (--kubeconfig): %w", err)
	}
	namespace, _, err := loader.Namespace()
	if err != nil {
		return nil, fmt.Errorf("connecting to the broker's cluster (--kubeconfig): %w", err)
	}
	config.QPS, config.Burst, config.Timeout = personQPS, personBurst, 0
	config.UserAgent = thisBuild().userAgent(cmd.Name())
	config.WarningHandler = rest.NewWarningWriter(cmd.ErrOrStderr(), rest.WarningWriterOptions{Deduplicate: true})
	scheme, err := apischeme.New()
	if err != nil {
		return nil, err
	}
	reach, err := client.New(config, client.Options{Scheme: scheme, Mapper: cli.NewMapper()})
	if err != nil {
		return nil, fmt.Errorf("connecting to the broker's cluster (--kubeconfig): %w", err)
	}
	return &cli.Session{
		Client: reach, Namespace: namespace, RequestTimeout: c.requestTimeout, Now: time.Now,
		Out: cmd.OutOrStdout(), Err: cmd.ErrOrStderr(),
	}, nil
}
