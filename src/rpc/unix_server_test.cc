#include "rpc/unix_server.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <filesystem>

#include "base/testing/matchers.h"
#include "base/uuid.h"
#include "rpc/channel.h"
#include "rpc/status.h"
#include "torpor/v1/mover.grpc.pb.h"

namespace torpor::rpc {
namespace {

namespace fs = std::filesystem;
using torpor::v1::Mover;
using torpor::v1::StatSnapshotRequest;
using torpor::v1::StatSnapshotResponse;

class FakeMover : public Mover::Service {
 public:
  grpc::Status StatSnapshot(grpc::ServerContext* context, const StatSnapshotRequest* request,
                            StatSnapshotResponse* response) override {
    if (request->uri() == "fail") {
      Status status = Error(Code::kUnavailable, "OBJECT_STORAGE_UNAVAILABLE", "try later",
                            {{"uri", request->uri()}});
      SetRetryAfterMs(status, 250);
      return ToGrpc(status);
    }
    if (request->uri() == "deadline") {
      auto left = TimeLeft(*context);
      response->set_stored_bytes(left ? std::chrono::ceil<std::chrono::seconds>(*left).count()
                                      : -1);
    }
    response->set_committed(true);
    response->set_manifest_sha256(request->uri());
    return grpc::Status::OK;
  }
};

class UnixServerTest : public testing::Test {
 protected:
  UnixServerTest() { fs::create_directories(dir_); }
  ~UnixServerTest() override { fs::remove_all(dir_); }

  StatusOr<std::unique_ptr<UnixServer>> Serve(const std::string& path,
                                              UnixServerOptions options = {}) {
    return UnixServer::Start(path, {&mover_}, std::move(options));
  }
  static StatusOr<StatSnapshotResponse> Stat(const std::shared_ptr<grpc::Channel>& channel,
                                             const std::string& uri, bool wait_for_ready = true) {
    auto stub = Mover::NewStub(channel);
    grpc::ClientContext context;
    SetDeadline(&context, std::chrono::seconds(10), wait_for_ready);
    StatSnapshotRequest request;
    request.set_uri(uri);
    StatSnapshotResponse response;
    Status status = FromGrpc(stub->StatSnapshot(&context, request, &response));
    if (!status.ok()) return status;
    return response;
  }

