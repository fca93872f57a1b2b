#include "api/dispatcher.h"

#include <fmt/format.h>

#include "api/validate/validate.h"
#include "ateapi/ateapi.pb.h"
#include "base/log.h"
#include "model/reasons.h"
#include "torpor/v1/ops.pb.h"

namespace torpor::api {
namespace {

Status NotImplemented(const Dispatcher::Method& method) {
  return Fail(reasons::kNotImplemented,
              fmt::format("{} is not served by this version; see docs for what is",
                          method.descriptor->full_name()),
              {{"method", method.descriptor->full_name()}});
}

}  // namespace

MonotonicTime AnswerBefore(MonotonicTime now, Duration left) {
  if (left > std::chrono::hours(24 * 365)) return MonotonicTime::max();
  // gRPC clients round their timeout up by as much as 1 %; the answer itself takes a moment.
  const Duration moment = std::min<Duration>(left / 10, std::chrono::milliseconds(50));
  return now + std::max(left - std::max(moment, left / 50), Duration(0));
}

Dispatcher::Dispatcher(size_t threads_max) : pool_(threads_max) {
  // Named through a message of each file, so that the linker keeps the descriptors.
  const auto* ateapi = ateapi::Actor::descriptor()->file();
  const auto* ops = torpor::v1::OperationReport::descriptor()->file();
  for (const auto* file : {ateapi, ops}) {
    for (int s = 0; s < file->service_count(); ++s) {
      const auto* service = file->service(s);
      for (int m = 0; m < service->method_count(); ++m) {
        Method method;
        method.path = fmt::format("/{}/{}", service->full_name(), service->method(m)->name());
        method.descriptor = service->method(m);
        method.json = service->full_name() != "ateapi.WorkerService";
        methods_.emplace(method.path, std::move(method));
      }
    }
  }
}

Dispatcher::~Dispatcher() { Stop(); }

Dispatcher::Method* Dispatcher::Add(std::string_view path) {
  auto method = methods_.find(path);
  CHECK(method != methods_.end());
  return &method->second;
}

const Dispatcher::Method* Dispatcher::Find(std::string_view path) const {
  auto method = methods_.find(path);
  return method == methods_.end() ? nullptr : &method->second;
}

std::vector<std::string> Dispatcher::Paths() const {
  std::vector<std::string> paths;
  for (const auto& [path, method] : methods_) paths.push_back(path);
  return paths;
}

std::unique_ptr<Message> Dispatcher::NewRequest(const Method& method) {
  return std::unique_ptr<Message>(google::protobuf::MessageFactory::generated_factory()
                                      ->GetPrototype(method.descriptor->input_type())
                                      ->New());
}

void Dispatcher::Unary(const Method& method, std::unique_ptr<Message> request, const Call& call,
                       Reply answer) {
  // An answer may come after Stop, so it holds what it needs.
  Reply reply = [requests = requests_, name = method.descriptor->name(), clock = clock_,
                 answer = std::move(answer),
                 start = clock_->Now()](StatusOr<std::shared_ptr<const Message>> result) {
    requests.Observe({name, absl::StatusCodeToString(result.status().code())},
                     clock->Now() - start);
    answer(std::move(result));
  };
  if (method.unary == nullptr) return reply(NotImplemented(method));
  if (Status valid = Validate(*request); !valid.ok()) return reply(std::move(valid));
  method.unary(std::move(request), call, std::move(reply));
}

void Dispatcher::Stream(const Method& method, std::unique_ptr<Message> request, const Call& call,
                        std::shared_ptr<ResponseStream> stream) {
  if (method.stream == nullptr) return stream->Finish(NotImplemented(method));
  if (Status valid = Validate(*request); !valid.ok()) return stream->Finish(std::move(valid));
  method.stream(std::move(request), call, std::move(stream));
}

bool Dispatcher::Enter() {
  MutexLock lock(&mu_);
  if (stopping_) return false;
  ++inside_;
  return true;
}

void Dispatcher::Leave() {
  MutexLock lock(&mu_);
  if (--inside_ == 0) left_.SignalAll();
}

Status Dispatcher::ShuttingDown() {
  return Fail(reasons::kShuttingDown, "the apiserver is shutting down; try again");
}

void Dispatcher::Inside(const std::function<void()>& work, const Reply& reply) {
  if (!Enter()) return reply(ShuttingDown());
  work();
  Leave();
}

void Dispatcher::Stop() {
  MutexLock lock(&mu_);
  stopping_ = true;
  while (inside_ > 0) left_.Wait(&mu_);
}

}  // namespace torpor::api
