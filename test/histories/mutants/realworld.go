package main

// realWorldMutants are the faults that real kubelets, slow and refusing providers, and reports of users showed
// (docs/designs/0017-faults-and-their-tests.md).
func realWorldMutants() []tested {
	return []tested{
		{mutant{
			"a pod that runs once is started again when its end could not be written", "pkg/broker/pods/controller.go",
			`case movingFrom != none && runsOnce(pod):`,
			`case false:`,
		}, "pkg/broker/pods", "TestAPodThatRunsOnceIsNotStartedElsewhereWhenItsEndCouldNotBeWritten"},
		{mutant{
			"a provider that refuses to answer about a pod is given up", "pkg/broker/pods/move.go",
			`return accepts || at.mayBeGivenUp(deleting)`,
			`return accepts || true`,
		}, "pkg/broker/pods", "TestAPodLeavesAProviderThatDoesNotAnswerAnyMore"},
		{mutant{
			"a provider whose lists have no answer counts as silent", "pkg/broker/termination/checker.go",
			`return err == nil || untrusted.Rejected(err)`,
			`return false && err == nil`,
		}, "pkg/broker/termination", "TestAnAnswerDoesNotOutliveAListThatFails"},
		{mutant{
			"a new leader takes a name for free before it knows the providers", "pkg/broker/pods/earlier.go",
			`return len(pc.Status.VirtualNodes) > 0 && !`,
			`return len(pc.Status.VirtualNodes) > 99 && !`,
		}, "pkg/broker/pods", "TestANewLeaderAsksProvidersThatItDoesNotKnowYet"},
		{mutant{
			"what a provider refused before it accepted the broker counts", "pkg/broker/pods/move.go",
			`if answer.Refused() && at.known.Unusable &&`,
			`if false &&`,
		}, "pkg/broker/pods", "TestWhatAProviderRefusedBeforeItAcceptedTheBrokerDoesNotCount"},
		{mutant{
			"a pod that runs once and is made again is started elsewhere", "pkg/broker/pods/move.go",
			`pod.DeletionTimestamp == nil && c.State.Pod(pod.UID).Started {`,
			`false {`,
		}, "pkg/broker/pods", "TestAPodThatRunsOnceAndThatItsProviderMakesAgainIsNotStartedElsewhere"},
		{mutant{
			"a pod leaves a provider at its first refusal", "pkg/broker/pods/assigned.go",
			`answer.Refused() && wait > 0 {`,
			`answer.Refused() && wait > 0 && false {`,
		}, "pkg/broker/pods", "TestAPodLeavesANamespaceInWhichAProviderRefusesTheBroker"},
		{mutant{
			"a drained provider that rejects the broker keeps its pods", "pkg/broker/pods/move.go",
			`at.unmapped || at.drained ||`,
			`at.unmapped ||`,
		}, "pkg/broker/pods", "TestADrainedProviderThatRefusesIsGivenUp"},
		{mutant{
			"a namespace in which a provider refuses the broker keeps its pods", "pkg/broker/pods/move.go",
			`return accepts || at.mayBeGivenUp(deleting)`,
			`_ = accepts; return at.mayBeGivenUp(deleting)`,
		}, "pkg/broker/pods", "TestAPodLeavesANamespaceInWhichAProviderRefusesTheBroker"},
		{mutant{
			"the name of a pod that its provider makes again is free at once", "pkg/broker/state/names.go",
			`(p.shown || p.there == PodThere) && !p.remaking`,
			`(p.shown || p.there == PodThere)`,
		}, "pkg/broker/pods", "TestTheSuccessorOfAPodThatItsProviderMakesAgainWaitsUntilItCannotBeMade"},
		{mutant{
			"what a leaving pod's provider made again is forgotten with its ShadowPod", "pkg/broker/termination/checker.go",
			`f.Remaking() || !present && q.answer.Remaking`,
			`f.Remaking()`,
		}, "pkg/broker/pods", "TestAPodThatIsMadeAgainWhileItLeavesIsWaitedFor"},
		{mutant{
			"an eviction of a pod that is being deleted does not count", "pkg/broker/state/pods.go",
			`(of.DeletionTimestamp == nil || p.deleting) &&`,
			`of.DeletionTimestamp == nil &&`,
		}, "pkg/broker/pods", "TestTheSuccessorOfAPodThatIsEvictedWhileItIsDeletedWaits"},
		{mutant{
			"a new leader waits for no namespace that is being removed", "pkg/broker/pods/earlier.go",
			`longest = max(longest, removal)`,
			`_ = removal`,
		}, "pkg/broker/pods", "TestANewLeaderWaitsForNamespacesThatAreBeingRemoved"},
		{mutant{
			"the exit code of a command is lost", "pkg/kubeletapi/routes.go",
			`errors.As(err, &exit)`,
			`errors.As(err, &exit) && false`,
		}, "pkg/kubeletapi", "TestExecReportsTheExitCode"},
		{mutant{
			"a kept pod that has ended, and that its provider makes again, runs", "pkg/provider/podlife/ended.go",
			`(disrupted && !e.leaves || remote == nil`,
			`!e.leaves && (disrupted || remote == nil`,
		}, "pkg/provider/brokernode", "TestPodsComeAndGo"},
		{mutant{
			"the name of a pod that was just assigned is free at once", "pkg/broker/state/pods.go",
			`p.mayRun, p.shown, p.remaking = true, false, false`,
			`p.shown, p.remaking = false, false`,
		}, "pkg/broker/pods", "TestTheSuccessorOfAPodThatWasJustAssignedWaits"},
		{mutant{
			"the end of a pod that its virtual kubelet did not see is one", "pkg/broker/state/pods.go",
			`|| placement.EndUnknown(&of.Status)`,
			``,
		}, "pkg/broker/pods", "TestTheSuccessorOfAPodThatItsProviderMakesAgainWaitsUntilItCannotBeMade"},
		{mutant{
			"the name of a pod that its provider evicted is free at once", "pkg/broker/state/names.go",
			`placement.DisruptedThere(of) ||`,
			`placement.Collected(&of.Status) ||`,
		}, "pkg/broker/pods", "TestTheSuccessorOfAPodThatWasEvictedAtItsProviderWaitsForWhatIsMadeOfItsShadowPod"},
		{mutant{
			"the name of a pod that its provider has not made yet is free at once", "pkg/broker/state/pods.go",
			`mayRun(of) || unmade(of) && there != PodThere`,
			`mayRun(of)`,
		}, "pkg/broker/pods", "TestTheSuccessorOfAPodThatItsProviderHadNotMadeWaitsUntilItCannotBeMade"},
		{mutant{
			"a closed slice is compared with a panic", "pkg/broker/state/providers.go",
			`e.AddFunc(time.Time.Equal)`,
			`error(nil)`,
		}, "pkg/broker/state", "TestAProviderWithAClosedVirtualNodeIsReadAgain"},
		{mutant{
			"a closed slice at which no pod is tried stays closed", "pkg/broker/state/providers.go",
			`f.openUntried(p, id)`,
			`false`,
		}, "pkg/broker/state", "TestAVirtualNodeAtWhichNoPodIsTriedOpens"},
		{mutant{
			"a pod that its provider makes at last has no time to start", "pkg/broker/state/leaves.go",
			`if there == PodThere && p.start.unmade {`,
			`if false {`,
		}, "pkg/broker/pods", "TestASliceWhosePodsAreNotMadeCloses"},
		{mutant{
			"the Node of the broker is made again without its cordon", "pkg/broker/node/memory.go",
			`forged.Spec.Unschedulable = m.Unschedulable`,
			`_ = m.Unschedulable`,
		}, "pkg/broker/node", "TestADeletedNodeIsRestoredAtOnceAsAdministratorsHadIt"},
		{mutant{
			"a virtual kubelet that serves nothing keeps the Node alive", "pkg/provider/alive/alive.go",
			`if !k.Serves() {`,
			`if false {`,
		}, "pkg/provider/alive", "TestTheNodeStaysAliveWhileAVirtualKubeletServesItsPods"},
		{mutant{
			"a virtual kubelet that starts after an outage waits for two checks before it renews", "pkg/provider/alive/alive.go",
			`k.seen == nil && k.isOld(lease)`,
			`k.seen == nil && k.isOld(lease) && false`,
		}, "pkg/provider/alive", "TestALeaseOfLongAgoIsRenewedAsSoonAsAVirtualKubeletServes"},
		{mutant{
			"a second broker starts beside the first", "pkg/broker/claim/claim.go",
			`&& !lapsed(lease) {`,
			`&& false {`,
		}, "pkg/broker/claim", "TestASecondInstallationStartsOnlyAfterTheFirstHasEnded"},
		{mutant{
			"conditions of the last provider's kubelet stay", "pkg/broker/pods/status.go",
			`kind != corev1.PodReady && reportedByProvider(pod, kind) {`,
			`kind != corev1.PodReady && false {`,
		}, "pkg/broker/pods", "TestThatAKubeletReportedIsRemovedWithTheAssignment"},
		{mutant{
			"Pending counts from the assignment of a pod that has run since", "pkg/broker/state/pods.go",
			`case s.taken && s.pendingAgain.IsZero():`,
			`case false:`,
		}, "pkg/broker/pods", "TestAPodThatItsProviderMakesAgainHasPendingTimeout"},
		{mutant{
			"an outage takes pods away that fit nowhere else", "pkg/broker/pods/assigned.go",
			`if reason == eviction.Unreachable && pod.DeletionTimestamp == nil &&`,
			`if false &&`,
		}, "pkg/broker/pods", "TestAPodOfAnUnreachableProviderStaysUntilAnotherOneFits"},
		{mutant{
			"the capacity for a pod that leaves an outage is given away", "pkg/broker/state/pods.go",
			`p.reserved, p.nowhere = true, false`,
			`p.nowhere = false`,
		}, "pkg/broker/pods", "TestAPodOfAnUnreachableProviderStaysUntilAnotherOneFits"},
		{mutant{
			"a pod that runs once is started again by a move", "pkg/broker/pods/disruption.go",
			`return pod.Spec.RestartPolicy == corev1.RestartPolicyNever && (placement.Started`,
			`return false && (placement.Started`,
		}, "pkg/broker/pods", "TestAPodThatRunsOnceIsNotStartedElsewhere"},
		{mutant{
			"a new leader does not know which of the pods that it finds run once", "pkg/broker/state/pods.go",
			`Started: p.start.started,`,
			`Started: p.startCounted,`,
		}, "pkg/broker/pods", "TestAPodThatRunsOnceAndThatItsProviderMakesAgainIsNotStartedElsewhere"},
		{mutant{
			"a pod is removed without a terminal phase", "pkg/broker/pods/status.go",
			`if !placement.Terminal(pod) {`,
			`if false {`,
		}, "pkg/broker/pods", "TestAPodThatIsDeletedHasATerminalPhaseBeforeItIsRemoved"},
		{mutant{
			"a pod that is being deleted hangs at a lost provider", "pkg/broker/pods/eviction/reason.go",
			`return lostWhileDeleted(pod, at, rules, now)`,
			`return None, 0`,
		}, "pkg/broker/pods", "TestAPodThatIsBeingDeletedEndsWhenItsProviderIsLost"},
		{mutant{
			"no pod is waited for that a provider may still make of a ShadowPod", "pkg/broker/pods/move.go",
			`return v1alpha1.PodCreationTimeout, nil`,
			`return 0, nil`,
		}, "pkg/broker/pods", "TestAPodThatMayStillAppearIsWaitedFor"},
		{mutant{
			"pods move because their provider makes none", "pkg/broker/pods/assigned.go",
			`case answer.Status == nil && why == eviction.PendingTooLong:`,
			`case false:`,
		}, "pkg/broker/pods", "TestASliceWhosePodsAreNotMadeCloses"},
		{mutant{
			"the successor of a pod that was deleted by force waits for nothing", "pkg/broker/state/names.go",
			`if at == (scheduler.Place{}) || !p.mayRun || p.left == at {`,
			`if true {`,
		}, "pkg/broker/pods", "TestTheSuccessorOfAPodThatWasDeletedByForceWaitsForIt"},
		{mutant{
			"what the garbage collector of pods ended runs no more", "pkg/broker/state/names.go",
			`placement.DisruptedThere(of) ||`,
			``,
		}, "pkg/broker/pods", "TestAPodThatTheGarbageCollectorOfPodsDeletedMayRun"},
		{mutant{
			"a list that lags has ShadowPods of running pods deleted", "pkg/provider/absence/absence.go",
			`if uid := transform.PodUID(shadow); c.serves(pod) &&`,
			`if uid := transform.PodUID(shadow); false &&`,
		}, "pkg/provider/absence", "TestAShadowPodIsDeletedOnlyIfTheAPIServerShowsNoPodForIt"},
		{mutant{
			"a creation that ends with an error of the server was not made", "pkg/provider/brokernode/release.go",
			`code < http.StatusInternalServerError`,
			`code < 600`,
		}, "pkg/provider/brokernode", "TestAPodThatLeftIsReleasedOnce"},
		{mutant{
			"a pod that waits for the place of another is not woken", "pkg/broker/state/turns.go",
			`f.queue.MovePeer(p.name.Namespace)`,
			``,
		}, "pkg/broker/state", "TestPodsThatWaitForOthersAreWokenWhenOthersMove"},
		{mutant{
			"two pods that must not be together reserve one place", "pkg/broker/state/pods.go",
			`VirtualNode: d.VirtualNode}, Peer: of.Peer, Requests: of.Requests,`,
			`VirtualNode: d.VirtualNode}, Requests: of.Requests,`,
		}, "pkg/broker/state", "TestAReservedPlaceKeepsOthersAway"},
		{mutant{
			"a provider must spread over zones that its Nodes do not have", "pkg/provider/brokernode/forward.go",
			`constraints.WithinProvider(shadow.Spec.Pod.TopologySpreadConstraints)`,
			`append(constraints.WithinProvider(nil), shadow.Spec.Pod.TopologySpreadConstraints...)`,
		}, "pkg/provider/brokernode", "TestAProviderOnlyPrefersToSpreadOverZones"},
		{mutant{
			"a claim is deleted because the cache does not show its volume", "pkg/provider/reflector/claims/reflector.go",
			`err == nil && (volume.Labels[v1alpha1.ProviderLabel] == "" || `,
			`err == nil && false && (volume.Labels[v1alpha1.ProviderLabel] == "" || `,
		}, "pkg/provider/reflector/claims", "TestAClaimIsDeletedWithItsVolume"},
		{mutant{
			"a claim gets the data of an earlier one of its name", "pkg/provider/reflector/claims/client.go",
			`if isOfAnother(known, origin) {`,
			`if false {`,
		}, "pkg/provider/reflector/claims", "TestAClaimSucceedsAnotherOfItsName"},
		{mutant{
			"a volume that was lost is made again, empty", "pkg/provider/reflector/claims/reflector.go",
			`live.Annotations[v1alpha1.MadeAtAnnotation] == r.provider {`,
			`false {`,
		}, "pkg/provider/reflector/claims", "TestAClaimIsMadeWhereItsVolumeIs"},
		{mutant{
			"the cache is believed about a volume that was not made", "pkg/broker/pods/volumes.go",
			`err == nil && live.ResourceVersion != claim.Volume.ResourceVersion`,
			`false`,
		}, "pkg/broker/pods", "TestAVolumeThatAnotherPodTookIsNotAssumed"},
		{mutant{
			"an API error of a claim is an invalid criterion", "pkg/placement/policies.go",
			`	err := p.readClaims(ctx, &c, pod, policy)
`,
			`	err := p.readClaims(ctx, &c, pod, policy)
	if err != nil {
		err = fmt.Errorf("%w: %w", ErrInvalid, err)
	}
`,
		}, "pkg/placement", "TestVolumesOfAPod"},
		{mutant{
			"the claims of another Node are deleted", "pkg/provider/reflector/claims/reflector.go",
			`!forge.IsReflected(remote) || !isOfVolume(remote)`,
			`!forge.IsReflected(remote) || false`,
		}, "pkg/provider/reflector/claims", "TestAClaimOfAnotherNodeIsLeft"},
		{mutant{
			"a cache is recreated because its provider is cordoned or full", "pkg/broker/pods/volumes.go",
			`err != nil || !lost {`,
			`err != nil {`,
		}, "pkg/broker/pods", "TestWhenVolumesAreRecreated"},
		{mutant{
			"a volume that comes back to a provider has its old data", "pkg/provider/reflector/claims/reflector.go",
			`return volume.Name + "/" + volume.Annotations[v1alpha1.AssignedAtAnnotation]`,
			`return volume.Name + "/"`,
		}, "pkg/provider/reflector/claims", "TestAClaimIsDeletedWithItsVolume"},
		{mutant{
			"a pod is assigned although its volume could not be written", "pkg/broker/pods/assign.go",
			`err = c.bindVolumes(ctx, criteria.Claims, d.Provider)`,
			`_ = c.bindVolumes(ctx, criteria.Claims, d.Provider)`,
		}, "pkg/broker/pods", "TestAPodIsAssignedAfterItsVolumes"},
		{mutant{
			"a pod that leaves a provider without a name is assigned at once", "pkg/broker/pods/move.go",
			`if from.Provider == "" {`,
			`if false {`,
		}, "pkg/broker/pods", "TestAPodThatLeavesAProviderWithoutANameIsAskedAbout"},
		{mutant{
			"a namespace that is mapped no more has nothing of a pod", "pkg/broker/pods/move.go",
			`at.pod.RemoteNamespace = pod.Annotations[v1alpha1.RemoteNamespaceAnnotation]`,
			``,
		}, "pkg/broker/pods", "TestANamespaceThatIsMappedNoMoreProvesNothing"},
		{mutant{
			"a slice that starts nothing is closed for nobody else", "pkg/broker/state/closing.go",
			`case all >= closesAfter && len(c.failed) > 1:`,
			`case false:`,
		}, "pkg/broker/state", "TestAVirtualNodeThatStartsNothingTakesOnePodAMinute"},
		{mutant{
			"one tenant closes a slice for all", "pkg/broker/state/closing.go",
			`f.close(p, at, []string{owner})`,
			`f.close(p, at, nil)`,
		}, "pkg/broker/state", "TestAnOwnerClosesAVirtualNodeForItselfOnly"},
		{mutant{
			"a large pod waits for ever", "pkg/broker/state/turns.go",
			`f.reserve(now)`,
			``,
		}, "pkg/broker/state", "TestALargePodGetsWhatBecomesFreeAfterAWhile"},
		{mutant{
			"new pods of a consumer are not bounded by its grant", "pkg/broker/state/grants.go",
			`if g == nil {
		return ""`,
			`if true {
		return ""`,
		}, "pkg/broker/pods", "TestNewPodsOfAConsumerAreBoundedByItsGrant"},
		{mutant{
			"a pod that moves gives its part of the grant to others", "pkg/broker/state/pods.go",
			`f.admit(p, scheduler.HolderOf(of.UID), placement.AssignmentOf(of, scheduler.Place{}).Requests)`,
			`f.release(scheduler.HolderOf(of.UID))`,
		}, "pkg/broker/state", "TestAPodThatMovesKeepsItsPartOfTheGrant"},
		{mutant{
			"a pod that is gone gives its part of the grant to others before its ShadowPod is gone", "pkg/broker/state/pods.go",
			`		f.keepForSuccessor(p, uid)
`,
			``,
		}, "pkg/broker/state", "TestTheSuccessorOfAPodIsNotBounded"},
		{mutant{
			"pods without the label of their user have the grants once more", "pkg/scheduler/grant.go",
			`b.state.accounts[unknown] == nil && b.promised[""] == nil`,
			`true || f.scheduler.accounts[unknown] == nil`,
		}, "pkg/broker/state", "TestPodsWithoutAUserAreBoundedByAllGrants"},
		{mutant{
			"an outage is as old as the clocks of two leaders show", "pkg/broker/state/providers.go",
			`p.failoverFrom = probe.Ended.Add(-p.earlier)`,
			`p.failoverFrom = p.unreachableSince`,
		}, "pkg/broker/state", "TestAnOutageIsAsOldAsOneClockShows"},
		{mutant{
			"one owner decides about a KPI", "pkg/kpi/owners.go",
			`if len(votes) < 2 {`,
			`if true {`,
		}, "pkg/kpi", "TestNoOwnerDecidesAboutAKPIAlone"},
		{mutant{
			"a status has the QoS class of the provider", "pkg/provider/podstatus/accepted.go",
			`status.QOSClass = local.QOSClass`,
			``,
		}, "test/reflection", "TestPodsAreAccepted"},
		{mutant{
			"a pod is taken for the one before of its name", "pkg/provider/podlife/earlier.go",
			`return uid != local.UID`,
			`return false`,
		}, "test/reflection", "TestAPodIsNotTakenForTheOneBefore"},
		{mutant{
			"label keys that the selector has are forwarded", "pkg/provider/podspec/complete.go",
			"\tleaveOutMergedKeys(shadow)",
			``,
		}, "test/reflection", "TestShadowPodsAreAccepted"},
		{mutant{
			"counts of events do not follow", "pkg/provider/reflector/transform/events.go",
			`return local.Count == remote.Count && local.LastTimestamp.Equal(&remote.LastTimestamp) &&`,
			`return true ||`,
		}, "pkg/provider/reflector/transform", "TestEventsAreOnThePodWithTheirCount"},
		{mutant{
			"the last state of a pod that is deleted is kept", "pkg/provider/podlife/ended.go",
			`e.last.forget(name) // Liqo removes`,
			`// Liqo removes`,
		}, "test/reflection", "TestPodsThatWereEndedThere"},
		{mutant{
			"a pod of a consumer that the broker ends is deleted", "pkg/provider/podlife/ended.go",
			`&& disruption.Reason != v1alpha1.ReasonEvictionByBroker {`,
			`&& v1alpha1.ReasonEvictionByBroker != "" {`,
		}, "test/reflection", "TestPodsThatWereEndedThere"},
	}
}
