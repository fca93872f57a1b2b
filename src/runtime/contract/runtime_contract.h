#pragma once
// The contract of runtime.h as tests. A runtime's test file includes this and instantiates the
// suite:
//
//   INSTANTIATE_TEST_SUITE_P(Fake, RuntimeContract, testing::Values(SubjectFactory{...}), ...);

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <future>
#include <map>
#include <sstream>

#include <gtest/gtest.h>

#include "base/testing/matchers.h"
#include "base/unique_fd.h"
#include "runtime/contract/subject.h"

namespace torpor::runtime {

inline std::string ReadWhole(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream content;
  content << file.rdbuf();
  return content.str();
}

// Names, sizes, modes, times and link counts of a directory's files.
inline std::string Listing(const std::string& directory) {
  std::map<std::string, std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    struct stat st;
    lstat(entry.path().c_str(), &st);
    std::ostringstream line;
    line << st.st_size << ' ' << st.st_mode << ' ' << st.st_nlink << ' ' << st.st_mtim.tv_sec << '.'
         << st.st_mtim.tv_nsec << ' ' << std::hash<std::string>()(ReadWhole(entry.path()));
    files[entry.path().filename()] = line.str();
  }
  std::string out;
  for (const auto& [name, line] : files) out += name + ' ' + line + '\n';
  return out;
}

class RuntimeContract : public testing::TestWithParam<SubjectFactory> {
 protected:
  void SetUp() override {
    subject_ = GetParam().make();
    Status prepared = subject_->Prepare();
    if (prepared.code() == Code::kNotFound) GTEST_SKIP() << std::string(prepared.message());
    ASSERT_OK(prepared);
  }
  void TearDown() override {
    if (sandbox_ == nullptr) return;
    EXPECT_OK(sandbox_->Stop(Duration::zero()));
    sandbox_.reset();
  }

  static MonotonicTime Soon() {
    return std::chrono::steady_clock::now() + std::chrono::seconds(60);
  }

  std::string NewDirectory(const std::string& name) {
    std::string path = subject_->directory() + "/" + name + std::to_string(++directories_);
    std::filesystem::create_directories(path);
    return path;
  }

  StartArgs Args(const std::string& sandbox_id) {
    StartArgs args;
    args.sandbox_id = sandbox_id;
    args.bundles_dir = subject_->directory() + "/bundles";
    args.state_dir = NewDirectory("state");
    args.spec.add_containers()->set_name("app");
    args.spec.set_http_port(8080);
    args.deadline = Soon();
    subject_->Surround(&args);
    int ends[2];
    EXPECT_EQ(pipe2(ends, O_CLOEXEC), 0);
    output_ = UniqueFd(ends[0]);
    output_write_ = UniqueFd(ends[1]);
    args.stdio["app"] = {output_write_.get(), output_write_.get()};
    return args;
  }

  Status Start(const StartArgs& args) {
    exits_ = std::make_shared<std::promise<SandboxExit>>();
    bool guest_ran = false;
    auto sandbox = subject_->runtime().Start(
        args, [exits = exits_](SandboxExit exit) { exits->set_value(exit); }, &guest_ran);
    output_write_.Reset();
    if (!sandbox.ok()) return sandbox.status();
    EXPECT_TRUE(guest_ran);
    sandbox_ = std::move(*sandbox);
    return OkStatus();
  }

  Status Restore(const std::string& sandbox_id, const std::string& image,
                 const CaptureOutcome& captured) {
    StartArgs args = Args(sandbox_id);
    args.restore_dir = image;
    args.restore_fidelity = torpor::v1::FIDELITY_MEMORY;
    args.files = captured.files;
    args.preserve_restore = true;
    return Start(args);
  }

  // Captures and tidies up; the image is in `*image`.
  StatusOr<CaptureOutcome> Capture(std::string* image) {
    *image = NewDirectory("image");
    CaptureArgs args;
    args.capture_dir = *image;
    args.deadline = Soon();
    CaptureFailure failure;
    auto outcome = sandbox_->Capture(args, &failure);
    if (!outcome.ok()) return outcome;
    Status stopped = sandbox_->Stop(Duration::zero());
    if (!stopped.ok()) return stopped;
    sandbox_.reset();
    return outcome;
  }

  std::string Ask(const std::string& line) {
    auto answer = subject_->Ask(line);
    return answer.ok() ? *answer : answer.status().ToString();
  }

