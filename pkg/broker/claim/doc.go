// Package claim has the lease by which one installation of the broker claims its cluster. ProviderClusters, policies
// and the guard are cluster-scoped: two installations would delete each other's ProviderClusters. The replicas of an
// installation share the claim; which of them leads is decided by another lease (pkg/broker/lease).
package claim
