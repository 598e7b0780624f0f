package sandbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capacitorset/liqo-broker-vk/test/sandbox/internal/binaries"
	"github.com/capacitorset/liqo-broker-vk/test/sandbox/internal/containers"
	"github.com/capacitorset/liqo-broker-vk/test/sandbox/internal/nodeagent"
	"github.com/capacitorset/liqo-broker-vk/test/sandbox/internal/packets"
	"github.com/capacitorset/liqo-broker-vk/test/sandbox/internal/ports"
	"github.com/capacitorset/liqo-broker-vk/test/sandbox/internal/proc"
)

// Sandbox is a running federation. It ends with Down, and with the process that called Up, however that process ends.
type Sandbox struct {
	// Clusters: consumers first, then the broker, then providers.
	Clusters []*Cluster

	opts Options
	dir  string
	bin  string
	// liqo and kubernetes are the directories with the binaries of Liqo, and of the control planes.
	liqo, kubernetes string

	group  *proc.Group
	ports  *ports.Pool
	images map[string]nodeagent.Image
	began  time.Time
	// bootTime is the time from began until everything ran.
	bootTime time.Duration

	// runCtx lives until Down; background has the goroutines of the sandbox in this process.
	runCtx     context.Context
	stopRun    context.CancelFunc
	background *errgroup.Group
	control    *controlServer
	// internet connects the host nodes, or the real ones; nil unless packets or containers are real.
	internet *packets.Network
	// proxy is the binary of kube-proxy, nodes the directory with the programs of real nodes.
	proxy, nodes string
	// archive has the images of all nodes.
	archive string
	// registry is the address of the registry that the nodes pull from; "" unless containers are real.
	registry string
	// ipam and catalog are nil unless the options enable them.
	ipam, catalog *service
}

// Up starts the federation that opts describe and waits until every peering is Ready. It first removes the remains of
// an earlier sandbox that was killed. After an error no process runs.
func Up(ctx context.Context, opts Options) (*Sandbox, error) {
	opts.complete()
	if err := opts.validate(); err != nil {
		return nil, err
	}
	if _, err := Sweep(); err != nil {
		return nil, err
	}
	dir, err := Claim(opts.Name)
	if err != nil {
		return nil, err
	}
	s := &Sandbox{opts: opts, dir: dir, ports: ports.NewPool(), began: time.Now()}
	s.group = proc.NewGroup(filepath.Join(dir, recordsDir))
	s.runCtx, s.stopRun = context.WithCancel(context.Background())
	s.background = new(errgroup.Group)
	if err := s.boot(ctx); err != nil {
		return nil, errors.Join(err, s.end(opts.keepLogs(dir)))
	}
	s.bootTime = time.Since(s.began)
	return s, nil
}

// BootTime returns how long the start took, without building: a measure of the machine's speed.
func (s *Sandbox) BootTime() time.Duration { return s.bootTime }

// boot starts a federation.
func (s *Sandbox) boot(ctx context.Context) error {
	// 1. Build the programs that are not in the cache.
	var err error
	if s.bin, err = binaries.Ensure(ctx, s.say); err != nil {
		return err
	}
	s.liqo, s.kubernetes = s.bin, s.bin
	if s.opts.Liqo != binaries.LiqoVersion {
		if s.liqo, err = binaries.EnsureLiqo(ctx, s.opts.Liqo, s.say); err != nil {
			return err
		}
	}
	if s.opts.Kubernetes != binaries.KubernetesVersion {
		if s.kubernetes, err = binaries.EnsureKubernetes(ctx, s.opts.Kubernetes, s.say); err != nil {
			return err
		}
	}
	s.say("building %s", ImageOurs)
	ours, err := binaries.BuildProduct(ctx, s.dir)
	if err != nil {
		return err
	}
	s.images = s.imageTable(ours)
	if s.opts.Packets {
		if err := s.preparePackets(ctx); err != nil {
			return err
		}
	}
	if s.opts.Containers {
		if err := s.prepareContainers(ctx); err != nil {
			return err
		}
	}
	if err := s.linkTools(); err != nil {
		return err
	}
	objects, err := loadLiqo(ctx, s.opts.Liqo)
	if err != nil {
		return err
	}
	s.began = time.Now() // Building does not count.
	if s.opts.RemoteIPAM {
		if err := s.serveRemoteIPAM(ctx); err != nil {
			return err
		}
	}
	if s.opts.Catalog {
		if s.catalog, err = s.newService(ctx, CatalogComponent, "catalog"); err != nil {
			return err
		}
	}
	// 2. Start all clusters concurrently.
	s.plan()
	if err := s.layNetwork(); err != nil {
		return err
	}
	err = s.each(ctx, s.Clusters, func(ctx context.Context, c *Cluster) error { return c.start(ctx, objects) })
	if err != nil {
		return err
	}
	if s.opts.Bare {
		return s.acceptCommands()
	}
	// 3. Peer them.
	if err := s.each(ctx, s.consumerClusters(), func(ctx context.Context, c *Cluster) error {
		return s.peer(ctx, c, s.Cluster(Broker), s.opts.ConsumerSlice)
	}); err != nil {
		return err
	}
	if err := s.each(ctx, s.providerClusters(), func(ctx context.Context, c *Cluster) error {
		want, ok := s.opts.ProviderSlices[c.Name]
		if !ok {
			want = s.opts.ProviderSlice
		}
		return s.peer(ctx, s.Cluster(Broker), c, want)
	}); err != nil {
		return err
	}
	if err := s.Cluster(Broker).waitBroker(ctx); err != nil {
		return err
	}
	for _, network := range s.opts.DirectNetworks {
		consumer, provider := s.opts.network(network)
		if err := s.connect(ctx, s.Cluster(consumer), s.Cluster(provider)); err != nil {
			return err
		}
	}
	return s.acceptCommands()
}

