package main

// mutants are all faults: those that were there once, and others of the same kinds.
func mutants() []mutant {
	const (
		controller = "pkg/broker/pods/controller.go"
		move       = "pkg/broker/pods/move.go"
		assigned   = "pkg/broker/pods/assigned.go"
		assign     = "pkg/broker/pods/assign.go"
		evict      = "pkg/broker/pods/eviction/reason.go"
		providers  = "pkg/broker/providers/controller.go"
		probe      = "pkg/broker/providers/probe.go"
		status     = "pkg/broker/providers/status.go"
		federation = "pkg/broker/state/providers.go"
		pods       = "pkg/broker/state/pods.go"
		leaving    = "pkg/broker/termination/checker.go"
		node       = "pkg/broker/node/node.go"
	)
	return []mutant{
		{"ended pods give back their room", controller, `if at == (scheduler.Place{}) {`, `if true {`},
		{
			"the namespace of a deleted VirtualNode is not waited for", move,
			`at.pod.RemoteNamespace, err = c.RemoteNamespace(ctx, from.Provider, pod.Namespace)`, ``,
		},
		{
			"a new leader confirms an outage by one failed probe", federation,
			`p.answered+p.failed >= probesUntilConfirmed`,
			`true`,
		},
		{
			"the reason of a pod that waits is not written again", "pkg/broker/pods/podconditions/reports.go",
			`before.Reason == reason && before.Message == message`, `before.Reason == reason`,
		},
		{
			"a pod that runs is moved for being shown Pending", assigned,
			`case why == eviction.PendingTooLong && placement.Taken(answer.Status):`, `case false:`,
		},
		{"no release is waited for", move, `at.pod.Settled = c.settled(pod, at)`, `at.pod.Settled = true`},
		{
			"a pod that is seen before its namespace is forgotten", controller,
			`return nil, fmt.Errorf("%w: %s", errNamespaceUnknown, pod.Namespace)`, `return nil, err`,
		},
		{
			"a new leader does not count before it decides", "pkg/broker/restore/restorer.go",
			`live, err := r.list(ctx)`, `live, err := []*corev1.Pod(nil), error(nil)`,
		},
		{
			"a virtual kubelet that connects counts as one that serves", probe,
			`if lease.Annotations[v1alpha1.ConnectingAnnotation] == *s.HolderIdentity {`, `if false {`,
		},
		{
			"what a kubelet writes on a pod that it removes counts as its end", "pkg/broker/remote/forwarded.go",
			`placement.EndedByItself(f.Status, deleted)`, `placement.EndedByItself(f.Status, false)`,
		},
		{"a leader whose lease lapsed goes on", "pkg/broker/lease/lease.go", `l.lapsed = true`, ``},
		{"what was made of an earlier pod of the name counts", leaving, `return f.Of(uid)`, `return f`},

		{"no creation is waited for", move, `c.Clock.Since(answer.Asked) >= v1alpha1.CreationDeadline`, `true`},
		{"pods that must not run twice are given up", move, `if criteria.Rules.Failover == v1alpha1.FailoverNever && !ends {`, `if false {`},
		{"pods that must not run twice fail over", evict, `if rules.Failover == v1alpha1.FailoverNever {`, `if false {`},
		{"pods fail over at once", evict, `left := rules.FailoverAfter - now.Sub(at.FailoverFrom)`, `left := time.Duration(0)`},
		{"pods are given up at once", move, `wait, err = c.failoverDelay(ctx, pod, at.known.FailoverFrom, false)`, ``},
		{"the room of a decision that was not written is kept", assign, `c.State.Forget(pod.UID)`, ``},
		{"the room of a decision that may be written is freed", assign, `c.State.ObserveUncertain(pod.UID)`, `c.unreserve(pod)`},
		{"ShadowPods without a virtual kubelet stay", leaving, `if !q.pod.Orphan || there.ShadowPod == "" || (there.Ended || unread) && !q.pod.Ends || !c.asks(q) {`, `if true {`},
		{"a pod that is gone keeps its room", pods, "\tf.forget(known)\n\treturn true", "\treturn true"},
		{"a pod that leaves takes no room", move, `c.State.ObserveAssigned(pod, from) // It`, `c.State.ObserveLeft(pod, from) // It`},
		{
			"a deleted pod that is nowhere is not ended", controller,
			"case pod.DeletionTimestamp != nil:\n\t\treturn ctrl.Result{}, c.finalize(ctx, pod)",
			"case pod.DeletionTimestamp != nil:\n\t\treturn ctrl.Result{}, nil",
		},
		{
			"a namespace that is not known counts as removed", move, "case !at.mapped:\n\t\treturn leavingRecheck, false, nil",
			"case !at.mapped:\n\t\treturn 0, false, nil",
		},
		{"what the last provider reported stays on a pod that leaves", "pkg/broker/pods/status.go", `if status := &pod.Status; len(conditions) == 1 &&`, `if status := &pod.Status; true || len(conditions) == 1 &&`},
		{"an unanswered pod that is deleted is not waited for", move, `case !answer.Known || !at.pod.Settled:`, `case false:`},
		{
			"a list that began before the question counts", leaving, `if known != nil && (known.pod == pod || known.pod == settled) {`,
			`if known != nil && known.pod.UID == pod.UID {`,
		},
		{"a drain takes all replicas at once", assigned, `(reason == eviction.Drained || reason == eviction.Reclaimed) && !at.Terminating && `, `false && `},
		{
			"the Node is not Ready when no provider takes pods", node, `Type: corev1.NodeReady, Status: corev1.ConditionTrue,`,
			`Type: corev1.NodeReady, Status: map[bool]corev1.ConditionStatus{true: "True", false: "False"}[usable > 0],`,
		},
		{"the Node stays cordoned when providers take pods again", node, `case !wanted && marked:`, `case marked && false:`},
		{
			"a write that uncordons the Node and fails counts as done", node, "if err == nil {\n\t\tn.cordoned = &wanted",
			"if n.cordoned = &wanted; err == nil {\n\t\tn.cordoned = &wanted",
		},
		{"pods that wait keep others from the Node", federation, `room.Add(p.requests)`, `_ = p.requests`},
		{"the Node hides the room of pods at providers that are not usable", federation, `addRoom(room, nil, load)`, `_ = load`},
		{"the Node does not show the room of ended pods as taken", federation, `amount-load.Ended[name]`, `amount`},
		{"a write that met a conflict is tried again at once", "pkg/broker/requeue/backoff.go", `(FirstConflict, lastConflict)`, `(FirstConflict, FirstConflict)`},
		{"a provider that was not asked counts as one that does not answer", move, "		return at.unmapped\n", "		return true\n"},
		{
			"a pod is judged by any provider with a VirtualNode of the name", "pkg/broker/state/virtualnodes.go",
			`if p := f.providers[at.Provider]; p != nil {`, `for _, p := range f.providers {`,
		},
		{
			"the connection of another provider's VirtualNode of the name is used", "pkg/broker/remote/connection.go", `return c.byPlace[at]`,
			`for known, connection := range c.byPlace {
				if known.VirtualNode == at.VirtualNode {
					return connection
				}
			}
			return nil`,
		},
		{
			// The histories run no virtual kubelet of ours: the fault is in their model. That in the code is found by a test, below.
			"pods at a VirtualNode of the same name of another provider are forwarded by the model", "test/histories/virtualkubelet.go",
			`!= k.virtualNode() || pod.Labels[v1alpha1.ProviderLabel] != k.provider.id {`, `!= k.virtualNode() {`,
		},
		{"a disabled provider takes pods", "pkg/scheduler/kept.go", `case !p.Enabled:`, `case false:`},
		{"a cordoned provider takes pods", "pkg/scheduler/kept.go", `case p.Cordoned:`, `case false:`},
		{"each pod that leaves is a question by itself", "pkg/broker/remote/forwarded.go", `few, atOnce = 10, 8`, `few, atOnce = 1 << 20, 8`},
		{
			"tries of a pod are not bounded", "pkg/backoff/tries.go", `for i := 1; i < count && delay < longest*first; i++ {`, `for i := 1; i < 1; i++ {`,
		},
		{
			"each pod that ends has all waiting pods tried", "pkg/broker/state/turns.go",
			`for _, p := range woken {`, `for _, p := range append(woken[:0:0], unassigned...) {`,
		},
		{
			"each other message of a waiting pod is written at once", "pkg/broker/pods/podconditions/reports.go",
			`left > 0 && rewords(&pod, &why)`, `left > 0 && false && rewords(&pod, &why)`,
		},
		{
			"a pod that is assigned counts in no constraint until the cache shows it", "pkg/broker/state/pods.go",
			`App: of.App, Peer: of.Peer, Requests: of.Requests}`,
			`App: of.App, Requests: of.Requests}`,
		},
		{
			"running pods count in no constraint", "pkg/placement/pod.go",
			`a.Peer = constraints.PeerOf(pod, own)`,
			`_ = own`,
		},
		{
			"a pod goes where its volume is not", "pkg/scheduler/volumes.go",
			`volumes.Provider != "" && volumes.Provider != p.ID`,
			`false`,
		},
		{
			"two pods decide at once where their volume is", "pkg/broker/pods/volumes.go",
			`client.MergeFromWithOptions(claim.Volume, client.MergeFromWithOptimisticLock{})`,
			`client.MergeFrom(claim.Volume)`,
		},
		{
			"a pod leaves its volume because its provider is drained", "pkg/broker/pods/volumes.go",
			`len(placement.ClaimsOf(pod)) > 0
}

// elsewhere`,
			`false
}

// elsewhere`,
		},
	}
}

