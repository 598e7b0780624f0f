// Package proc runs host processes that end with their parent.
//
// Every process is started with a parent-death signal (prctl(2),
// PR_SET_PDEATHSIG), so the kernel kills it when the sandbox's owner dies, also
// by SIGKILL. As a second line every process is recorded in a file by pid and
// start time, so that a later run finds and ends what is left without ever
// touching a process that merely got the same pid.
package proc
