package histories

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	liqov1beta1 "github.com/liqotech/liqo/apis/core/v1beta1"
	identitymanager "github.com/liqotech/liqo/pkg/identityManager"

	"github.com/capacitorset/liqo-broker-vk/pkg/broker"
	"github.com/capacitorset/liqo-broker-vk/pkg/broker/lease"
	"github.com/capacitorset/liqo-broker-vk/pkg/kubeletapi"
)

const (
	brokerNode      = "liqo-broker"
	brokerNamespace = "liqo-broker"
)

// times returns the times of the brokers in all histories: shorter than the defaults, in proportion.
func times() broker.Times {
	return broker.Times{
		ProbeInterval: 5 * time.Second, ProbeTimeout: 2 * time.Second, FailoverAfter: 20 * time.Second, SuspicionWindow: 20 * time.Second,
		PendingTimeout: 40 * time.Second, RefusalMemory: 20 * time.Second, StatusInterval: 10 * time.Second,
		RequestTimeout: 10 * time.Second,
	}
}

func leaseTimes() broker.LeaseConfig {
	return broker.LeaseConfig{Duration: 15 * time.Second, RenewDeadline: 10 * time.Second, RetryPeriod: 2 * time.Second}
}

// simulated is the manager that a simulated broker runs with: controller-runtime's, but with clients in memory.
type simulated struct {
	manager.Manager // Nil: the methods that are not implemented below are never called.

	config    *rest.Config
	world     *world
	client    *cachedClient
	runnables []manager.Runnable
}

// mostWorkers is how many workers a controller has at most. More would be idle, as there are at most three providers and
// ten pods, but each would have a stack that grows as it takes its turn.
const mostWorkers = 12

// newQueue makes the queue of a controller.
type newQueue = func(string, workqueue.TypedRateLimiter[reconcile.Request]) workqueue.TypedRateLimitingInterface[reconcile.Request]

// Add implements manager.Manager. The queues of controllers get no metrics: a queue with metrics wakes every half a
// second to update them, which is more often than everything else in a history.
func (m *simulated) Add(r manager.Runnable) error {
	if of := reflect.Indirect(reflect.ValueOf(r)); of.Kind() == reflect.Struct && of.FieldByName("NewQueue").IsValid() {
		// A queue without a name has no metrics.
		made, ok := of.FieldByName("NewQueue").Interface().(newQueue)
		if !ok {
			return fmt.Errorf("the queue of a controller is made by a %s", of.FieldByName("NewQueue").Type())
		}
		of.FieldByName("NewQueue").Set(reflect.ValueOf(
			func(_ string, limits workqueue.TypedRateLimiter[reconcile.Request]) workqueue.TypedRateLimitingInterface[reconcile.Request] {
				return made("", limits)
			}))
		workers := of.FieldByName("MaxConcurrentReconciles")
		workers.SetInt(min(workers.Int(), mostWorkers))
	}
	m.runnables = append(m.runnables, r)
	return nil
}

func (m *simulated) GetConfig() *rest.Config                       { return m.config }
func (m *simulated) GetHTTPClient() *http.Client                   { return &http.Client{Transport: m.config.Transport} }
func (m *simulated) GetClient() client.Client                      { return m.client }
func (m *simulated) GetAPIReader() client.Reader                   { return m.client.live }
func (m *simulated) GetFieldIndexer() client.FieldIndexer          { return m.client.mirror }
func (m *simulated) GetCache() cache.Cache                         { return m.client.mirror }
func (m *simulated) GetScheme() *runtime.Scheme                    { return m.client.scheme }
func (m *simulated) GetRESTMapper() meta.RESTMapper                { return m.client.mapper }
func (m *simulated) GetLogger() logr.Logger                        { return logr.New(&panics{world: m.world}) }
func (*simulated) GetEventRecorderFor(string) record.EventRecorder { return &record.FakeRecorder{} }

// GetControllerOptions implements manager.Manager. controller-runtime's priority queue may leak a goroutine when it is
// shut down (handleReadyItems in v0.23.1); a synctest bubble with a leaked goroutine does not end.
func (*simulated) GetControllerOptions() config.Controller {
	return config.Controller{UsePriorityQueue: ptr.To(false)}
}

// panics is a log sink that records the panics of reconcilers, which controller-runtime recovers. It implements
// logr.LogSink.
type panics struct {
	world *world
}

