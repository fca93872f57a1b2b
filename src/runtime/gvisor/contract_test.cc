// The contract suite over real sandboxes. Needs root, runsc and ip(8).

#include "runtime/contract/runtime_contract.h"
#include "runtime/gvisor/testing/gvisor_subject.h"

namespace torpor::runtime {
namespace {

// Both ways: the command line is the reference, the control socket must do the same.
template <bool kControlSocket>
std::unique_ptr<ContractSubject> MakeSubject() {
  return std::make_unique<GvisorSubject>(kControlSocket);
}
// The suite talks to the first of them.
template <bool kControlSocket>
std::unique_ptr<ContractSubject> MakeThree() {
  return std::make_unique<GvisorSubject>(kControlSocket,
                                         std::vector<std::string>{"second", "third"});
}
INSTANTIATE_TEST_SUITE_P(Gvisor, RuntimeContract,
                         testing::Values(SubjectFactory{"ByCommand", MakeSubject<false>},
                                         SubjectFactory{"BySocket", MakeSubject<true>},
                                         SubjectFactory{"ThreeByCommand", MakeThree<false>},
                                         SubjectFactory{"ThreeBySocket", MakeThree<true>}),
                         [](const auto& info) { return info.param.name; });

// So that its pages have to come from the disk.
void DropPageCache(const std::string& image) {
  for (const auto& entry : std::filesystem::directory_iterator(image)) {
    UniqueFd fd(open(entry.path().c_str(), O_RDONLY | O_CLOEXEC));
    ASSERT_TRUE(fd.valid());
    ASSERT_EQ(fdatasync(fd.get()), 0);
    ASSERT_EQ(posix_fadvise(fd.get(), 0, 0, POSIX_FADV_DONTNEED), 0);
  }
}

// Nothing of the guest is asked between the wake and the capture, so whatever a restore would put
// off until it is needed has not come when the capture begins.
TEST_P(RuntimeContract, D7_ACaptureRightAfterAWakeHasAllMemory) {
  ASSERT_OK(Start(Args("actor-1")));
  EXPECT_EQ(Ask("fill 96"), "ok");
  const std::string sum = Ask("sum");
  std::string image;
  ASSERT_OK_AND_ASSIGN(CaptureOutcome captured, Capture(&image));
  for (int i = 0; i < 3; ++i) {
    DropPageCache(image);
    const std::string before = Listing(image);
    DropPageCache(image);
    ASSERT_OK(Restore("actor-1", image, captured));
    std::string next;
    ASSERT_OK_AND_ASSIGN(CaptureOutcome again, Capture(&next));
    EXPECT_EQ(Listing(image), before) << "the capture has a directory of its own";
    image = next;
    captured = again;
  }
  DropPageCache(image);
  ASSERT_OK(Restore("actor-1", image, captured));
  EXPECT_EQ(Ask("sum"), sum);
}

// What only real sandboxes have: they are born in their cgroup, all of them, and leave it empty.
TEST(GvisorSandbox, IsBornInItsCgroup) {
  GvisorSubject subject;
  Status prepared = subject.Prepare();
  if (prepared.code() == Code::kNotFound) GTEST_SKIP() << prepared.ToString();
  ASSERT_OK(prepared);
  StartArgs args;
  args.sandbox_id = "actor-1";
  args.bundles_dir = subject.directory() + "/bundles";
  args.state_dir = subject.directory() + "/state";
  std::filesystem::create_directories(args.state_dir);
  args.spec.add_containers()->set_name("app");
  args.deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  subject.Surround(&args);
  bool guest_ran = false;
  ASSERT_OK_AND_ASSIGN(auto sandbox, subject.runtime().Start(args, nullptr, &guest_ran));
  EXPECT_OK(subject.Ask("fill 64"));
  ASSERT_OK_AND_ASSIGN(auto processes, subject.cgroups().Processes("app"));
  EXPECT_THAT(processes, testing::Contains(sandbox->main_pid()));
  EXPECT_GE(processes.size(), 2u) << "sentry and gofer at least";
  ASSERT_OK_AND_ASSIGN(os::CgroupUsage usage, subject.cgroups().Usage("app"));
  EXPECT_GT(usage.memory_current_bytes, int64_t{64} << 20) << "guest memory is charged to it";
  EXPECT_OK(sandbox->Stop(Duration::zero()));
  ASSERT_OK_AND_ASSIGN(processes, subject.cgroups().Processes("app"));
  EXPECT_THAT(processes, testing::IsEmpty());
}

}  // namespace
}  // namespace torpor::runtime
