#include "bench/world.h"

#include <fstream>

#include "base/uuid.h"
#include "bench/http_client.h"

namespace torpor::bench {

World::~World() {
  if (stack == nullptr || !stack->attached()) return;
  std::vector<std::string> made;
  {
    MutexLock lock(&mu);
    made = actors;
  }
  for (const std::string& actor : made) control->Delete(actor);
  Status deleted = control->DeleteTemplate();
  if (!deleted.ok()) {
    fprintf(stderr, "warning: template not deleted: %s\n", std::string(deleted.message()).c_str());
  }
}

void World::Note(const std::string& actor) {
  MutexLock lock(&mu);
  actors.push_back(actor);
}

std::string World::HostOf(const std::string& actor) const {
  return fmt::format("{}.{}.actors.localhost", actor, kAtespace);
}

Poster World::PosterOf(const std::string& actor) const {
  auto connection = std::make_shared<HttpConnection>(DialTcp(stack->router_address()));
  return [connection, host = HostOf(actor), limit = scenario.actor_deadline](
             const std::string& path, const std::string& body) {
    return connection->Exchange({"POST", path, host, "application/x-protobuf", body},
                                Clock::Real()->Now() + limit);
  };
}

StatusOr<std::string> FindImage(const std::string& image_layout_dir, const std::string& name) {
  std::ifstream file(image_layout_dir + "/images.txt");
  for (std::string found, digest; file >> found >> digest;) {
    if (found == name) return name + "@" + digest;
  }
  return Error(Code::kNotFound, "FIELD_INVALID",
               fmt::format("{}/images.txt names no image {}; make it with workloads/build-images",
                           image_layout_dir, name));
}

StatusOr<std::unique_ptr<World>> StartWorld(const WorldOptions& options, const Scenario& scenario) {
  ASSIGN_OR_RETURN(std::string image, FindImage(options.image_layout_dir, ImageOf(scenario)));
  auto world = std::make_unique<World>();
  world->scenario = scenario;
  if (options.attach_dir.empty()) {
    StackOptions stack = options.stack;
    stack.sandbox_class = scenario.sandbox_class;
    stack.worker_actors = scenario.worker_count;
    stack.warm_pool = scenario.warm_pool;
    stack.router_threads = scenario.pattern == "ingress" ? 1 : 0;
    ASSIGN_OR_RETURN(world->stack, Stack::Start(stack));
  } else {
    ASSIGN_OR_RETURN(world->stack, Stack::Attach(options.attach_dir, options.attach_router));
  }
  GrpcControl::Options control;
  control.endpoint = world->stack->endpoint();
  control.template_name = ImageOf(scenario) + "-" + RandomHex(4);
  control.call_limit = scenario.actor_deadline;
  world->control = std::make_unique<GrpcControl>(std::move(control));
  Status made = world->control->MakeTemplate(scenario, image, options.golden);
  if (!made.ok()) return Annotate(made, "template" + world->stack->LogTails() + "\n");
  return world;
}

}  // namespace torpor::bench