  // The guest's output up to and including a line end.
  std::string OutputLine() {
    std::string text;
    while (text.empty() || text.back() != '\n') {
      pollfd polled{output_.get(), POLLIN, 0};
      if (poll(&polled, 1, 20000) <= 0) return text + "(nothing more)";
      char byte;
      if (read(output_.get(), &byte, 1) != 1) return text + "(end)";
      text.push_back(byte);
    }
    return text;
  }

  std::unique_ptr<ContractSubject> subject_;
  std::unique_ptr<Sandbox> sandbox_;
  std::shared_ptr<std::promise<SandboxExit>> exits_;
  UniqueFd output_, output_write_;
  int directories_ = 0;
};

TEST_P(RuntimeContract, Capabilities) {
  const Capabilities& capabilities = subject_->runtime().capabilities();
  EXPECT_FALSE(capabilities.runtime.empty());
  EXPECT_FALSE(capabilities.runtime_version.empty());
  EXPECT_THAT(capabilities.fidelities, testing::Contains(torpor::v1::FIDELITY_MEMORY));
}

TEST_P(RuntimeContract, GoesOnAtLastPlusOne) {
  ASSERT_OK(Start(Args("actor-1")));
  EXPECT_GT(sandbox_->main_pid(), 0);
  EXPECT_EQ(Ask("next"), "1");
  EXPECT_EQ(Ask("next"), "2");
  EXPECT_EQ(Ask("write note hello"), "ok");
  int last = 2;
  // Under the same id, under a new one, and each time from a capture of a restored guest.
  for (const char* id : {"actor-1", "actor-2", "actor-1"}) {
    std::string image;
    ASSERT_OK_AND_ASSIGN(CaptureOutcome captured, Capture(&image));
    ASSERT_OK(Restore(id, image, captured));
    EXPECT_EQ(Ask("next"), std::to_string(++last));
    EXPECT_EQ(Ask("read note"), "hello");
  }
}

TEST_P(RuntimeContract, OutcomeListsExactlyTheFiles) {
  ASSERT_OK(Start(Args("actor-1")));
  std::string image;
  ASSERT_OK_AND_ASSIGN(CaptureOutcome captured, Capture(&image));
  std::map<std::string, int64_t> listed, found;
  for (const auto& file : captured.files) {
    listed[file.name()] = file.logical_bytes();
    EXPECT_LE(file.populated_bytes(), file.logical_bytes());
    EXPECT_EQ(file.needed_from(), torpor::v1::FIDELITY_MEMORY);
  }
  for (const auto& entry : std::filesystem::directory_iterator(image)) {
    found[entry.path().filename()] = static_cast<int64_t>(entry.file_size());
  }
  EXPECT_EQ(listed, found);
  EXPECT_FALSE(listed.empty());
}

TEST_P(RuntimeContract, PreservedDirectoryIsNotTouched) {
  ASSERT_OK(Start(Args("actor-1")));
  EXPECT_EQ(Ask("next"), "1");
  std::string image;
  ASSERT_OK_AND_ASSIGN(CaptureOutcome captured, Capture(&image));
  for (const auto& entry : std::filesystem::directory_iterator(image)) {
    chmod(entry.path().c_str(), 0440);
  }
  std::string before = Listing(image);
  for (int i = 0; i < 3; ++i) {
    ASSERT_OK(Restore("actor-1", image, captured));
    EXPECT_EQ(Ask("next"), "2") << "each restore starts from the same state";
    ASSERT_OK(sandbox_->Stop(Duration::zero()));
    sandbox_.reset();
    EXPECT_EQ(Listing(image), before);
  }
}

TEST_P(RuntimeContract, OutputGoesToTheNewPipe) {
  ASSERT_OK(Start(Args("actor-1")));
  EXPECT_EQ(Ask("out first"), "ok");
  EXPECT_EQ(OutputLine(), "first\n");
  std::string image;
  ASSERT_OK_AND_ASSIGN(CaptureOutcome captured, Capture(&image));
  ASSERT_OK(Restore("actor-1", image, captured));
  EXPECT_EQ(Ask("out second"), "ok");
  EXPECT_EQ(OutputLine(), "second\n");
}