// layeredMutants are faults that the broker and its virtual kubelets guard against. Each guard by itself is among testedMutants.
func layeredMutants() []layered {
	return []layered{{
		"no provider is asked whether a pod has ended, by anything", []mutant{
			{"before a pod is evicted", "pkg/broker/pods/assigned.go", `case answer.Ended:`, `case false:`},
			{"while a pod leaves", "pkg/broker/pods/move.go", `case answer.Ended && !at.pod.Ends:`, `case false:`},
			{
				"before its ShadowPod is deleted", "test/histories/virtualkubelet.go",
				`if remote == nil || remote.DeletionTimestamp != nil || !ended(remote) {`, `if true {`,
			},
		},
	}}
}

// testedMutants are faults of before that no history shows.
func testedMutants() []tested {
	return []tested{
		{mutant{
			"the room of an assignment whose answer was lost is lost", "pkg/broker/pods/assign.go",
			`c.State.ObserveWritten(live,`, `c.State.ObserveAssigned(live,`,
		}, "pkg/broker/pods", "TestTheRoomOfAnAssignmentWhoseAnswerWasLostIsKept"},
		{mutant{
			"pods are written without their version", "pkg/broker/podpatch/writer.go", `metadata["resourceVersion"] = pod.ResourceVersion`, ``,
		}, "pkg/broker/pods", "TestAPodThatHasChangedIsAssignedAtOnce"},
		{mutant{
			"no provider is asked whether a pod has ended before it is evicted", "pkg/broker/pods/assigned.go", `case answer.Ended:`, `case false:`,
		}, "pkg/broker/pods", "TestAPodThatHasEndedAtItsProviderIsEndedHere"},
		{mutant{
			"an outage counts that was over when a leader began", "pkg/broker/state/providers.go",
			`p.unreachableSince, p.failoverFrom = probe.Ended, probe.Ended // The outage that the leader before saw was over meanwhile.`, ``,
		}, "pkg/broker/state", "TestAnOutageThatWasOverDoesNotCount"},
		{mutant{
			"the ShadowPod of a pod that has ended is deleted before that is written", "pkg/broker/termination/checker.go",
			`(there.Ended || unread) && !q.pod.Ends || `, `unread && !q.pod.Ends || `,
		}, "pkg/broker/termination", "TestTheShadowPodOfAnOrphanThatHasEndedIsDeletedOnceThatIsWritten"},
		{mutant{
			"the cache is believed that a pod which leaves has not ended", "pkg/provider/brokernode/handover.go",
			`h.remotePods.Get(ctx, shadow.Name, metav1.GetOptions{})`, `h.remote.Get(shadow.Name)`,
		}, "pkg/provider/brokernode", "TestAPodThatEndsWhileItLeavesIsReported"},
		{mutant{
			"a pod that comes back is taken for the one that left, as the cache shows it", "pkg/provider/brokernode/handover.go",
			`h.releases.removes(name, shadow)`, `false`,
		}, "pkg/provider/brokernode", "TestAPodThatComesBackIsNotTakenForTheOneThatLeft"},
		{mutant{
			"a pod that never fails over waits for a provider that is gone, although it is being deleted", "pkg/broker/pods/move.go",
			`pod.DeletionTimestamp != nil), at.alone && pod.DeletionTimestamp != nil)`, `pod.DeletionTimestamp != nil), false)`,
		}, "pkg/broker/pods", "TestAPodLeavesAProviderThatDoesNotAnswerAnyMore"},
		{mutant{
			"what was asked before the move counts", "pkg/broker/pods/move.go",
			`c.Checker.Forget(client.ObjectKeyFromObject(pod)) // Whether it is gone is asked anew, also if this has no answer.`, ``,
		}, "pkg/broker/pods", "TestAPodThatIsNotReleasedWaitsForTheDeadline"},
		{mutant{
			"the pods of a provider are not requeued when a suspicion begins", "pkg/broker/state/providers.go",
			`if suspended[other] != f.movesSuspended(q, suspects) ||`, `if q == nil ||`,
		}, "pkg/broker/state", "TestASuspicionIsAChangeOfAllThatItConcerns"},
		{mutant{
			"a provider counts as silent since it was asked first", "pkg/broker/pods/move.go",
			`at.silentSince(&answer, pod.DeletionTimestamp != nil), at.alone`, `answer.Asked, at.alone`,
		}, "pkg/broker/pods", "TestAPodLeavesAProviderThatDoesNotAnswerAnyMore"},
		{mutant{
			"a new leader moves pods before it has probed", "pkg/broker/pods/eviction/reason.go", `case !at.Confirmed:`, `case false:`,
		}, "pkg/broker/pods/eviction", "TestEvictionReason"},
		{mutant{
			"a slice that is being deleted takes pods", "pkg/broker/providers/status.go", `case vn.DeletionTimestamp != nil:`, `case false:`,
		}, "pkg/broker/providers", "TestAVirtualNodeThatTakesNoPodsHasTheReason"},
		{mutant{
			"a release of any assignment counts", "pkg/broker/pods/move.go",
			`pod.Annotations[v1alpha1.ReleasedAnnotation] == v1alpha1.Assignment(at.pod.VirtualNode, pod)`,
			`pod.Annotations[v1alpha1.ReleasedAnnotation] != ""`,
		}, "pkg/broker/pods", "TestAPodThatIsNotReleasedWaitsForTheDeadline"},
		{mutant{
			"a pod of another ShadowPod is taken for that of the one that is there", "pkg/provider/brokernode/handover.go",
			` || ofAnother(remote, shadow)`, ``,
		}, "pkg/provider/brokernode", "TestHandover"},
		{mutant{
			"a virtual kubelet that starts does not see of which pods ShadowPods were made", "pkg/provider/reflector/transform/trim.go",
			`if uid := shadow.Annotations[v1alpha1.PodUIDAnnotation]; uid != "" {`,
			`if uid := shadow.Annotations[v1alpha1.PodUIDAnnotation]; true {`,
		}, "pkg/provider/reflector/transform", "TestTransformsDoNothingTheSecondTime"},
		{mutant{
			"a pod that comes back while its provider is asked is left to Liqo", "pkg/provider/brokernode/handover.go",
			`if local, _ := h.local.Get(name); local != nil {`, `if false {`,
		}, "pkg/provider/brokernode", "TestAPodThatComesBackWhileItsProviderIsAskedIsHandledAnew"},
		{mutant{
			"what has ended while it was leaving is left to the virtual kubelet", "pkg/broker/pods/move.go",
			`case answer.Ended && !at.pod.Ends:`, `case false:`,
		}, "pkg/broker/pods", "TestAPodThatEndsWhileItLeavesIsEndedHere"},
		{mutant{
			"no creation is waited for when the namespace is gone", "pkg/broker/pods/move.go",
			"return c.creationDelay(pod, at), false, nil\n\t}", "return 0, false, nil\n\t}",
		}, "pkg/broker/pods", "TestACreationOnItsWayIsWaitedForWhenTheNamespaceIsGone"},
		{mutant{
			"the answer about an ended pod is forgotten before it is read", "pkg/broker/pods/controller.go",
			"c.reports.Drop(name)\n\tif c.State.ObserveGone", "c.reports.Drop(name)\n\tc.Checker.Forget(name)\n\tif c.State.ObserveGone",
		}, "pkg/broker/pods", "TestAnEndedPodThatWasLeavingHoldsNothingAtAVirtualNodeThatIsGone"},
		{mutant{
			"probes wait for the requests of others", "pkg/broker/remote/connection.go",
			`fresh.Probes = probes.RESTClient()`, `_ = probes; fresh.Probes = fresh.Kube.CoreV1().RESTClient()`,
		}, "pkg/broker/remote", "TestProbesWaitForNoOtherRequests"},
		{mutant{
			"pods at a VirtualNode of the same name of another provider are forwarded", "pkg/provider/brokernode/view.go",
			`return labels.Set{v1alpha1.VirtualNodeLabel: v.VirtualNode, v1alpha1.ProviderLabel: v.Provider}`,
			`return labels.Set{v1alpha1.VirtualNodeLabel: v.VirtualNode}`,
		}, "pkg/provider/brokernode", "TestPodsComeAndGo"},
		{mutant{
			"what changes all the time keeps a leader from beginning", "pkg/broker/restore/restorer.go",
			`return isShown(cached[uid], version)`, `return cached[uid] == version`,
		}, "pkg/broker/restore", "TestWhatChangesAllTheTimeIsNotWaitedFor"},
		{mutant{
			"a refusal of the own API server is one of the provider", "pkg/provider/brokernode/forward.go",
			`case !kerrors.IsForbidden(err) || errors.Is(err, errUnsent):`, `case !kerrors.IsForbidden(err):`,
		}, "pkg/provider/brokernode", "TestARefusalOfTheOwnAPIServerIsNoneOfTheProvider"},
		{mutant{
			"a namespace that refuses keeps its provider from all others", "pkg/broker/termination/cleaner.go",
			`at.listed[local] = false //`, `return c.Interval //`,
		}, "pkg/broker/termination", "TestANamespaceThatRefusesDoesNotKeepAProviderUnclean"},
		{mutant{
			"what a VirtualNode that is gone has left is not seen", "pkg/broker/termination/cleaner.go",
			`if !own && !in.mayHaveLeft(shadow) {`, `if !own {`,
		}, "pkg/broker/termination", "TestWhatAVirtualNodeThatIsGoneHasLeftIsDeleted"},
		{mutant{
			"the check of a provider after an outage begins again each time", "pkg/broker/termination/cleaner.go",
			`if at == nil || at.moved != moved {`, `if true {`,
		}, "pkg/broker/termination", "TestAProviderThatListsSlowlyDoesNotHoldAWorker"},
		{mutant{
			"a VirtualNode that the cache does not show yet is gone", "pkg/broker/restore/restorer.go", `if len(missing) == 0 {`, `if true {`,
		}, "pkg/broker/restore", "TestAVirtualNodeThatTheCacheDoesNotShowYetIsWaitedFor"},
	}
}
