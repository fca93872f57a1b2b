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
