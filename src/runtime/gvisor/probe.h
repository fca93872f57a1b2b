#pragma once
// What an installed runsc can do, read from what it says about itself (never from its version), and
// what this kernel needs.

#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "base/time.h"

namespace torpor::gvisor {

struct RunscFeatures {
  std::string version;                     // "release-20240729.0", as printed
  std::set<std::string> flags;             // global ones, without dashes
  std::set<std::string> checkpoint_flags;  // of `runsc checkpoint`
  std::set<std::string> restore_flags;     // of `runsc restore`
  std::set<std::string> platforms;
  bool fs_checkpoint = false;  // `runsc fscheckpoint` exists

  // What a MEMORY capture in our shape needs and is missing; empty = nothing.
  std::vector<std::string> Missing() const;
};

// What runsc printed, each standard output and error together.
struct RunscTexts {
  std::string version;
  std::string flags;
  std::string help_checkpoint;
  std::string help_restore;
  std::string help_fscheckpoint;
  std::string help_platforms;
};
RunscFeatures ParseRunscTexts(const RunscTexts& texts);

// Runs `binary` six times. NOT_FOUND when it does not exist, FAILED_PRECONDITION when it is no
// runsc.
StatusOr<RunscFeatures> ProbeRunsc(const std::string& binary, MonotonicTime deadline);

// A thread that sits in a network namespace of its own, so that the namespace can be looked at and
// entered by path as long as the object lives.
class ScratchNetns {
 public:
  static StatusOr<std::unique_ptr<ScratchNetns>> Create();
  ~ScratchNetns();
  const std::string& path() const { return path_; }
  // Whether runsc would take this namespace for the host's: it decides by
  // /proc/sys/net/core/rmem_default, which newer kernels show in every namespace.
  bool LooksLikeHost() const { return looks_like_host_; }

 private:
  struct Thread;
  ScratchNetns() = default;
  std::unique_ptr<Thread> thread_;
  std::string path_;
  bool looks_like_host_ = false;
};

// Flags of the first processor of /proc/cpuinfo, sorted, without the words that Linux makes up for
// itself: they change with the kernel, and no program is bound to them.
std::vector<std::string> ParseCpuFeatures(std::string_view cpuinfo);

}  // namespace torpor::gvisor
