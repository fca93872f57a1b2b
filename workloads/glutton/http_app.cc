#include "workloads/glutton/http_app.h"

#include <utility>

#include "workloads/base/io.h"

namespace torpor::workloads::glutton {
namespace {

constexpr size_t kPoolThreads = 16;
constexpr size_t kQueuedJobs = 256;
constexpr char kProtobuf[] = "application/x-protobuf";

int HttpStatus(Code code) {
  switch (code) {
    case Code::kOk:
      return 200;
    case Code::kInvalidArgument:
      return 400;
    case Code::kNotFound:
      return 404;
    case Code::kInternal:
      return 500;
  }
  return 500;
}

template <typename Message>
http::Response Respond(const Status& status, const Message& message) {
  if (!status.ok()) return http::TextResponse(HttpStatus(status.code), status.message + "\n");
  http::Response response;
  response.content_type = kProtobuf;
  if (!message.SerializeToString(&response.body)) {
    return http::TextResponse(500, "response too large\n");
  }
  return response;
}

// Parses a body, calls a function of the service and serializes the answer.
template <typename In, typename Out, Status (Service::*Call)(const In&, Out*)>
http::Response Handle(Service* service, const std::string& body) {
  In in;
  if (!in.ParseFromString(body)) return Respond(Invalid("body is no such message"), Out());
  Out out;
  const Status status = (service->*Call)(in, &out);
  return Respond(status, out);
}

http::Response HandleWriteRam(Service* service, const std::string& body) {
  pb::WriteRAMRequest in;
  if (!in.ParseFromString(body)) {
    return Respond(Invalid("body is no such message"), pb::WriteRAMResponse());
  }
  uint64_t cursor = 0;
  const Status status = service->WriteRam(in, &cursor);
  http::Response response = Respond(status, pb::WriteRAMResponse());
  // The message has no field for it, and a driver that checks memory needs to see a cursor that
  // jumped back.
  if (status.ok()) response.headers.emplace_back("x-glutton-cursor", std::to_string(cursor));
  return response;
}

http::Response HandlePing(Service*, const std::string& body) {
  pb::PingRequest in;
  pb::PingResponse out;
  if (!in.ParseFromString(body)) return Respond(Invalid("body is no such message"), out);
  out.set_message(in.message());
  return Respond(Status(), out);
}

http::Response Timed(http::Response response, int64_t start_ns) {
  response.headers.emplace_back("x-server-elapsed-us",
                                std::to_string((MonotonicNs() - start_ns) / 1000));
  return response;
}

}  // namespace

HttpApp::HttpApp(http::Server* server, Service* service)
    : server_(server), service_(service), pool_(kPoolThreads, kQueuedJobs) {
  routes_["/ping"].handler = HandlePing;
  routes_["/writeram"].handler = HandleWriteRam;
  routes_["/readram"].handler = Handle<pb::ReadRAMRequest, pb::ReadRAMResponse, &Service::ReadRam>;
  routes_["/writedisk"].handler =
      Handle<pb::WriteDiskRequest, pb::WriteDiskResponse, &Service::WriteDisk>;
  routes_["/readdisk"].handler =
      Handle<pb::ReadDiskRequest, pb::ReadDiskResponse, &Service::ReadDisk>;
  routes_["/burncpu"].handler = Handle<pb::BurnCPURequest, pb::BurnCPUResponse, &Service::BurnCpu>;
  routes_["/ingest"].handler = Handle<pb::IngestRequest, pb::IngestResponse, &Service::Ingest>;
  routes_["/usecpu"].handler = Handle<pb::UseCPURequest, pb::UseCPUResponse, &Service::UseCpu>;
}

void HttpApp::OnRequest(http::Request request, http::Reply reply) {
  const int64_t start_ns = MonotonicNs();
  if (request.path == "/readyz") return reply.Send(http::TextResponse(200, "ok"));
  const auto route = routes_.find(request.path);
  if (route == routes_.end()) return reply.Send(http::TextResponse(404, "no such path\n"));
  if (request.method != "POST") {
    http::Response response = http::TextResponse(405, "use POST\n");
    response.headers.emplace_back("Allow", "POST");
    return reply.Send(std::move(response));
  }
  const Handler handler = route->second.handler;
  if (handler == HandlePing) {
    return Answer(request.path, reply, Timed(handler(service_, request.body), start_ns));
  }
  const bool accepted = pool_.Submit(
      [this, handler, reply, path = request.path, body = std::move(request.body)]() mutable {
        // Time in the queue is not the handler's.
        const int64_t start_ns = MonotonicNs();
        auto response = std::make_shared<http::Response>(Timed(handler(service_, body), start_ns));
        server_->Post([this, path, reply, response] { Answer(path, reply, std::move(*response)); });
      });
  if (!accepted) Answer(request.path, reply, http::TextResponse(503, "too many requests\n"));
}

void HttpApp::Answer(const std::string& path, const http::Reply& reply, http::Response response) {
  Route& route = routes_[path];
  ++route.requests;
  if (response.status >= 400) ++route.failures;
  reply.Send(std::move(response));
}

std::string HttpApp::MetricsText() const {
  std::string text = "# TYPE glutton_ram_bytes gauge\nglutton_ram_bytes " +
                     std::to_string(service_->RamBytes()) +
                     "\n# TYPE glutton_requests_total counter\n";
  for (const auto& [path, route] : routes_) {
    text +=
        "glutton_requests_total{path=\"" + path + "\"} " + std::to_string(route.requests) + "\n";
  }
  text += "# TYPE glutton_failures_total counter\n";
  for (const auto& [path, route] : routes_) {
    text +=
        "glutton_failures_total{path=\"" + path + "\"} " + std::to_string(route.failures) + "\n";
  }
  return text;
}

void MetricsApp::OnRequest(http::Request request, http::Reply reply) {
  if (request.path == "/metrics") return reply.Send(http::TextResponse(200, app_->MetricsText()));
  if (request.path == "/readyz") return reply.Send(http::TextResponse(200, "ok"));
  reply.Send(http::TextResponse(404, "no such path\n"));
}

}  // namespace torpor::workloads::glutton
