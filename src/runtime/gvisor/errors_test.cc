#include "runtime/gvisor/errors.h"

#include <unistd.h>

#include <fstream>

#include <gtest/gtest.h>

#include "base/testing/matchers.h"
#include "base/uuid.h"
#include "runtime/gvisor/enter.h"

namespace torpor::gvisor {
namespace {

struct Case {
  const char* verb;
  const char* output;  // recorded from 20240729 unless a newer release is named
  Code code;
  const char* reason;
};

const Case kCases[] = {
    {"restore",
     "starting container: restoring container \"c1\": error decoding from 0x17d: unexpected EOF:",
     Code::kDataLoss, "SNAPSHOT_CORRUPT"},
    {"restore",
     "starting container: restoring container \"c1\": error decoding from 0x2: unknown header: "
     "1305751:",
     Code::kDataLoss, "SNAPSHOT_CORRUPT"},
    {"restore",
     "starting container: opening state file \"/x/checkpoint.img\" failed: open /x/checkpoint.img: "
     "no "
     "such file or directory",
     Code::kDataLoss, "SNAPSHOT_CORRUPT"},
    {"restore",
     "starting container: opening restore image file \"/x/pages_meta.img\" failed: open "
     "/x/pages_meta.img: no such file or directory",
     Code::kDataLoss, "SNAPSHOT_CORRUPT"},
    {"restore",
     "starting container: restoring container \"c1\": reading metadata from statefile: bad magic "
     "header",
     Code::kDataLoss, "SNAPSHOT_CORRUPT"},
    {"restore", "starting container: restoring container \"c1\": EOF", Code::kDataLoss,
     "SNAPSHOT_CORRUPT"},
    {"restore", "starting container: restoring container \"c1\": header error: EOF:",
     Code::kDataLoss, "SNAPSHOT_CORRUPT"},
    {"restore", "starting container: restoring container \"c1\": object missing:", Code::kDataLoss,
     "SNAPSHOT_CORRUPT"},
    {"restore",
     "error decoding object ID 111 (tmpfs.filesystem): Memory file for \"__no_name_0:/\" not found "
     "in "
     "CtxMemoryFileMap:",
     Code::kFailedPrecondition, "RUNTIME_INCOMPATIBLE"},
    {"restore", "runsc version does not match across checkpoint restore, checkpoint: a current: b",
     Code::kFailedPrecondition, "RUNTIME_INCOMPATIBLE"},  // newer releases
    {"restore",
     "starting container: restoring container \"c1\": incompatible FeatureSet: missing features: "
     "avx512f,avx512vl",
     Code::kFailedPrecondition, "RUNTIME_INCOMPATIBLE"},
    {"restore", "starting container: restoring container \"c1\": invalid argument", Code::kInternal,
     "RUNTIME_FAILED"},
    {"run",
     "running container: starting container: starting root container: starting sandbox: creating "
     "process: failed to load /nope: no such file or directory",
     Code::kInternal, "INVALID_CONTAINER_CONFIG"},
    {"run", "reading spec: Spec.Process must be defined: &{Version:1.0.2}", Code::kInternal,
     "INVALID_CONTAINER_CONFIG"},
    {"run",
     "running container: starting container: setting up network: creating interfaces from net "
     "namespace \"/proc/1/ns/net\": cannot run with network enabled in root network namespace",
     Code::kInternal, "RUNTIME_FAILED"},
    {"checkpoint", "checkpoint failed: write /x/pages.img: no space left on device",
     Code::kResourceExhausted, "DISK_FULL"},
    // What means a broken image at a restore means nothing of that kind at a checkpoint.
    {"checkpoint", "checkpoint failed: checkpointing container \"c0\": EOF", Code::kInternal,
     "RUNTIME_FAILED"},
    {"checkpoint", "loading container: file does not exist", Code::kInternal, "RUNTIME_FAILED"},
    {"restore", "", Code::kInternal, "RUNTIME_FAILED"},
};

TEST(MapRunsc, Table) {
  for (const Case& c : kCases) {
    Status status = MapRunsc(c.verb, {128, 0}, c.output);
    EXPECT_THAT(status, HasReason(c.code, c.reason)) << c.output;
    EXPECT_THAT(status, MessageHas(std::string("runsc ") + c.verb + ": exit code 128: "))
        << c.output;
    EXPECT_THAT(status, MessageHas(c.output));
  }
}

TEST(MapRunsc, HelperAndSignals) {
  EXPECT_THAT(MapRunsc("restore", {kEnterFailed, 0}, "torpor-enter: join cgroup /x: EOF\n"),
              HasReason(Code::kInternal, "RUNTIME_FAILED"));
  EXPECT_THAT(MapRunsc("run", {0, 9}, ""), MessageHas("signal 9 (Killed): it said nothing"));
}

TEST(LogTail, KeepsTheLastMessagesWithoutGoStacks) {
  std::string path = testing::TempDir() + "runsc-log-" + RandomHex(6);
  {
    std::ofstream file(path);
    file << R"({"msg":"first","level":"warning"})" << "\n"
         << "plain text\n"
         << "\n"
         << R"x({"msg":"why:\ngoroutine 1 [running]:\nmain.main()","level":"error"})x" << "\n"
         << R"({"level":"error"})" << "\n";
  }
  EXPECT_EQ(LogTail(path, 3), "plain text\nwhy:\n{\"level\":\"error\"}\n");
  EXPECT_EQ(LogTail(path, 99).substr(0, 6), "first\n");
  unlink(path.c_str());
  EXPECT_EQ(LogTail(path, 3), "");
}

}  // namespace
}  // namespace torpor::gvisor
