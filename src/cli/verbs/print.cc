#include "cli/verbs/print.h"

#include <cstdio>

#include "base/quantity.h"
#include "cli/output.h"

namespace torpor::cli {
namespace {

using google::protobuf::Message;
using Row = std::vector<std::string>;

std::string Limit(const ateapi::Resources& resources, std::string_view name) {
  for (const auto& limit : resources.limits()) {
    if (limit.name() == name) return limit.quantity();
  }
  return "-";
}

// Memory limits are stored exactly; people want 512Mi.
std::string MemoryLimit(const ateapi::Resources& resources) {
  std::string text = Limit(resources, "memory");
  auto bytes = ParseBytes(text);
  return bytes.ok() ? FormatBytes(*bytes) : text;
}

std::string SnapshotOf(const ateapi::ActorStatus& status) {
  if (status.has_local_snapshot() && status.has_external_snapshot()) return "local+durable";
  if (status.has_local_snapshot()) return "local";
  return status.has_external_snapshot() ? "durable" : "-";
}

Row RowOf(const ateapi::Actor& a, bool wide, WallTime now) {
  const auto& s = a.status();
  Row row{a.metadata().atespace(),
          a.metadata().name(),
          EnumName(ateapi::ActorState_Name(s.state()), "ACTOR_STATE_"),
          a.actor_template().name(),
          std::to_string(s.generation()),
          SnapshotOf(s),
          OrDash(s.assigned_node()),
          Age(a.metadata().create_time(), now)};
  if (wide) {
    row.push_back(a.metadata().uid());
    row.push_back(OrDash(s.worker_assignment().worker_pod()));
    row.push_back(Age(s.last_active_time(), now));
    row.push_back(s.has_operation() ? s.operation().step() : "-");
    row.push_back(s.last_snapshot_bytes() > 0 ? FormatBytes(s.last_snapshot_bytes()) : "-");
  }
  return row;
}

std::string Golden(const ateapi::GoldenSnapshotStatus& status) {
  if (!status.error_message().empty()) return "failed: " + status.error_message();
  return status.has_golden_tag() ? "ready" : "building";
}

Row RowOf(const ateapi::ActorTemplate& t, bool wide, WallTime now) {
  Row row{t.metadata().atespace(),
          t.metadata().name(),
          EnumName(ateapi::SandboxClass_Name(t.sandbox_config().sandbox_class()), "SANDBOX_CLASS_"),
          MemoryLimit(t.resources()),
          Limit(t.resources(), "cpu"),
          t.golden_config().disabled() ? "disabled" : Golden(t.status().golden_snapshot_status()),
          Age(t.metadata().create_time(), now)};
  if (wide) {
    row.push_back(t.metadata().uid());
    row.push_back(t.containers_size() > 0 ? t.containers(0).image() : "-");
  }
  return row;
}

Row RowOf(const ateapi::Atespace& a, bool wide, WallTime now) {
  Row row{a.metadata().name(), Age(a.metadata().create_time(), now)};
  if (wide) row.push_back(a.metadata().uid());
  return row;
}

Row RowOf(const ateapi::Tag& t, bool wide, WallTime now) {
  Row row{t.metadata().atespace(),
          t.metadata().name(),
          t.source_actor().atespace() + "/" + t.source_actor().name(),
          EnumName(ateapi::TagScope_Name(t.scope()), "TAG_SCOPE_"),
          t.status().has_snapshot() ? "ready" : "copying",
          Age(t.metadata().create_time(), now)};
  if (wide) row.push_back(t.status().snapshot().snapshot_uri());
  return row;
}

Row RowOf(const ateapi::Worker& w, bool wide, WallTime now) {
  const auto& s = w.status();
  Row row{w.metadata().name(),
          w.worker_pod(),
          OrDash(w.sandbox_class()),
          EnumName(ateapi::WorkerState_Name(s.state()), "WORKER_STATE_"),
          fmt::format("{}/{}", s.allocated().actors(), s.capacity().actors()),
          MemoryLimit(s.allocated().resources()) + "/" + MemoryLimit(s.capacity().resources()),
          Limit(s.allocated().resources(), "cpu") + "/" + Limit(s.capacity().resources(), "cpu"),
          w.node_name()};
  if (wide) row.push_back(std::to_string(w.epoch()));
  return row;
}

Row RowOf(const torpor::v1::Node& n, bool wide, WallTime now) {
  const auto& disk = n.disk();
  Row row{n.name(),
          EnumName(torpor::v1::Node_State_Name(n.state()), "STATE_"),
          std::to_string(n.running_actors()),
          std::to_string(n.local_snapshots()),
          std::to_string(n.only_here()),
          disk.total_bytes() == 0
              ? "-"
              : FormatBytes(disk.used_bytes()) + "/" + FormatBytes(disk.total_bytes()) +
                    (disk.pressure() ? " (pressure)" : ""),
          OrDash(n.version())};
  if (wide) {
    row.push_back(n.kernel());
    row.push_back(n.boot_id());
  }
  return row;
}

Row RowOf(const torpor::v1::Generation& g, bool wide, WallTime now) {
  std::string storages;
  std::string fidelity = "-";
  for (const auto& s : g.storages()) {
    storages += (storages.empty() ? "" : "+") +
                EnumName(torpor::v1::Durability_Name(s.durability()), "DURABILITY_");
    if (s.status() == torpor::v1::STORAGE_STATUS_IN_PROGRESS) storages += "(in progress)";
    fidelity = EnumName(torpor::v1::Fidelity_Name(s.fidelity()), "FIDELITY_");
  }
  Row row{std::to_string(g.generation()),
          g.current() ? "current" : "-",
          OrDash(storages),
          fidelity,
          OrDash(g.trigger()),
          Age(g.create_time(), now)};
  if (wide) row.push_back(g.storages_size() > 0 ? OrDash(g.storages(0).uri()) : "-");
  return row;
}

struct Kind {
  std::string full_name;
  Row header;
  Row wide_header;
  std::function<Row(const Message&, bool wide, WallTime now)> row;
};

template <typename T>
Kind MakeKind(Row header, Row wide) {
  return {T::descriptor()->full_name(), std::move(header), std::move(wide),
          [](const Message& m, bool w, WallTime now) {
            return RowOf(static_cast<const T&>(m), w, now);
          }};
}

const std::vector<Kind>& Kinds() {
  static const std::vector<Kind> kinds{
      MakeKind<ateapi::Actor>(
          {"ATESPACE", "NAME", "STATE", "TEMPLATE", "GEN", "SNAPSHOT", "NODE", "AGE"},
          {"UID", "WORKER", "IDLE", "STEP", "BYTES"}),
      MakeKind<ateapi::ActorTemplate>(
          {"ATESPACE", "NAME", "CLASS", "MEMORY", "CPU", "GOLDEN", "AGE"}, {"UID", "IMAGE"}),
      MakeKind<ateapi::Atespace>({"NAME", "AGE"}, {"UID"}),
      MakeKind<ateapi::Tag>({"ATESPACE", "NAME", "SOURCE", "SCOPE", "COPY", "AGE"}, {"URI"}),
      MakeKind<ateapi::Worker>(
          {"NAME", "SLOT", "CLASS", "STATE", "ACTORS", "MEMORY", "CPU", "NODE"}, {"EPOCH"}),
      MakeKind<torpor::v1::Node>(
          {"NAME", "STATE", "RUNNING", "LOCAL", "ONLY HERE", "DISK", "VERSION"},
          {"KERNEL", "BOOT ID"}),
      MakeKind<torpor::v1::Generation>(
          {"GENERATION", "CURRENT", "STORAGES", "FIDELITY", "TRIGGER", "AGE"}, {"URI"}),
  };
  return kinds;
}

std::string NameOf(const Message& message) {
  const auto* metadata = message.GetDescriptor()->FindFieldByName("metadata");
  if (metadata == nullptr) {
    const auto* name = message.GetDescriptor()->FindFieldByName("name");
    return name == nullptr ? "" : message.GetReflection()->GetString(message, name);
  }
  const auto& m = static_cast<const ateapi::ResourceMetadata&>(
      message.GetReflection()->GetMessage(message, metadata));
  return m.atespace().empty() ? m.name() : m.atespace() + "/" + m.name();
}

}  // namespace

std::vector<std::shared_ptr<Message>> ResourcePrinter::Shown(
    const std::vector<const Message*>& items) const {
  std::vector<std::shared_ptr<Message>> out;
  for (const Message* item : items) {
    out.emplace_back(item->New());
    out.back()->CopyFrom(*item);
    if (!session_.settings().show_secrets) RedactSecrets(out.back().get());
  }
  return out;
}

Status ResourcePrinter::Print(const std::vector<const Message*>& items, bool list, bool scoped) {
  if (watch_) {
    if (!begun_ && items.empty()) PrintNothing(scoped);
    return PrintChanges(items);
  }
  const std::string& form = session_.settings().output;
  if (form == "json" || form == "yaml") {
    const auto shown = Shown(items);
    std::vector<const Message*> pointers;
    for (const auto& item : shown) pointers.push_back(item.get());
    ASSIGN_OR_RETURN(std::string text, ToJson(pointers, list));
    if (form == "yaml") {
      ASSIGN_OR_RETURN(text, JsonToYaml(text));
    }
    printf("%s\n", text.c_str());
    return OkStatus();
  }
  if (items.empty()) {
    PrintNothing(scoped);
    return OkStatus();
  }
  return PrintRows(items, true);
}

void ResourcePrinter::PrintNothing(bool scoped) const {
  const Settings& settings = session_.settings();
  if (settings.quiet || settings.output == "name" || settings.output == "json") return;
  if (!scoped || settings.all_atespaces) {
    fprintf(stderr, "nothing found\n");
  } else {
    fprintf(stderr, "nothing found in atespace %s; -s NAME looks in another one, -A in all\n",
            settings.atespace.c_str());
  }
}

Status ResourcePrinter::PrintChanges(const std::vector<const Message*>& items) {
  std::vector<const Message*> changed;
  std::map<std::string, std::string> now;
  for (const Message* item : items) {
    std::string& bytes = now[NameOf(*item)];
    bytes = item->SerializeAsString();
    auto before = seen_.find(NameOf(*item));
    if (before == seen_.end() || before->second != bytes) changed.push_back(item);
  }
  std::vector<std::string> gone;
  for (const auto& [name, bytes] : seen_) {
    if (now.count(name) == 0) gone.push_back(name);
  }
  seen_ = std::move(now);
  const bool json = session_.settings().output == "json";
  if (json) {
    for (const auto& item : Shown(changed)) {
      ASSIGN_OR_RETURN(std::string text, ToJsonLine(*item));
      printf("%s\n", text.c_str());
    }
  } else if (!changed.empty()) {
    RETURN_IF_ERROR(PrintRows(changed, !begun_));
  }
  for (const std::string& name : gone) {
    printf(json ? "{\"deleted\":\"%s\"}\n" : "%s deleted\n", name.c_str());
  }
  begun_ = begun_ || !changed.empty();
  fflush(stdout);
  return OkStatus();
}

Status ResourcePrinter::PrintRows(const std::vector<const Message*>& items, bool header) {
  const std::string& form = session_.settings().output;
  if (form == "name") {
    for (const Message* item : items) printf("%s\n", NameOf(*item).c_str());
    return OkStatus();
  }
  for (const Kind& kind : Kinds()) {
    if (items[0]->GetDescriptor()->full_name() != kind.full_name) continue;
    const bool wide = form == "wide";
    Row titles = kind.header;
    if (wide) titles.insert(titles.end(), kind.wide_header.begin(), kind.wide_header.end());
    Table table(std::move(titles));
    for (const Message* item : items) table.Add(kind.row(*item, wide, Clock::Real()->WallNow()));
    std::string text = table.ToString();
    if (!header) text.erase(0, text.find('\n') + 1);
    printf("%s", text.c_str());
  }
  return OkStatus();
}

}  // namespace torpor::cli
