#include "runtime/gvisor/probe.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <future>
#include <sstream>
#include <thread>

#include <fmt/format.h>

#include "os/process/process.h"

namespace torpor::gvisor {
namespace {

// Lines of the form "  -name value" of Go's flag package.
std::set<std::string> FlagNames(const std::string& text) {
  std::set<std::string> names;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    // The first flag may follow the usage on one line: "wait [flags] <id>  -checkpoint uint".
    size_t at = line.find("  -");
    if (at == std::string::npos) continue;
    size_t begin = line.find_first_not_of('-', at + 2);
    if (begin == std::string::npos) continue;
    names.insert(line.substr(begin, line.find_first_of(" \t", begin) - begin));
  }
  return names;
}

std::string FirstLine(const std::string& text) { return text.substr(0, text.find('\n')); }

}  // namespace

std::vector<std::string> RunscFeatures::Missing() const {
  std::vector<std::string> missing;
  for (const char* flag : {"root", "network", "overlay2", "ignore-cgroups", "net-disconnect-ok"}) {
    if (flags.count(flag) == 0) missing.push_back(std::string("--") + flag);
  }
  if (checkpoint_flags.count("image-path") == 0) missing.push_back("checkpoint -image-path");
  if (checkpoint_flags.count("compression") == 0) missing.push_back("checkpoint -compression");
  for (const char* flag : {"bundle", "image-path", "detach", "pid-file"}) {
    if (restore_flags.count(flag) == 0) missing.push_back(std::string("restore -") + flag);
  }
  return missing;
}

RunscFeatures ParseRunscTexts(const RunscTexts& texts) {
  RunscFeatures features;
  constexpr std::string_view kPrefix = "runsc version ";
  std::string first = FirstLine(texts.version);
  if (first.compare(0, kPrefix.size(), kPrefix) == 0)
    features.version = first.substr(kPrefix.size());
  features.flags = FlagNames(texts.flags);
  features.checkpoint_flags = FlagNames(texts.help_checkpoint);
  features.restore_flags = FlagNames(texts.help_restore);
  features.fs_checkpoint = FirstLine(texts.help_fscheckpoint).find("fscheckpoint [flags]") == 0;
  std::istringstream platforms(texts.help_platforms);
  for (std::string word; platforms >> word;) features.platforms.insert(word);
  return features;
}

StatusOr<RunscFeatures> ProbeRunsc(const std::string& binary, MonotonicTime deadline) {
  RunscTexts texts;
  struct Question {
    std::string* answer;
    std::vector<std::string> arguments;
  };
  for (const Question& q :
       std::vector<Question>{{&texts.version, {"--version"}},
                             {&texts.flags, {"flags"}},
                             {&texts.help_checkpoint, {"help", "checkpoint"}},
                             {&texts.help_restore, {"help", "restore"}},
                             {&texts.help_fscheckpoint, {"help", "fscheckpoint"}},
                             {&texts.help_platforms, {"help", "platforms"}}}) {
    std::vector<std::string> command = {binary};
    command.insert(command.end(), q.arguments.begin(), q.arguments.end());
    ASSIGN_OR_RETURN(os::CommandResult result, os::RunCommand(command, {.deadline = deadline}));
    *q.answer = result.out + result.err;
  }
  RunscFeatures features = ParseRunscTexts(texts);
  if (features.version.empty()) {
    return Error(Code::kFailedPrecondition, "INVALID_SANDBOX_ASSET",
                 fmt::format("{} is not runsc: it says '{}'", binary, FirstLine(texts.version)));
  }
  return features;
}

struct ScratchNetns::Thread {
  std::promise<void> leave;
  std::thread thread;
};

StatusOr<std::unique_ptr<ScratchNetns>> ScratchNetns::Create() {
  struct Entered {
    int error = 0;
    pid_t tid = 0;
    bool looks_like_host = false;
  };
  std::unique_ptr<ScratchNetns> netns(new ScratchNetns);
  netns->thread_ = std::make_unique<Thread>();
  std::promise<Entered> entered;
  auto entered_future = entered.get_future();
  netns->thread_->thread =
      std::thread([&entered, leave = netns->thread_->leave.get_future()]() mutable {
        Entered result;
        result.tid = static_cast<pid_t>(syscall(SYS_gettid));
        if (unshare(CLONE_NEWNET) != 0) result.error = errno;
        result.looks_like_host = access("/proc/sys/net/core/rmem_default", F_OK) == 0;
        entered.set_value(result);
        leave.wait();
      });
  Entered result = entered_future.get();
  if (result.error != 0) return ErrnoStatus(result.error, "unshare of a network namespace");
  netns->looks_like_host_ = result.looks_like_host;
  netns->path_ = fmt::format("/proc/{}/task/{}/ns/net", getpid(), result.tid);
  return netns;
}

ScratchNetns::~ScratchNetns() {
  thread_->leave.set_value();
  thread_->thread.join();
}

namespace {

// The words of arch/x86/include/asm/cpufeatures.h that stand for no bit of CPUID, or for one that
// only the host's kernel uses. Sorted.
constexpr std::string_view kKernelWords[] = {
    "acc_power",
    "amd_dcm",
    "aperfmperf",
    "arch_perfmon",
    "art",
    "bhi_ctrl",
    "bts",
    "cat_l2",
    "cat_l3",
    "cdp_l2",
    "cdp_l3",
    "constant_tsc",
    "cpb",
    "cpuid",
    "cpuid_fault",
    "cqm_llc",
    "cqm_mbm_local",
    "cqm_mbm_total",
    "cqm_occup_llc",
    "entry_ibpb",
    "epb",
    "ept",
    "ept_ad",
    "extd_apicid",
    "flexpriority",
    "hw_pstate",
    "ibpb",
    "ibrs",
    "ibrs_enhanced",
    "intel_ppin",
    "invpcid_single",
    "mba",
    "msr_spec_ctrl",
    "nonstop_tsc",
    "nonstop_tsc_s3",
    "nopl",
    "pebs",
    "per_thread_mba",
    "perfmon_v2",
    "proc_feedback",
    "pti",
    "rapl",
    "rep_good",
    "retpoline",
    "retpoline_amd",
    "ring3mwait",
    "rrsba",
    "rsb_ctxsw",
    "sev",
    "split_lock_detect",
    "ssbd",
    "stibp",
    "tdx_guest",
    "tpr_shadow",
    "tsc_known_freq",
    "tsc_reliable",
    "up",
    "user_shstk",
    "vmcall",
    "vmmcall",
    "vmw_vmmcall",
    "vnmi",
    "vpid",
    "xcompacted",
    "xtopology",
    "zen",
};

static_assert(std::is_sorted(std::begin(kKernelWords), std::end(kKernelWords)));

bool IsKernelWord(const std::string& word) {
  return std::binary_search(std::begin(kKernelWords), std::end(kKernelWords), word);
}

}  // namespace

std::vector<std::string> ParseCpuFeatures(std::string_view cpuinfo) {
  std::istringstream lines{std::string(cpuinfo)};
  for (std::string line; std::getline(lines, line);) {
    bool is_flags = line.compare(0, 5, "flags") == 0 || line.compare(0, 8, "Features") == 0;
    size_t colon = line.find(':');
    if (!is_flags || colon == std::string::npos) continue;
    std::istringstream words(line.substr(colon + 1));
    std::vector<std::string> features;
    for (std::string word; words >> word;) {
      if (!IsKernelWord(word)) features.push_back(word);
    }
    std::sort(features.begin(), features.end());
    return features;
  }
  return {};
}

}  // namespace torpor::gvisor