TEST_P(RuntimeContract, ExitIsReportedOnceWithItsCode) {
  ASSERT_OK(Start(Args("actor-1")));
  Ask("exit 7");  // the answer is lost with the guest
  auto exit = exits_->get_future();
  ASSERT_EQ(exit.wait_for(std::chrono::seconds(30)), std::future_status::ready);
  EXPECT_EQ(exit.get().exit_code, 7);
  std::string image = NewDirectory("image");
  CaptureArgs args;
  args.capture_dir = image;
  args.deadline = Soon();
  CaptureFailure failure{OkStatus(), true};
  EXPECT_THAT(sandbox_->Capture(args, &failure), testing::Not(IsOk()));
  EXPECT_FALSE(failure.guest_alive);
  EXPECT_TRUE(std::filesystem::is_empty(image)) << "no half image";
}

TEST_P(RuntimeContract, StopIsIdempotentAndNoNews) {
  StartArgs args = Args("actor-1");
  ASSERT_OK(Start(args));
  EXPECT_EQ(Ask("next"), "1");
  EXPECT_OK(sandbox_->Stop(std::chrono::seconds(5)));
  EXPECT_OK(sandbox_->Stop(Duration::zero()));
  EXPECT_EQ(exits_->get_future().wait_for(std::chrono::milliseconds(0)),
            std::future_status::timeout);
  EXPECT_TRUE(std::filesystem::is_empty(args.state_dir));
  EXPECT_OK(subject_->runtime().CleanUp("actor-1", args.state_dir));
}

TEST_P(RuntimeContract, CaptureIsNoNews) {
  ASSERT_OK(Start(Args("actor-1")));
  std::string image;
  ASSERT_OK(Capture(&image));
  EXPECT_EQ(exits_->get_future().wait_for(std::chrono::milliseconds(0)),
            std::future_status::timeout);
}

TEST_P(RuntimeContract, CleanUpRemovesWhatAnEarlierWorkerLeft) {
  StartArgs args = Args("actor-1");
  ASSERT_OK(Start(args));
  EXPECT_OK(subject_->runtime().CleanUp("actor-1", args.state_dir));
  EXPECT_TRUE(std::filesystem::is_empty(args.state_dir));
  EXPECT_THAT(subject_->Ask("next"), testing::Not(IsOk()));
  EXPECT_OK(subject_->runtime().CleanUp("actor-1", args.state_dir));
  EXPECT_OK(subject_->runtime().CleanUp("never-seen", NewDirectory("state")));
}

TEST_P(RuntimeContract, CorruptImageIsDataLoss) {
  ASSERT_OK(Start(Args("actor-1")));
  std::string image;
  ASSERT_OK_AND_ASSIGN(CaptureOutcome captured, Capture(&image));
  for (const auto& file : captured.files) {
    std::string path = image + "/" + file.name();
    std::string content = ReadWhole(path);
    std::filesystem::resize_file(path, content.size() / 2);
    EXPECT_THAT(Restore("actor-1", image, captured), HasReason(Code::kDataLoss, "SNAPSHOT_CORRUPT"))
        << file.name() << " cut";
    EXPECT_EQ(sandbox_, nullptr);
    std::filesystem::remove(path);
    EXPECT_THAT(Restore("actor-1", image, captured), HasReason(Code::kDataLoss, "SNAPSHOT_CORRUPT"))
        << file.name() << " missing";
    std::ofstream(path, std::ios::binary) << content;
  }
  std::string path = image + "/" + captured.files.front().name();
  std::string content = ReadWhole(path);
  std::string wrong = content;
  std::fill(wrong.begin(), wrong.begin() + static_cast<long>(wrong.size() / 2), 'x');
  std::ofstream(path, std::ios::binary) << wrong;
  EXPECT_THAT(Restore("actor-1", image, captured), HasReason(Code::kDataLoss, "SNAPSHOT_CORRUPT"));
  std::ofstream(path, std::ios::binary) << content;
  ASSERT_OK(Restore("actor-1", image, captured));
  EXPECT_EQ(Ask("next"), "1");
}

TEST_P(RuntimeContract, CaptureWithAnOpenConnection) {
  ASSERT_OK(Start(Args("actor-1")));
  EXPECT_EQ(Ask("next"), "1");
  if (!subject_->HoldConnection()) GTEST_SKIP() << "this subject has no connections";
  std::string image;
  ASSERT_OK_AND_ASSIGN(CaptureOutcome captured, Capture(&image));
  ASSERT_OK(Restore("actor-1", image, captured));
  EXPECT_EQ(Ask("next"), "2");
}

