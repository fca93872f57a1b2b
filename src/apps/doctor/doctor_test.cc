#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "apps/doctor/machine.h"
#include "apps/doctor/node_dir.h"
#include "base/testing/matchers.h"
#include "snapshot/format/manifest.h"
#include "snapshot/testing/sample.h"

namespace torpor::doctor {
namespace {

using ::testing::HasSubstr;
namespace fs = std::filesystem;

constexpr char kUid[] = "11111111-1111-4111-8111-111111111111";
constexpr char kOther[] = "22222222-2222-4222-8222-222222222222";
constexpr char kSnapshot[] = "33333333-3333-4333-8333-333333333333";

// Level and text of everything about `check`, one per line.
std::string About(const Findings& findings, const std::string& check) {
  std::string out;
  for (const Finding& f : findings) {
    if (f.check != check) continue;
    out += (f.level == Level::kOk       ? "ok "
            : f.level == Level::kAdvice ? "advice "
                                        : "problem ") +
           f.what + " -> " + f.remedy + "\n";
  }
  return out;
}

// A machine on which everything is as it should be.
struct GoodMachine {
  GoodMachine() {
    for (const char* ns : {"net", "mnt", "pid", "ipc", "uts", "user"}) {
      files["/proc/self/ns/" + std::string(ns)] = "";
    }
    machine.read = [this](const std::string& path) -> StatusOr<std::string> {
      auto it = files.find(path);
      if (it == files.end()) return ErrnoStatus(ENOENT, path);
      return it->second;
    };
    machine.exists = [this](const std::string& path) { return files.count(path) != 0; };
    machine.find_program = [this](const std::string& program) {
      return missing == program ? std::string() : "/usr/bin/" + program;
    };
    machine.has_user = [this](const std::string&) { return users; };
    machine.disk = [this](const std::string&) -> StatusOr<Disk> { return disk; };
    machine.root = true;
    machine.landlock = 2;
  }
  Findings Check() { return CheckMachine(machine, {.dir = "/data", .ports = {7700}}); }