func (s *Sandbox) acceptCommands() (err error) {
	if s.control, err = s.serveControl(); err != nil {
		return err
	}
	return s.saveState()
}

func (s *Sandbox) plan() {
	add := func(name string, role Role) {
		s.Clusters = append(s.Clusters, &Cluster{Name: name, Role: role, sandbox: s, index: len(s.Clusters) + 1})
	}
	for i := range s.opts.Consumers {
		add(Consumer(i+1), RoleConsumer)
	}
	add(Broker, RoleBroker)
	for i := range s.opts.Providers {
		add(Provider(i+1), RoleProvider)
	}
}

// start starts one cluster until it can be peered.
func (c *Cluster) start(ctx context.Context, objects liqoObjects) error {
	if err := c.startPlane(ctx); err != nil {
		return err
	}
	c.sandbox.say("%s: Kubernetes is ready at %s", c.Name, c.plane.URL())
	if c.sandbox.opts.Bare {
		var err error
		if c.Client, err = client.New(c.Config, client.Options{Scheme: newScheme()}); err != nil {
			return err
		}
		if err := c.runPods(ctx); err != nil {
			return fmt.Errorf("%s: %w", c.Name, err)
		}
		c.sandbox.say("%s: node %s is Ready", c.Name, c.MachineNode())
		return nil
	}
	if err := c.installLiqo(ctx, objects); err != nil {
		return fmt.Errorf("%s: %w", c.Name, err)
	}
	if err := c.runPods(ctx); err != nil {
		return fmt.Errorf("%s: %w", c.Name, err)
	}
	if err := c.waitLiqo(ctx); err != nil {
		return fmt.Errorf("%s: %w", c.Name, err)
	}
	c.sandbox.say("%s: Liqo is ready", c.Name)
	if !c.servesBrokerNode() {
		return nil
	}
	if err := c.installBroker(ctx); err != nil {
		return fmt.Errorf("%s: %w", c.Name, err)
	}
	return nil
}

// peer gives consumer a node with provider's resources, named as the provider.
func (s *Sandbox) peer(ctx context.Context, consumer, provider *Cluster, want Slice) error {
	pair := consumer.Name + " → " + provider.Name
	if err := authenticate(ctx, consumer, provider); err != nil {
		return fmt.Errorf("authenticate %s: %w", pair, err)
	}
	if s.opts.Networking {
		if err := s.connectNetworks(ctx, consumer, provider); err != nil {
			return err
		}
	}
	if err := consumer.CreateSlice(ctx, provider.Name, provider.Name, want, nil); err != nil {
		return fmt.Errorf("resources %s: %w", pair, err)
	}
	if consumer.servesBrokerNode() {
		if err := consumer.WaitVirtualKubelet(ctx, provider.Name, provider.Name); err != nil {
			return err
		}
		s.say("%s: peered", pair)
		return nil
	}
	if err := consumer.WaitNodeReady(ctx, provider.Name); err != nil {
		return err
	}
	s.say("%s: peered, virtual node %s is Ready", pair, provider.Name)
	return nil
}

// each runs do for every cluster concurrently and returns the first error.
func (s *Sandbox) each(ctx context.Context, clusters []*Cluster, do func(context.Context, *Cluster) error) error {
	g, ctx := errgroup.WithContext(ctx)
	for _, c := range clusters {
		g.Go(func() error { return do(ctx, c) })
	}
	return g.Wait()
}

