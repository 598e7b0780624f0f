package plugin

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capacitorset/liqo-broker-vk/cmd/liqo-broker-vk/internal/build"
	"github.com/capacitorset/liqo-broker-vk/pkg/kubectl"
	apischeme "github.com/capacitorset/liqo-broker-vk/pkg/scheme"
)

// kubectlQPS and kubectlBurst are kubectl's limits.
const (
	kubectlQPS   = 50
	kubectlBurst = 300
)

// Connection has kubectl's flags for the connection to the broker's cluster.
type Connection struct {
	kubeconfig     string
	Overrides      clientcmd.ConfigOverrides
	RequestTimeout time.Duration
}

func (c *Connection) install(f *pflag.FlagSet) {
	f.StringVar(&c.kubeconfig, clientcmd.RecommendedConfigPathFlag, "",
		"The kubeconfig of the broker's cluster; by default KUBECONFIG or ~/.kube/config")
	f.DurationVar(&c.RequestTimeout, clientcmd.FlagTimeout, 30*time.Second,
		"The deadline of each request, 0 for none")
	names := clientcmd.RecommendedConfigOverrideFlags("")
	names.Timeout.LongName = "" // Defined above, as a duration.
	names.ClusterOverrideFlags.APIServer.ShortName = "s"
	clientcmd.BindOverrideFlags(&c.Overrides, f, names)
}

// Session adds the flags of the connection to a command that is not the plugin's, and returns a function that opens its
// session.
func (p Plugin) Session(cmd *cobra.Command) func() (*kubectl.Session, error) {
	c := &Connection{}
	c.install(cmd.Flags())
	return func() (*kubectl.Session, error) { return p.Open(c, cmd) }
}

func (c *Connection) loader() clientcmd.ClientConfig {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = c.kubeconfig
	return clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &c.Overrides)
}

// open returns a session for a command of this build. It sends no request.
func (c *Connection) open(cmd *cobra.Command, built build.Info) (*kubectl.Session, error) {
	loader := c.loader()
	config, err := loader.ClientConfig()
	if clientcmd.IsEmptyConfig(err) {
		return nil, errors.New("no kubeconfig: set --kubeconfig or the environment variable KUBECONFIG to " +
			"the kubeconfig of the broker's cluster")
	}
	if err != nil {
		return nil, fmt.Errorf("connecting to the broker's cluster (--kubeconfig): %w", err)
	}
	namespace, _, err := loader.Namespace()
	if err != nil {
		return nil, fmt.Errorf("connecting to the broker's cluster (--kubeconfig): %w", err)
	}
	config.QPS, config.Burst, config.Timeout = kubectlQPS, kubectlBurst, 0
	config.UserAgent = built.UserAgent(cmd.Name())
	config.WarningHandler = rest.NewWarningWriter(cmd.ErrOrStderr(), rest.WarningWriterOptions{Deduplicate: true})
	clock := &serverClock{now: time.Now}
	config.Wrap(clock.wrap)
	scheme, err := apischeme.New()
	if err != nil {
		return nil, err
	}
	reach, err := client.New(config, client.Options{Scheme: scheme, Mapper: kubectl.NewMapper()})
	if err != nil {
		return nil, fmt.Errorf("connecting to the broker's cluster (--kubeconfig): %w", err)
	}
	return &kubectl.Session{
		Client: reach, Namespace: namespace, RequestTimeout: c.RequestTimeout, Now: time.Now, Ahead: clock.ahead,
		Out: cmd.OutOrStdout(), Err: cmd.ErrOrStderr(),
	}, nil
}