func (*panics) Init(logr.RuntimeInfo)            {}
func (*panics) Enabled(int) bool                 { return false }
func (*panics) Info(int, string, ...any)         {}
func (p *panics) WithValues(...any) logr.LogSink { return p }
func (p *panics) WithName(string) logr.LogSink   { return p }
func (p *panics) Error(err error, _ string, _ ...any) {
	if err != nil && strings.Contains(err.Error(), "[recovered]") { // Reconcile in controller-runtime's pkg/internal/controller.
		p.world.mu.Lock()
		defer p.world.mu.Unlock()
		p.world.panicked = err.Error()
	}
}

// identities connects to the providers of a world; it ignores the contents of Secrets. It implements
// identitymanager.IdentityReader.
type identities struct {
	identitymanager.IdentityReader // Nil: the methods that are not implemented below are never called.

	process *process
	world   *world
}

func (i identities) GetConfigFromSecret(id liqov1beta1.ClusterID, _ *corev1.Secret) (*rest.Config, error) {
	at := i.world.provider(string(id))
	return &rest.Config{
		Host: "https://" + at.id, ContentConfig: rest.ContentConfig{ContentType: "application/json"},
		Transport: transport{process: i.process, server: at.server, weather: at.weather},
	}, nil
}

// runBroker runs one replica of the broker until it ends by itself or is killed.
func (w *world) runBroker(p *process) error {
	home := &rest.Config{
		Host: "http://home", ContentConfig: rest.ContentConfig{ContentType: "application/json"},
		Transport: transport{process: p, server: w.home, weather: w.weather}, QPS: -1,
	}
	reader := live{process: p, server: w.home, weather: w.weather}
	lock, err := lease.NewForClient(
		leaseClients{live: reader, timeout: lease.RequestTimeout(leaseTimes().RenewDeadline)},
		types.NamespacedName{Namespace: brokerNamespace, Name: "liqo-broker"}, clock.RealClock{})
	if err != nil {
		return err
	}
	home.Wrap(lock.Wrap)
	kube, err := newClientset(home, leaseClients{live: reader, may: lock.Check})
	if err != nil {
		return err
	}
	p.cache = newMirror(p, w.home, w.weather)
	m := &simulated{config: home, world: w, client: &cachedClient{
		mirror: p.cache, live: reader,
		scheme: w.scheme, mapper: meta.NewDefaultRESTMapper(nil), may: lock.Check,
	}}
	b, err := broker.New(broker.Config{
		Log: logr.Discard(), Home: home, NodeName: brokerNode, Namespace: brokerNamespace, ProviderSelector: labels.Everything(),
		NodeIP: "10.0.0.9", Kubelet: broker.KubeletConfig{Port: 10250, CertificateType: kubeletapi.CertificateSelfSigned},
		Lease: leaseTimes(), Times: times(), MovesAtOnce: 5, Workers: 8,
		QPS: -1,
	}, m, kube, identities{process: p, world: w})
	if err != nil {
		return err
	}
	if err := b.SetUpControllers(p.ctx, m); err != nil {
		return err
	}
	m.runnables = append(m.runnables, manager.RunnableFunc(func(ctx context.Context) error {
		return runNode(ctx, b.Node(), m.client)
	}))
	group, ctx := errgroup.WithContext(p.ctx)
	// A process that is asked to terminate releases the lease only after all its runnables have ended
	// (engageStopProcedure in controller-runtime).
	elects, release := context.WithCancel(ctx)
	works, stop := context.WithCancel(ctx)
	defer context.AfterFunc(p.terminating, stop)()
	var starts sync.Mutex
	var working sync.WaitGroup
	group.Go(func() error { return lock.Run(elects) })
	group.Go(func() error {
		<-works.Done()
		starts.Lock() // Wait for runnables that are being started.
		defer starts.Unlock()
		working.Wait()
		release()
		return nil
	})
	group.Go(func() error {
		defer stop()
		leaderelection.RunOrDie(elects, leaderelection.LeaderElectionConfig{
			Lock: lock, LeaseDuration: leaseTimes().Duration, RenewDeadline: leaseTimes().RenewDeadline,
			RetryPeriod:     leaseTimes().RetryPeriod,
			ReleaseOnCancel: true,
			Callbacks: leaderelection.LeaderCallbacks{
				OnStartedLeading: func(context.Context) {
					starts.Lock()
					defer starts.Unlock()
					if works.Err() != nil {
						return
					}
					p.leads.Store(true)
					for _, r := range m.runnables {
						working.Add(1)
						group.Go(func() error {
							defer working.Done()
							return r.Start(works)
						})
					}
				},
				OnStoppedLeading: func() { p.leads.Store(false) },
			},
		})
		return errors.New("the lease was lost") // controller-runtime's manager ends with this error, too.
	})
	return group.Wait()
}
