// Package aggregator grants consumers shares of the sum that the providers granted to the broker. It is a class
// controller, as Liqo supports them for custom classes of ResourceSlices.
//
// Package share is pure: from the sum, the rules, the limits of consumers and the slices it computes an offer for every
// slice. The controller reads its input from the API, writes the status of the slices, and keeps no state that must
// survive a restart. Liqo handles certificates, tenants and quotas.
package aggregator
