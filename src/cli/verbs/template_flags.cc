#include "cli/verbs/template_flags.h"

#include <CLI/CLI.hpp>

#include "base/time.h"

namespace torpor::cli {
namespace {

Status SetDuration(const std::string& flag, const std::string& text,
                   google::protobuf::Duration* target) {
  auto value = ParseDuration(text);
  if (!value.ok()) return Annotate(value.status(), flag);
  *target = ToProto(*value);
  return OkStatus();
}

void AddLimit(ateapi::ActorTemplate* t, const std::string& name, const std::string& quantity) {
  if (quantity.empty()) return;
  auto* limit = t->mutable_resources()->add_limits();
  limit->set_name(name);
  limit->set_quantity(quantity);
}

}  // namespace

void AddTemplateFlags(CLI::App& app, TemplateFlags* f) {
  app.add_option("--image", f->image, "OCI image pinned by digest, NAME@sha256:...")->required();
  app.add_option("--port", f->port, "where the router sends requests (default 80)")
      ->check(CLI::Range(1, 65535));
  app.add_option("--probe", f->probe, "path that answers 200 when the actor is ready");
  app.add_option("--memory", f->memory, "memory limit (default 512Mi)");
  app.add_option("--cpu", f->cpu, "cpu limit (default 1)");
  app.add_option("--class", f->sandbox_class, "sandbox class")
      ->check(CLI::IsMember({"gvisor", "microvm"}));
  app.add_option("--config-name", f->config_name, "sandbox configuration (default: the class)");
  app.add_option("--storage", f->storage, "where snapshots go (default: the server's)");
  app.add_option("--pause-after", f->pause_after, "pause when idle for this long");
  app.add_option("--suspend-after", f->suspend_after, "suspend when idle for this long");
  app.add_option("--on-crash", f->on_crash, "what a crash does")
      ->check(CLI::IsMember({"stay", "revert"}));
  app.add_flag("--no-golden", f->no_golden, "build no golden snapshot");
  app.add_option("--env", f->env, "NAME=VALUE, may be repeated")->allow_extra_args(false);
  app.add_option("COMMAND", f->command, "instead of the image's, after --");
}

StatusOr<ateapi::ActorTemplate> MakeTemplate(const TemplateFlags& f,
                                             const ateapi::ObjectRef& name) {
  ateapi::ActorTemplate t;
  t.mutable_metadata()->set_atespace(name.atespace());
  t.mutable_metadata()->set_name(name.name());
  auto* container = t.add_containers();
  container->set_name("main");
  container->set_image(f.image);
  for (const std::string& word : f.command) container->add_command(word);
  for (const std::string& entry : f.env) {
    size_t eq = entry.find('=');
    if (eq == std::string::npos) {
      return Error(Code::kInvalidArgument, "FIELD_INVALID", "--env takes NAME=VALUE, not " + entry);
    }
    auto* env = container->add_env();
    env->set_name(entry.substr(0, eq));
    env->set_value(entry.substr(eq + 1));
  }
  if (!f.probe.empty()) {
    auto* probe = container->mutable_wakeup_probe()->mutable_http_get();
    probe->set_path(f.probe);
    probe->set_port(f.port == 0 ? 80 : f.port);
  }
  const bool microvm = f.sandbox_class == "microvm";
  t.mutable_sandbox_config()->set_sandbox_class(microvm ? ateapi::SANDBOX_CLASS_MICROVM
                                                        : ateapi::SANDBOX_CLASS_GVISOR);
  t.mutable_sandbox_config()->set_config_name(f.config_name.empty() ? f.sandbox_class
                                                                    : f.config_name);
  t.mutable_snapshot_config()->set_storage_location(f.storage);
  AddLimit(&t, "memory", f.memory);
  AddLimit(&t, "cpu", f.cpu);
  if (f.port != 0) t.set_http_port(f.port);
  if (!f.pause_after.empty()) {
    RETURN_IF_ERROR(SetDuration("--pause-after", f.pause_after,
                                t.mutable_idle_policy()->mutable_pause_after()));
  }
  if (!f.suspend_after.empty()) {
    RETURN_IF_ERROR(SetDuration("--suspend-after", f.suspend_after,
                                t.mutable_idle_policy()->mutable_suspend_after()));
  }
  if (!f.on_crash.empty()) {
    t.mutable_crash_policy()->set_on_crash(f.on_crash == "revert" ? torpor::v1::ON_CRASH_REVERT
                                                                  : torpor::v1::ON_CRASH_STAY);
  }
  if (f.no_golden) t.mutable_golden_config()->set_disabled(true);
  return t;
}

}  // namespace torpor::cli
