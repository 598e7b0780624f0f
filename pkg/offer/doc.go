// Package offer decides what consumers are granted of what the providers granted to the broker: it is the class
// controller of the ResourceSlices of one class, as Liqo has it for custom classes.
//
// Decide is pure: the sum, the rules and the slices in, an offer for every slice out. The controller reads both from the
// API, writes the status of the slices, and remembers nothing that a restart would miss. Certificates, tenants and quotas
// stay Liqo's.
package offer
