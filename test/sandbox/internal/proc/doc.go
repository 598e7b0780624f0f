// Package proc runs host processes that end with their parent.
//
// Every process is started with a parent-death signal (prctl(2), PR_SET_PDEATHSIG), so the kernel kills it when the
// sandbox's owner dies, even by SIGKILL. In addition, every process is recorded in a file by pid and start time, so
// that a later run finds and ends remaining processes, and never affects a process that only has the same pid.
package proc
