#include "worker/orphans.h"

#include <gtest/gtest.h>

#include "base/testing/matchers.h"
#include "os/cgroup/testing/fake_cgroup_fs.h"

namespace torpor::worker {
namespace {

// A capture that was cut off leaves its group beside the leaf. The worker does not adopt sandboxes
// of an earlier process, so what still lives in one is ended: it has no limit there.
TEST(Orphans, E5_StaleCaptureGroups) {
  auto fs = std::make_shared<os::FakeCgroupFs>(true, std::set<std::string>{"/u"});
  ASSERT_OK_AND_ASSIGN(auto cgroups, os::OpenCgroupTree({"/u", {}}, "w", fs));
  for (const char* leaf : {"a-_box", "b-_box", "c-_box", "d-_box"}) {
    ASSERT_OK(cgroups->CreateSibling(leaf));
  }
  ASSERT_OK(cgroups->Create("c-_box", {}));
  fs->AddProcess("/u/w/d-_box_ckpt", 4242);
  ASSERT_OK_AND_ASSIGN(int ended, RemoveOrphans(cgroups.get(), "/nonexistent", Clock::Real()));
  EXPECT_EQ(ended, 1) << "the busy one";
  ASSERT_OK_AND_ASSIGN(auto directories, fs->ListDirs("/u/w"));
  EXPECT_THAT(directories, testing::IsEmpty());
}

}  // namespace
}  // namespace torpor::worker
