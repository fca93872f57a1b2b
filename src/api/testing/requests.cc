#include "api/testing/requests.h"

#include "google/rpc/error_details.pb.h"

namespace torpor::api::testing_requests {

ateapi::ActorTemplate Template() {
  ateapi::ActorTemplate t;
  t.mutable_metadata()->set_atespace("demo");
  t.mutable_metadata()->set_name("counter");
  ateapi::Container* container = t.add_containers();
  container->set_name("main");
  container->set_image("counter@sha256:" + std::string(64, 'a'));
  t.mutable_snapshot_config()->set_storage_location("file:///var/lib/torpor/store");
  t.mutable_sandbox_config()->set_sandbox_class(ateapi::SANDBOX_CLASS_GVISOR);
  t.mutable_sandbox_config()->set_config_name("gvisor");
  return t;
}

ateapi::Actor Actor() {
  ateapi::Actor actor;
  actor.mutable_metadata()->set_atespace("demo");
  actor.mutable_metadata()->set_name("counter-1");
  actor.mutable_actor_template()->set_atespace("demo");
  actor.mutable_actor_template()->set_name("counter");
  return actor;
}

std::vector<std::string> ViolatedFields(const Status& status) {
  std::vector<std::string> fields;
  auto payload = status.GetPayload(kBadRequestUrl);
  google::rpc::BadRequest bad;
  if (!payload.has_value() || !bad.ParseFromString(std::string(*payload))) return fields;
  for (const auto& violation : bad.field_violations()) fields.push_back(violation.field());
  return fields;
}

}  // namespace torpor::api::testing_requests