TEST_P(RuntimeContract, VolumesWithoutMemory) {
  ASSERT_OK(Start(Args("actor-1")));
  EXPECT_EQ(Ask("next"), "1");
  CaptureArgs args;
  args.fidelity = torpor::v1::FIDELITY_VOLUMES;
  args.capture_dir = NewDirectory("image");
  args.deadline = Soon();
  CaptureFailure failure;
  // A volume that cannot be saved costs nothing: the guest goes on.
  args.pack_volumes = []() -> StatusOr<std::vector<torpor::v1::SnapshotFile>> {
    return ErrnoStatus(ENOSPC, "write volume");
  };
  EXPECT_THAT(sandbox_->Capture(args, &failure), HasReason(Code::kResourceExhausted, "DISK_FULL"));
  EXPECT_TRUE(failure.guest_alive);
  EXPECT_EQ(Ask("next"), "2");

  args.pack_volumes = []() -> StatusOr<std::vector<torpor::v1::SnapshotFile>> {
    torpor::v1::SnapshotFile file;
    file.set_name("volume-data.tar");
    return std::vector<torpor::v1::SnapshotFile>{file};
  };
  ASSERT_OK_AND_ASSIGN(CaptureOutcome captured, sandbox_->Capture(args, &failure));
  ASSERT_EQ(captured.files.size(), 1u);
  EXPECT_EQ(captured.files[0].name(), "volume-data.tar");
  EXPECT_TRUE(std::filesystem::is_empty(args.capture_dir)) << "no image of the memory";
  ASSERT_OK(sandbox_->Stop(Duration::zero()));
  sandbox_.reset();
  EXPECT_EQ(exits_->get_future().wait_for(std::chrono::milliseconds(0)),
            std::future_status::timeout);

  StartArgs again = Args("actor-1");
  again.restore_fidelity = torpor::v1::FIDELITY_VOLUMES;
  again.restore_dir = args.capture_dir;
  again.files = captured.files;
  ASSERT_OK(Start(again));
  EXPECT_EQ(Ask("next"), "1") << "memory begins anew";
}

TEST_P(RuntimeContract, VolumesArePackedAfterTheMemory) {
  ASSERT_OK(Start(Args("actor-1")));
  EXPECT_EQ(Ask("next"), "1");
  CaptureArgs args;
  args.capture_dir = NewDirectory("image");
  args.deadline = Soon();
  int calls = 0;
  args.pack_volumes = [&]() -> StatusOr<std::vector<torpor::v1::SnapshotFile>> {
    ++calls;
    EXPECT_FALSE(std::filesystem::is_empty(args.capture_dir)) << "the memory is saved before";
    torpor::v1::SnapshotFile file;
    file.set_name("volume-data.tar");
    return std::vector<torpor::v1::SnapshotFile>{file};
  };
  CaptureFailure failure;
  ASSERT_OK_AND_ASSIGN(CaptureOutcome captured, sandbox_->Capture(args, &failure));
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(captured.files.back().name(), "volume-data.tar");
}

TEST_P(RuntimeContract, UnsupportedIsRefusedBeforeAnythingIsTouched) {
  StartArgs volumes = Args("actor-1");
  volumes.restore_fidelity = torpor::v1::FIDELITY_ROOTFS;
  volumes.restore_dir = NewDirectory("image");
  EXPECT_THAT(Start(volumes), HasReason(Code::kInvalidArgument, "FIDELITY_UNSUPPORTED"));
  EXPECT_TRUE(std::filesystem::is_empty(volumes.state_dir));

  ASSERT_OK(Start(Args("actor-1")));
  EXPECT_EQ(Ask("next"), "1");
  CaptureArgs args;
  args.capture_dir = NewDirectory("image");
  args.fidelity = torpor::v1::FIDELITY_ROOTFS;
  args.deadline = Soon();
  CaptureFailure failure;
  EXPECT_THAT(sandbox_->Capture(args, &failure),
              HasReason(Code::kInvalidArgument, "FIDELITY_UNSUPPORTED"));
  EXPECT_TRUE(failure.guest_alive);
  EXPECT_EQ(ReasonOf(failure.status), "FIDELITY_UNSUPPORTED");
  EXPECT_EQ(Ask("next"), "2");
}

}  // namespace torpor::runtime
