#pragma once
// The subcommands of the `torpor` program. Each parses its flags, builds its objects and runs; the
// logic is in the modules. `args` are the words after the subcommand; the result is the exit code
// (0 done, 1 failed, 2 wrong usage or configuration).

#include <string>
#include <vector>

namespace torpor {

using Args = std::vector<std::string>;

// Roles: run until SIGTERM or SIGINT.
int ApiserverCommand(const Args& args);
int RouterCommand(const Args& args);
int NodeCommand(const Args& args);
int WorkerCommand(const Args& args);
int MoverCommand(const Args& args);

// All roles of one machine.
int UpCommand(const Args& args);
int DownCommand(const Args& args);
int StatusCommand(const Args& args);
int ConfigCommand(const Args& args);
int DoctorCommand(const Args& args);
// Tries the storage that a mover with these settings would use.
int CheckStorageCommand(const Args& args);
// Looks into objects and snapshots.
int SnapshotCommand(const Args& args);

// Load driver and physical limits.
int BenchCommand(const Args& args);

// Helpers that roles start; not for people.
int InternalCommand(const Args& args);

}  // namespace torpor
