#pragma once
// The start helper: puts itself where a sandbox belongs, then becomes runsc.
//
//   torpor-enter [--log FILE] [--procs FILE]... [--netns PATH] [--hide-net-core] -- PROGRAM ARG...
//
// joins each cgroup by writing 0 into its cgroup.procs (so the sandbox is born inside its limits),
// enters the network namespace, makes a private mount namespace whose mounts do not reach the host,
// covers /proc/sys/net/core when asked (runsc takes a netns that shows rmem_default for the host's
// and refuses to use it), and executes PROGRAM.
//
// It is a program of its own, static and without our libraries: the torpor executable loads a
// hundred shared libraries, and this runs at every start and every wake. Single-threaded by nature.

namespace torpor::gvisor {

// The exit code when anything before the execution of PROGRAM failed; the reason is one line in
// --log, else on standard error. No runsc command ends with it.
inline constexpr int kEnterFailed = 117;

// `arguments` begins after the program's name and ends with a null pointer. Returns only on
// failure.
int Enter(char** arguments);

}  // namespace torpor::gvisor