  std::map<std::string, std::string> files{
      {"/", ""},
      {"/proc/sys/kernel/osrelease", "6.1.0-18-amd64\n"},
      {"/sys/fs/cgroup/cgroup.controllers", "cpuset cpu io memory pids\n"},
      {"/proc/meminfo", "MemTotal:       16384000 kB\n"},
      {"/sys/kernel/rcu_expedited", "1\n"},
      {"/proc/net/tcp", "  sl  local_address rem_address   st\n"}};
  std::string missing;
  bool users = true;
  Disk disk{int64_t{100} << 30, int64_t{200} << 30, 10'000'000};
  Machine machine;
};

TEST(DoctorMachine, AGoodOneHasNothingToDo) {
  GoodMachine good;
  for (const Finding& f : good.Check()) {
    EXPECT_EQ(f.level, Level::kOk) << f.check << ": " << f.what;
    EXPECT_EQ(f.remedy, "");
  }
}

TEST(DoctorMachine, EachBrokenThingIsNamedWithItsRemedy) {
  struct Case {
    const char* check;
    const char* text;
    std::function<void(GoodMachine&)> breaks;
  };
  const Case cases[] = {
      {"rights", "problem not root", [](GoodMachine& m) { m.machine.root = false; }},
      {"kernel", "problem 4.19.0 lacks openat2",
       [](GoodMachine& m) { m.files["/proc/sys/kernel/osrelease"] = "4.19.0\n"; }},
      {"namespaces", "problem not available: net -> raise /proc/sys/user/max_",
       [](GoodMachine& m) { m.files["/proc/sys/user/max_net_namespaces"] = "0\n"; }},
      {"namespaces", "problem not available: pid",
       [](GoodMachine& m) { m.files.erase("/proc/self/ns/pid"); }},
      {"cgroups", "problem no controller for: memory, cpu, pids, freezer -> mount cgroup2",
       [](GoodMachine& m) { m.files["/sys/fs/cgroup/cgroup.controllers"] = "cpuset io\n"; }},
      {"landlock", "advice not there: images are unpacked without confinement -> use a kernel",
       [](GoodMachine& m) { m.machine.landlock = 1; }},
      {"program", "problem nft is not in PATH -> apt-get install nftables",
       [](GoodMachine& m) { m.missing = "nft"; }},
      {"user", "advice there is no user torpor", [](GoodMachine& m) { m.users = false; }},
      {"memory", "advice 1.953Gi: 2Gi stay with the machine",
       [](GoodMachine& m) { m.files["/proc/meminfo"] = "MemTotal: 2048000 kB\n"; }},
      {"rcu_expedited", "-> echo 1 > /sys/kernel/rcu_expedited",
       [](GoodMachine& m) { m.files["/sys/kernel/rcu_expedited"] = "0\n"; }},
      {"disk", "problem /data: 1Gi of 200Gi free -> free space",
       [](GoodMachine& m) { m.disk.free_bytes = int64_t{1} << 30; }},
      {"disk", "problem /data: 5 inodes free", [](GoodMachine& m) { m.disk.free_inodes = 5; }},
      {"port", "problem another process listens on port 7700 -> ss -ltnp",
       [](GoodMachine& m) {
         m.files["/proc/net/tcp"] += "   0: 0100007F:1E14 00000000:0000 0A 0 0 0 0 0 1\n";
       }},
  };
  for (const Case& c : cases) {
    GoodMachine machine;
    c.breaks(machine);
    EXPECT_THAT(About(machine.Check(), c.check), HasSubstr(c.text)) << c.check;
  }
}

TEST(DoctorMachine, CgroupsOfVersion1AreEnough) {
  GoodMachine machine;
  machine.files.erase("/sys/fs/cgroup/cgroup.controllers");
  for (const char* name : {"memory", "cpu", "pids", "freezer"}) {
    machine.files[fmt::format("/sys/fs/cgroup/{}/cgroup.procs", name)] = "";
  }
  EXPECT_THAT(About(machine.Check(), "cgroups"), HasSubstr("ok v1 with"));
}

TEST(DoctorMachine, PortsThatListen) {
  EXPECT_THAT(ListeningPorts("  sl  local_address rem_address   st tx_queue\n"
                             "   0: 00000000:1F90 00000000:0000 0A 00000000:00000000\n"
                             "   1: 0100007F:0016 0100007F:D431 01 00000000:00000000\n"),
              ::testing::ElementsAre(8080));
}

class NodeDirectory : public ::testing::Test {
 protected:
  NodeDirectory() {
    char name[] = "/tmp/torpor-doctor-XXXXXX";
    dir_ = mkdtemp(name);
    Write("node.json", "{\"format\": 1, \"node_id\": \"x\", \"node_name\": \"n1\"}\n");
    snapshot::Manifest manifest = snapshot::SampleManifest();
    manifest.actor.set_uid(kUid);
    manifest.meta.set_generation(3);
    manifest.files.clear();
    manifest.files.push_back(snapshot::SampleFile("checkpoint.img", 4));
    auto text = snapshot::SerializeManifest(manifest);
    EXPECT_OK(text);
    if (text.ok()) Write(Local("manifest.json"), *text);
    Write(Local("checkpoint.img"), "1234");
    Write(fmt::format("journal/{}.j", kUid), "x");
  }
  ~NodeDirectory() override { fs::remove_all(dir_); }

  static std::string Local(const std::string& file) {
    return fmt::format("actors/{}/local-checkpoint/{}/{}", kUid, kSnapshot, file);
  }
  void Write(const std::string& path, const std::string& text) {
    fs::create_directories(fs::path(dir_ + "/" + path).parent_path());
    std::ofstream(dir_ + "/" + path) << text;
  }
  ActorRecords Paused() {
    ActorRecords records;
    records.actor.mutable_metadata()->set_uid(kUid);
    records.actor.mutable_metadata()->set_atespace("demo");
    records.actor.mutable_metadata()->set_name("a");
    auto* status = records.actor.mutable_status();
    status->set_state(ateapi::ACTOR_STATE_PAUSED);
    status->set_assigned_node("n1");
    status->mutable_local_snapshot()->set_snapshot_name(kSnapshot);
    return records;
  }

