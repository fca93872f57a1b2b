#include "api/testing/world.h"

#include <gtest/gtest.h>

#include <future>

#include "api/http/json.h"
#include "api/testing/http_connection.h"
#include "base/testing/matchers.h"
#include "rpc/channel.h"
#include "rpc/status.h"

namespace torpor::api {

using nlohmann::json;
using std::chrono::milliseconds;

namespace {

constexpr char kToken[] = "0123456789abcdef";

// Without the encoded details, whose maps have no order; `debug` shows the same.
json Readable(json answer) {
  if (!answer.contains("details")) return answer;
  for (json& detail : answer["details"]) EXPECT_EQ(detail.erase("value"), 1u);
  return answer;
}

json ErrorOf(const Status& status) { return Readable(json::parse(ErrorJson(status))); }

}  // namespace

static const std::string kImage = "counter@sha256:" + std::string(64, 'a');
const std::string kTemplate =
    R"({"actorTemplate": {"metadata": {"atespace": "demo", "name": "counter"},
        "containers": [{"name": "main", "image": ")" +
    kImage + R"("}],
        "snapshotConfig": {}, "goldenConfig": {"disabled": true},
        "sandboxConfig": {"sandboxClass": "SANDBOX_CLASS_GVISOR", "configName": "gvisor"}}})";
const std::string kActor =
    R"({"actor": {"metadata": {"atespace": "demo", "name": "a"},
        "actorTemplate": {"atespace": "demo", "name": "counter"}}})";
const std::string kRef = R"({"actor": {"atespace": "demo", "name": "a"}})";

std::string ReasonIn(const json& answer) {
  if (!answer.contains("details")) return "";
  for (const json& detail : answer["details"]) {
    if (detail["type"] == "google.rpc.ErrorInfo") return detail["debug"].value("reason", "");
  }
  return "none";
}

World::World(Clock* clock) : clock_(clock), token_(kToken, "token") {
  control::ControlPlane::Parts parts;
  parts.store = &store_;
  parts.snapshots = &storage_;
  parts.node_clients = node_.Factory();
  parts.clock = clock_;
  parts.ids = &ids_;
  control::Settings settings;
  settings.default_storage_location = "file:///store";
  auto control = control::ControlPlane::Create(parts, settings);
  EXPECT_OK(control);
  control_ = std::move(*control);
  auto registered = control_->RegisterNode(FakeNode::Registration());
  EXPECT_OK(registered);
  lease_id_ = registered->lease_id();
  ServeControlPlane(&dispatcher_, control_.get(), &logs_);
  auto grpc = GrpcServer::Start("127.0.0.1:0", &service_);
  EXPECT_OK(grpc);
  grpc_ = std::move(*grpc);
  auto http = HttpServer::Start("127.0.0.1:0", &handler_);
  EXPECT_OK(http);
  http_ = std::move(*http);
  stub_ = std::make_unique<grpc::GenericStub>(
      rpc::Connect("127.0.0.1:" + std::to_string(grpc_->port()), {.token = kToken}));
}

World::~World() {
  dispatcher_.Stop();
  control_.reset();
  http_->Stop(milliseconds(0));
  grpc_->Stop(milliseconds(0));
}

void World::MakeActor() {
  const std::pair<const char*, std::string> calls[] = {
      {"CreateAtespace", R"({"atespace": {"metadata": {"name": "demo"}}})"},
      {"CreateActorTemplate", kTemplate},
      {"CreateActor", kActor}};
  for (const auto& [method, body] : calls) {
    const std::string path = std::string("/ateapi.Control/") + method;
    EXPECT_FALSE(OverGrpc(path, body, std::chrono::seconds(20)).contains("code")) << path;
  }
}

void World::StopControl() {
  dispatcher_.Stop();
  control_.reset();
}

json World::OverGrpc(const std::string& path, const std::string& body, Duration timeout) {
  const Dispatcher::Method* method = dispatcher_.Find(path);
  auto request = Dispatcher::NewRequest(*method);
  if (Status status = ParseJson(body, request.get()); !status.ok()) return ErrorOf(status);
  grpc::Slice slice(request->SerializeAsString());
  grpc::ByteBuffer out(&slice, 1);
  grpc::ByteBuffer in;
  grpc::ClientContext context;
  rpc::SetDeadline(&context, timeout);
  std::promise<grpc::Status> ended;
  stub_->UnaryCall(&context, path, grpc::StubOptions(), &out, &in,
                   [&](grpc::Status status) { ended.set_value(std::move(status)); });
  Status status = rpc::FromGrpc(ended.get_future().get());
  EXPECT_EQ(context.GetServerTrailingMetadata().count("x-server-elapsed-us"), 1u) << path;
  if (!status.ok()) return ErrorOf(status);
  grpc::Slice whole;
  EXPECT_TRUE(in.DumpToSingleSlice(&whole).ok());
  std::unique_ptr<Message> response(google::protobuf::MessageFactory::generated_factory()
                                        ->GetPrototype(method->descriptor->output_type())
                                        ->New());
  EXPECT_TRUE(response->ParseFromArray(whole.begin(), static_cast<int>(whole.size())));
  return json::parse(*PrintJson(*response));
}

json World::OverJson(const std::string& path, const std::string& body, Duration timeout) {
  Connection connection(http_->port());
  connection.Send(
      "POST " + path +
      " HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\n"
      "Connect-Timeout-Ms: " +
      std::to_string(std::chrono::duration_cast<milliseconds>(timeout).count()) +
      "\r\nAuthorization: Bearer " + kToken + "\r\nContent-Length: " + std::to_string(body.size()) +
      "\r\n\r\n" + body);
  const std::string answer = connection.ReadAll();
  EXPECT_NE(answer.find("trailer-x-server-elapsed-us: "), std::string::npos) << answer;
  const size_t begin = answer.find("\r\n\r\n");
  if (begin == std::string::npos) return "no answer";
  return Readable(json::parse(answer.substr(begin + 4)));
}

}  // namespace torpor::api
