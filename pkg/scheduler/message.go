package scheduler

// Message says what was decided and why, in a line for people: "Assigned to provider q1: score 87 (uptime 40, free 30,
// price 17); 2 others fit, 1 filtered: disabled". The numbers in parentheses add up to the score. When nothing fits it
// is Unschedulable.
func (d *Decision) Message() string { return "" }

// Unschedulable says how many providers fit, and how many do not for which reason: "0/3 provider clusters fit: 2
// insufficient cpu, 1 disabled".
func (d *Decision) Unschedulable() string { return "" }

// Short says what was decided in few characters, for an annotation: "q1 87: uptime 40, free 30, price 17". It is ""
// when nothing fits.
func (d *Decision) Short() string { return "" }