  std::string dir_;
  Findings out_;
};

TEST_F(NodeDirectory, AGoodOneAgreesWithItsRecords) {
  ASSERT_OK_AND_ASSIGN(NodeContents contents, CheckNodeDirectory(dir_, &out_));
  CheckRecordsAgainstNode({Paused()}, contents, &out_);
  for (const Finding& f : out_) EXPECT_EQ(f.level, Level::kOk) << f.what;
  EXPECT_EQ(contents.node_name, "n1");
  ASSERT_EQ(contents.actors[kUid].size(), 1u);
  EXPECT_EQ(contents.actors[kUid][0].generation, 3);
}

TEST_F(NodeDirectory, EachBrokenThingIsNamedWithItsRemedy) {
  Write(Local("checkpoint.img"), "12");
  Write("actors/stranger/file", "x");
  Write(fmt::format("actors/{}/logs/main", kOther), "x");
  Write("journal/notes.txt", "x");
  fs::create_directories(dir_ + "/actors/.rm-old-1");
  ASSERT_OK_AND_ASSIGN(NodeContents contents, CheckNodeDirectory(dir_, &out_));
  CheckRecordsAgainstNode({Paused()}, contents, &out_);
  EXPECT_THAT(About(out_, "local snapshot"),
              HasSubstr("checkpoint.img has 2 bytes, its manifest says 4"));
  EXPECT_THAT(About(out_, "actors"), HasSubstr("problem actors/stranger is not of Torpor"));
  EXPECT_THAT(About(out_, "journal"), HasSubstr("problem journal/notes.txt"));
  EXPECT_THAT(About(out_, "leftover"), HasSubstr("advice actors/.rm-old-1"));
  EXPECT_THAT(About(out_, "records"),
              HasSubstr(fmt::format("advice actors/{} belongs to no actor", kOther)));
}

TEST_F(NodeDirectory, FilesThatAreMissingOrDamaged) {
  fs::remove(dir_ + "/" + Local("checkpoint.img"));
  Write("node.json", "{}");
  ASSERT_OK(CheckNodeDirectory(dir_, &out_));
  EXPECT_THAT(About(out_, "local snapshot"), HasSubstr("checkpoint.img is missing"));
  EXPECT_THAT(About(out_, "node.json"), HasSubstr("problem it is damaged"));
  out_.clear();
  Write(Local("manifest.json"), "{");
  ASSERT_OK(CheckNodeDirectory(dir_, &out_));
  EXPECT_THAT(About(out_, "local snapshot"), HasSubstr("problem actors/"));
  EXPECT_THAT(CheckNodeDirectory(dir_ + "/none", &out_), HasCode(Code::kNotFound));
}

TEST_F(NodeDirectory, APausedActorWithoutItsSnapshot) {
  fs::remove_all(dir_ + "/actors");
  fs::create_directories(dir_ + "/actors");
  ASSERT_OK_AND_ASSIGN(NodeContents contents, CheckNodeDirectory(dir_, &out_));
  ActorRecords durable = Paused();
  durable.actor.mutable_status()->mutable_external_snapshot()->set_snapshot_uri("file:///x");
  ActorRecords busy = Paused();
  busy.actor.mutable_metadata()->set_name("busy");
  busy.actor.mutable_status()->mutable_operation()->set_op_id("op");
  ActorRecords elsewhere = Paused();
  elsewhere.actor.mutable_metadata()->set_name("elsewhere");
  elsewhere.actor.mutable_status()->set_assigned_node("n2");
  CheckRecordsAgainstNode({Paused(), durable, busy, elsewhere}, contents, &out_);
  const std::string text = About(out_, "records");
  EXPECT_THAT(text, HasSubstr("torpor delete actor demo/a --any-state"));
  EXPECT_THAT(text, HasSubstr("torpor revert demo/a brings"));
  EXPECT_THAT(text, ::testing::Not(HasSubstr("busy")));
  EXPECT_THAT(text, ::testing::Not(HasSubstr("elsewhere")));
}

}  // namespace
}  // namespace torpor::doctor