  const fs::path dir_ = "/tmp/rpc-test-" + RandomHex(8);
  const std::string path_ = dir_ / "mover.sock";
  FakeMover mover_;
};

TEST_F(UnixServerTest, ServesACallAndMakesThePrivateSocketFile) {
  ASSERT_OK_AND_ASSIGN(auto server, Serve(path_));
  struct stat st;
  ASSERT_EQ(lstat(path_.c_str(), &st), 0);
  EXPECT_EQ(st.st_mode & 0777, 0600u);
  ASSERT_OK_AND_ASSIGN(StatSnapshotResponse response, Stat(Connect("unix:" + path_), "abc"));
  EXPECT_EQ(response.manifest_sha256(), "abc");
  server->Shutdown();
  EXPECT_FALSE(fs::exists(path_));
}

TEST_F(UnixServerTest, ErrorsKeepReasonMetadataAndRetryInfo) {
  ASSERT_OK_AND_ASSIGN(auto server, Serve(path_));
  Status status = Stat(Connect("unix:" + path_), "fail").status();
  EXPECT_THAT(status, HasReason(Code::kUnavailable, "OBJECT_STORAGE_UNAVAILABLE"));
  EXPECT_EQ(MetadataOf(status)["uri"], "fail");
  EXPECT_EQ(RetryAfterMs(status), 250);
}

TEST_F(UnixServerTest, TransportErrorsHaveNoReason) {
  Status status = Stat(Connect("unix:" + path_), "abc", /*wait_for_ready=*/false).status();
  EXPECT_THAT(status, HasReason(Code::kUnavailable, ""));
}

TEST_F(UnixServerTest, TheDeadlineOfTheCallerArrives) {
  ASSERT_OK_AND_ASSIGN(auto server, Serve(path_));
  ASSERT_OK_AND_ASSIGN(StatSnapshotResponse response, Stat(Connect("unix:" + path_), "deadline"));
  EXPECT_GE(response.stored_bytes(), 9);
  EXPECT_LE(response.stored_bytes(), 11);  // gRPC rounds timeouts up
}

TEST_F(UnixServerTest, OneChannelLivesThroughARestartOfTheServer) {
  auto channel = Connect("unix:" + path_);
  ASSERT_OK_AND_ASSIGN(auto server, Serve(path_));
  ASSERT_OK(Stat(channel, "one"));
  server.reset();
  EXPECT_THAT(Stat(channel, "gone", /*wait_for_ready=*/false), HasCode(Code::kUnavailable));
  ASSERT_OK_AND_ASSIGN(server, Serve(path_));
  ASSERT_OK(Stat(channel, "two"));
}

TEST_F(UnixServerTest, AStaleSocketFileIsReplacedALiveOneIsNot) {
  UniqueFd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  path_.copy(address.sun_path, sizeof(address.sun_path) - 1);
  ASSERT_EQ(bind(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  fd.Reset();
  ASSERT_OK_AND_ASSIGN(auto server, Serve(path_));
  ASSERT_OK(Stat(Connect("unix:" + path_), "abc"));
  EXPECT_THAT(Serve(path_), HasReason(Code::kAlreadyExists, "ALREADY_EXISTS"));
  ASSERT_OK(Stat(Connect("unix:" + path_), "still there"));
}

TEST_F(UnixServerTest, AFileThatIsNoSocketIsKept) {
  UniqueFd file(open(path_.c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
  ASSERT_TRUE(file.valid());
  EXPECT_THAT(Serve(path_), HasCode(Code::kAlreadyExists));
  EXPECT_TRUE(fs::is_regular_file(path_));
}

TEST_F(UnixServerTest, ShutdownLeavesTheSocketOfASuccessor) {
  ASSERT_OK_AND_ASSIGN(auto first, Serve(path_));
  fs::remove(path_);
  ASSERT_OK_AND_ASSIGN(auto second, Serve(path_));
  first->Shutdown();
  ASSERT_OK(Stat(Connect("unix:" + path_), "abc"));
}

TEST_F(UnixServerTest, PathsAboveTheLimitOfSockaddrUnWork) {
  fs::path deep = dir_ / std::string(100, 'a') / std::string(100, 'b');
  fs::create_directories(deep);
  const std::string path = deep / "mover.sock";
  ASSERT_OK_AND_ASSIGN(auto server, Serve(path));
  auto channel = Connect("unix:" + path);
  ASSERT_OK_AND_ASSIGN(StatSnapshotResponse response, Stat(channel, "abc"));
  EXPECT_EQ(response.manifest_sha256(), "abc");
  EXPECT_THAT(Serve(deep / std::string(120, 'c')), HasCode(Code::kInvalidArgument));
}

// Connects to `path` as `uid` and says whether the server kept the connection: it then sends its
// HTTP/2 settings, else the stream ends. The bare system call changes the user of one thread only.
bool ServedAs(uid_t uid, const std::string& path) {
  bool served = false;
  std::thread([&] {
    ASSERT_EQ(syscall(SYS_setresuid, uid, uid, uid), 0);
    UniqueFd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    path.copy(address.sun_path, sizeof(address.sun_path) - 1);
    ASSERT_EQ(connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
    char byte;
    served = read(fd.get(), &byte, 1) == 1;
  }).join();
  return served;
}

TEST_F(UnixServerTest, OnlyKnownUsersAreServed) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root to act as another user";
  chmod(dir_.c_str(), 0755);
  ASSERT_OK_AND_ASSIGN(auto server, Serve(path_, {.allowed_uids = {4242}, .owner_uid = 4241}));
  struct stat st;
  ASSERT_EQ(lstat(path_.c_str(), &st), 0);
  EXPECT_EQ(st.st_uid, 4241u);
  chmod(path_.c_str(), 0666);  // so that the credentials decide, not the mode
  EXPECT_TRUE(ServedAs(0, path_));
  EXPECT_TRUE(ServedAs(4241, path_));
  EXPECT_TRUE(ServedAs(4242, path_));
  EXPECT_FALSE(ServedAs(4243, path_));
}

TEST_F(UnixServerTest, MessagesAboveTheLimitAreRefused) {
  ASSERT_OK_AND_ASSIGN(auto server, Serve(path_, {.message_bytes_max = 1000}));
  auto channel = Connect("unix:" + path_);
  EXPECT_OK(Stat(channel, std::string(400, 'x')));
  EXPECT_THAT(Stat(channel, std::string(2000, 'x')), HasCode(Code::kResourceExhausted));
}

}  // namespace
}  // namespace torpor::rpc
