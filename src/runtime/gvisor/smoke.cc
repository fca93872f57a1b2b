#include "runtime/gvisor/smoke.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include <fmt/format.h>

#include "base/unique_fd.h"
#include "base/uuid.h"
#include "model/reasons.h"
#include "runtime/gvisor/commands.h"
#include "runtime/gvisor/guest_programs.h"
#include "runtime/gvisor/leftovers.h"

namespace torpor::gvisor {
namespace {

constexpr char kPrefix[] = "smoke-";

constexpr char kConfig[] = R"({"ociVersion":"1.0.2",
  "process":{"user":{"uid":0,"gid":0},"args":["/guest"],"env":["PATH=/"],"cwd":"/"},
  "root":{"path":"rootfs"},"hostname":"smoke",
  "linux":{"namespaces":[{"type":"pid"},{"type":"ipc"},{"type":"uts"},{"type":"mount"}]}})";

struct Pipe {
  UniqueFd read_end, write_end;
};

StatusOr<Pipe> MakePipe() {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return ErrnoStatus(errno, "pipe");
  return Pipe{UniqueFd(ends[0]), UniqueFd(ends[1])};
}

// The first number above `after` that the guest prints.
StatusOr<long> NumberAfter(long after, const Pipe& pipe, MonotonicTime deadline) {
  std::string text;
  for (;;) {
    pollfd polled{pipe.read_end.get(), POLLIN, 0};
    auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
        deadline - std::chrono::steady_clock::now());
    if (left.count() <= 0 || poll(&polled, 1, static_cast<int>(left.count())) <= 0) {
      return Fail(reasons::kDeadlineExceeded, "the guest is silent");
    }
    char buffer[256];
    ssize_t n = read(pipe.read_end.get(), buffer, sizeof buffer);
    if (n <= 0) return Fail(reasons::kRuntimeFailed, "the guest ended");
    text.append(buffer, static_cast<size_t>(n));
    size_t line = text.rfind('\n');
    if (line == std::string::npos) continue;
    size_t begin = text.rfind('\n', line - 1);
    long number = std::atol(text.c_str() + (begin == std::string::npos ? 0 : begin + 1));
    if (number > after) return number;
    if (number <= after && after > 0) {
      return Fail(reasons::kRuntimeFailed,
                  fmt::format("the guest was at {} and goes on at {}", after, number));
    }
  }
}

Status MakeFiles(const std::string& directory) {
  std::error_code error;
  for (const char* part : {"bundles/smoke/rootfs", "state", "image"}) {
    std::filesystem::create_directories(directory + "/" + part, error);
    if (error) return ErrnoStatus(error.value(), "mkdir " + directory + "/" + part);
  }
  std::ofstream(directory + "/bundles/smoke/config.json") << kConfig;
  std::string guest = directory + "/bundles/smoke/rootfs/guest";
  std::ofstream(guest, std::ios::binary) << SmokeGuest();
  if (chmod(guest.c_str(), 0755) != 0) return ErrnoStatus(errno, "chmod " + guest);
  return OkStatus();
}

// By the fast way where there is one: its failure must not be hidden by the other.
StatusOr<std::unique_ptr<runtime::Sandbox>> Restore(runtime::Runtime& runtime,
                                                    const runtime::StartArgs& start,
                                                    bool* guest_ran) {
  if (runtime.PreparationKey(start).empty()) return runtime.Start(start, nullptr, guest_ran);
  ASSIGN_OR_RETURN(auto prepared, runtime.Prepare(start));
  return prepared->Restore(start, nullptr, guest_ran);
}

Status Run(runtime::Runtime& runtime, const std::string& netns_path, const std::string& directory,
           MonotonicTime deadline) {
  RETURN_IF_ERROR(MakeFiles(directory));
  ASSIGN_OR_RETURN(Pipe pipe, MakePipe());
  runtime::StartArgs start;
  start.sandbox_id = std::filesystem::path(directory).filename();
  start.spec.add_containers()->set_name("smoke");
  start.bundles_dir = directory + "/bundles";
  start.state_dir = directory + "/state";
  start.netns_path = netns_path;
  start.stdio["smoke"] = {pipe.write_end.get(), -1};
  start.deadline = deadline;
  bool guest_ran = false;
  auto booted = runtime.Start(start, nullptr, &guest_ran);
  if (!booted.ok()) return Annotate(booted.status(), "boot");
  auto before = NumberAfter(0, pipe, deadline);
  runtime::CaptureArgs capture;
  capture.capture_dir = directory + "/image";
  capture.deadline = deadline;
  auto captured = before.ok() ? (*booted)->Capture(capture, nullptr) : before.status();
  Status stopped = (*booted)->Stop(Duration::zero());
  if (!captured.ok()) return Annotate(captured.status(), "capture");
  RETURN_IF_ERROR(stopped);

  ASSIGN_OR_RETURN(pipe, MakePipe());
  start.stdio["smoke"] = {pipe.write_end.get(), -1};
  start.restore_dir = capture.capture_dir;
  start.restore_fidelity = torpor::v1::FIDELITY_MEMORY;
  start.files = captured->files;
  auto restored = Restore(runtime, start, &guest_ran);
  if (!restored.ok()) return Annotate(restored.status(), "restore");
  auto after = NumberAfter(*before, pipe, deadline);
  stopped = (*restored)->Stop(Duration::zero());
  if (!after.ok()) return Annotate(after.status(), "after the restore");
  return stopped;
}

}  // namespace

Status RemoveSmokeLeftovers(const std::string& work_dir, MonotonicTime deadline) {
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(work_dir, error)) {
    if (entry.path().filename().string().rfind(kPrefix, 0) != 0) continue;
    const std::string root = StatePaths(entry.path() / "state").root;
    RETURN_IF_ERROR(KillUntilGone([&] { return FindByRoot(root); }, deadline));
    std::filesystem::remove_all(entry.path(), error);
  }
  return error ? ErrnoStatus(error.value(), "remove smoke tests in " + work_dir) : OkStatus();
}

Status SmokeTest(runtime::Runtime& runtime, const std::string& netns_path,
                 const std::string& work_dir, MonotonicTime deadline) {
  std::string directory = work_dir + "/" + kPrefix + RandomHex(6);
  Status status = Run(runtime, netns_path, directory, deadline);
  std::error_code error;
  std::filesystem::remove_all(directory, error);
  if (status.ok()) return status;
  return Error(Code::kFailedPrecondition, ReasonOf(status),
               "smoke test: " + std::string(status.message()));
}

}  // namespace torpor::gvisor