// imageTable maps image names to binaries. Images differ only in their binary, and in the arguments that give each
// process its own ports.
func (s *Sandbox) imageTable(ours string) map[string]nodeagent.Image {
	liqo := func(name string) nodeagent.Image { return nodeagent.Image{Binary: filepath.Join(s.liqo, name)} }
	stock := liqo(binaries.LiqoVirtualKubelet)
	stock.Ports = func([]string) []nodeagent.Port { return append([]nodeagent.Port{kubeletPort}, kubeletMetrics...) }
	registry, tag := "ghcr.io/liqotech/", ":"+s.opts.Liqo
	other := cmp.Or(s.opts.BrokerKubelet, ours)
	table := map[string]nodeagent.Image{
		ImageStock: stock,
		ImageOurs:  {Binary: ours, Ports: OwnPorts},
		imageOther: {Binary: other, Ports: OwnPorts},
		registry + "liqo-controller-manager" + tag: liqo(binaries.LiqoControllerManager),
		registry + "crd-replicator" + tag:          liqo(binaries.LiqoCRDReplicator),
		registry + "webhook" + tag:                 liqo(binaries.LiqoWebhook),
		registry + "ipam" + tag:                    liqo(binaries.LiqoIPAM),
	}
	for image, command := range s.opts.MachineImages {
		table[image] = nodeagent.Image{Machine: true, Command: command}
	}
	return table
}

// kubeletPort is the port of a virtual kubelet, Liqo's and ours.
var kubeletPort = nodeagent.Port{Argument: "--listen-port=%d", Container: 10250}

// kubeletMetrics has the ports of a virtual kubelet's metrics, in deploy/observability and in Liqo's chart.
var kubeletMetrics = []nodeagent.Port{
	{Argument: "--metrics-address=127.0.0.1:%d", Container: 8082}, {Argument: "--metrics-address=127.0.0.1:%d", Container: 5872},
}

// OwnPorts are the ports of this repository's binary: a virtual kubelet, the
// broker, or the catalog.
func OwnPorts(command []string) []nodeagent.Port {
	if len(command) > 1 && command[1] == "catalog" {
		return []nodeagent.Port{
			{Argument: "--address=127.0.0.1:%d", Container: 8000},
			{Argument: "--metrics-address=127.0.0.1:%d", Container: 8082},
			{Argument: "--health-probe-address=127.0.0.1:%d", Container: 8083},
		}
	}
	ports := []nodeagent.Port{kubeletPort, {Argument: "--health-probe-address=127.0.0.1:%d", Container: 8081}}
	if len(command) > 1 && command[1] == "broker" {
		return append(ports, nodeagent.Port{Argument: "--metrics-address=127.0.0.1:%d", Container: 8080},
			nodeagent.Port{Argument: "--ipam-address=127.0.0.1:%d", Container: 6000})
	}
	return append(ports, kubeletMetrics...)
}

// Cluster returns the cluster of that name, or nil.
func (s *Sandbox) Cluster(name string) *Cluster {
	i := slices.IndexFunc(s.Clusters, func(c *Cluster) bool { return c.Name == name })
	if i < 0 {
		return nil
	}
	return s.Clusters[i]
}

func (s *Sandbox) byRole(role Role) (out []*Cluster) {
	for _, c := range s.Clusters {
		if c.Role == role {
			out = append(out, c)
		}
	}
	return out
}

func (s *Sandbox) consumerClusters() []*Cluster { return s.byRole(RoleConsumer) }
func (s *Sandbox) providerClusters() []*Cluster { return s.byRole(RoleProvider) }

// providersOf returns the names of the clusters whose resources c uses.
func (s *Sandbox) providersOf(c *Cluster) (out []string) {
	switch c.Role {
	case RoleConsumer:
		return []string{Broker}
	case RoleBroker:
		for _, p := range s.providerClusters() {
			out = append(out, p.Name)
		}
	}
	return out
}

// Down ends every process and removes every file of the sandbox.
func (s *Sandbox) Down() error { return s.end(false) }

// Stop ends every process and keeps the files, including logs, for inspection. The next Up or Remove of that name
// removes them.
func (s *Sandbox) Stop() error { return s.end(true) }

func (s *Sandbox) end(keepFiles bool) error {
	s.stopRun()
	s.group.Close()
	err := s.background.Wait()
	s.ports.Close()
	if s.internet != nil {
		err = errors.Join(err, s.internet.Close())
	}
	err = errors.Join(err, containers.RemoveCgroups(cgroupOf(s.dir)))
	if keepFiles {
		return errors.Join(err, os.Remove(filepath.Join(s.dir, ownerFile)))
	}
	return errors.Join(err, os.RemoveAll(s.dir))
}

// Dir is the directory with the sandbox's files, including logs.
func (s *Sandbox) Dir() string { return s.dir }

func (s *Sandbox) say(format string, args ...any) {
	s.opts.Progress("[%5.1fs] "+format, append([]any{time.Since(s.began).Seconds()}, args...)...)
}

// keepLogs reports that the files of a failed start are kept; the next Up
// or Down of that name removes them.
func (o *Options) keepLogs(dir string) bool {
	o.Progress("the logs of the failed start are kept in %s until the next up or down", dir)
	return true
}
