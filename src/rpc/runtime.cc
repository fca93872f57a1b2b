#include "rpc/runtime.h"

#include <thread>

#include <grpcpp/create_channel.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/security/credentials.h>

#include "base/sync.h"

namespace torpor::rpc {
namespace {

// A thread of gRPC's waits for 1 s, then sleeps.
constexpr auto kPulse = std::chrono::milliseconds(500);

// A call that fails at once, because its channel has no credentials. Its answer is an event for the
// threads.
struct Call {
  Call() : request(&slice, 1) {}
  grpc::ClientContext context;
  grpc::Slice slice = grpc::Slice("none");
  grpc::ByteBuffer request;
  grpc::ByteBuffer response;
};

void Poke(grpc::GenericStub* stub) {
  auto call = std::make_shared<Call>();
  stub->UnaryCall(&call->context, "/none/None", grpc::StubOptions(), &call->request,
                  &call->response, [call](grpc::Status) {});
}

class Pulse {
 public:
  // The stub's channel holds the threads, so it is never destroyed.
  Pulse() : stub_(new grpc::GenericStub(grpc::CreateChannel("none", nullptr))) {
    thread_ = std::thread([this] { Run(); });
  }
  // At the end of the process, before what gRPC made earlier goes.
  ~Pulse() {
    {
      MutexLock lock(&mu_);
      ended_ = true;
      changed_.SignalAll();
    }
    thread_.join();
  }

 private:
  void Run() {
    while (true) {
      Poke(stub_);
      MutexLock lock(&mu_);
      const auto next = std::chrono::steady_clock::now() + kPulse;
      while (!ended_ && changed_.WaitUntil(&mu_, next)) {
      }
      if (ended_) return;
    }
  }

  grpc::GenericStub* const stub_;
  Mutex mu_;
  CondVar changed_;
  bool ended_ GUARDED_BY(mu_) = false;
  std::thread thread_;
};

}  // namespace

void KeepCallbackThreads() { static Pulse pulse; }

}  // namespace torpor::rpc
