#include "apps/doctor/node_dir.h"

#include <nlohmann/json.hpp>

#include <fmt/format.h>

#include "base/uuid.h"
#include "os/fs/dir_fd.h"
#include "snapshot/format/manifest.h"

namespace torpor::doctor {
namespace {

constexpr size_t kNodeFileMax = 64 << 10;
constexpr size_t kJournalHeadMax = 64 << 20;

void Problem(Findings* out, std::string check, std::string what, std::string remedy) {
  out->push_back({Level::kProblem, std::move(check), std::move(what), std::move(remedy)});
}
void Advice(Findings* out, std::string check, std::string what, std::string remedy) {
  out->push_back({Level::kAdvice, std::move(check), std::move(what), std::move(remedy)});
}

bool IsLeftover(const std::string& name) { return name.rfind(".rm-", 0) == 0; }

std::string CheckNodeFile(const os::DirFd& dir, Findings* out) {
  auto text = dir.ReadFile("node.json", kNodeFileMax);
  if (!text.ok()) {
    Problem(out, "node.json", std::string(text.status().message()),
            "start torpor node once: it makes the file; if other files are there, restore it from "
            "a backup");
    return "";
  }
  const auto json = nlohmann::json::parse(*text, nullptr, false);
  if (!json.is_object() || json.value("format", 0) != 1) {
    Problem(out, "node.json", "it is damaged or of another format",
            "use the version of torpor that wrote it, or restore it from a backup");
    return "";
  }
  return json.value("node_name", "");
}

// One committed capture of `uid`.
LocalSnapshot CheckSnapshot(const os::DirFd& dir, const std::string& uid, const std::string& name,
                            Findings* out) {
  LocalSnapshot found{name, 0};
  const std::string path = fmt::format("actors/{}/local-checkpoint/{}", uid, name);
  const std::string remedy =
      "its actor wakes from an older state after torpor revert; the node agent removes the "
      "directory when its actor has a newer generation or is deleted";
  auto text = dir.ReadFile(path + "/" + snapshot::kManifestName, snapshot::kManifestBytesMax);
  auto manifest = text.ok() ? snapshot::ParseManifest(*text)
                            : StatusOr<snapshot::Manifest>(std::move(text).status());
  if (!manifest.ok()) {
    Problem(out, "local snapshot",
            fmt::format("{}: {}", path, std::string(manifest.status().message())), remedy);
    return found;
  }
  found.generation = manifest->meta.generation();
  if (manifest->actor.uid() != uid) {
    Problem(out, "local snapshot", path + ": it belongs to another actor", remedy);
  }
  for (const auto& file : manifest->files) {
    auto st = dir.Stat(path + "/" + file.file.name());
    if (!st.ok()) {
      Problem(out, "local snapshot", fmt::format("{}: {} is missing", path, file.file.name()),
              remedy);
    } else if (!S_ISREG(st->st_mode) || st->st_size != file.file.logical_bytes()) {
      Problem(out, "local snapshot",
              fmt::format("{}: {} has {} bytes, its manifest says {}", path, file.file.name(),
                          st->st_size, file.file.logical_bytes()),
              remedy);
    }
  }
  return found;
}

void CheckActors(const os::DirFd& dir, NodeContents* contents, Findings* out) {
  auto actors_dir = dir.OpenDir("actors");
  if (!actors_dir.ok()) return;  // a node that never ran
  auto entries = actors_dir->List();
  if (!entries.ok()) {
    return Problem(out, "actors", std::string(entries.status().message()), "run as root");
  }
  for (const auto& entry : *entries) {
    if (IsLeftover(entry.name)) {
      Advice(out, "leftover", "actors/" + entry.name + " is being removed",
             "nothing: the node agent finishes it at its next start");
      continue;
    }
    if (!entry.is_directory || !IsUuid(entry.name)) {
      Problem(out, "actors", "actors/" + entry.name + " is not of Torpor",
              "move it out of the node directory; nothing of Torpor reads it");
      continue;
    }
    auto& snapshots = contents->actors[entry.name];
    auto local = actors_dir->OpenDir(entry.name + "/local-checkpoint");
    auto names = local.ok() ? local->List() : StatusOr<std::vector<os::DirEntry>>(local.status());
    if (!names.ok()) continue;
    for (const auto& name : *names) {
      if (IsLeftover(name.name)) continue;
      snapshots.push_back(CheckSnapshot(dir, entry.name, name.name, out));
    }
  }
}

void CheckJournals(const os::DirFd& dir, Findings* out) {
  auto journals = dir.OpenDir("journal");
  auto entries =
      journals.ok() ? journals->List() : StatusOr<std::vector<os::DirEntry>>(journals.status());
  if (!entries.ok()) return;
  for (const auto& entry : *entries) {
    const size_t dot = entry.name.rfind(".j");
    const std::string stem = entry.name.substr(0, dot);
    const bool named = dot != std::string::npos && dot + 2 == entry.name.size() &&
                       (IsUuid(stem) || stem == "node");
    // Temporary files of a compaction begin with a dot.
    if (named || entry.name.rfind('.', 0) == 0) {
      auto st = journals->Stat(entry.name);
      if (named && st.ok() && st->st_size > static_cast<int64_t>(kJournalHeadMax)) {
        Problem(out, "journal", fmt::format("journal/{} has {} bytes", entry.name, st->st_size),
                "report it; a journal is compacted long before");
      }
      continue;
    }
    Problem(out, "journal", "journal/" + entry.name + " is not of Torpor",
            "move it out of the node directory");
  }
}

}  // namespace

StatusOr<NodeContents> CheckNodeDirectory(const std::string& path, Findings* out) {
  ASSIGN_OR_RETURN(os::DirFd dir, os::DirFd::OpenPath(path));
  NodeContents contents;
  const size_t before = out->size();
  contents.node_name = CheckNodeFile(dir, out);
  CheckActors(dir, &contents, out);
  CheckJournals(dir, out);
  if (out->size() == before) {
    size_t snapshots = 0;
    for (const auto& [uid, list] : contents.actors) snapshots += list.size();
    out->push_back(
        {Level::kOk, "node directory",
         fmt::format("{}: {} actors, {} local snapshots", path, contents.actors.size(), snapshots),
         ""});
  }
  return contents;
}

void CheckRecordsAgainstNode(const std::vector<ActorRecords>& records, const NodeContents& contents,
                             Findings* out) {
  const size_t before = out->size();
  std::set<std::string> known;
  for (const ActorRecords& record : records) {
    const ateapi::Actor& actor = record.actor;
    known.insert(actor.metadata().uid());
    const std::string name = actor.metadata().atespace() + "/" + actor.metadata().name();
    // Records and directories change at different moments of an operation.
    if (actor.status().has_operation()) continue;
    const bool here = actor.status().assigned_node() == contents.node_name;
    if (actor.status().state() != ateapi::ACTOR_STATE_PAUSED || !here) continue;
    const std::string wanted = actor.status().local_snapshot().snapshot_name();
    auto tree = contents.actors.find(actor.metadata().uid());
    const LocalSnapshot* found = nullptr;
    if (tree != contents.actors.end()) {
      for (const LocalSnapshot& snapshot : tree->second) {
        if (snapshot.name == wanted) found = &snapshot;
      }
    }
    if (found == nullptr) {
      Problem(out, "records",
              fmt::format("{} is PAUSED, but its snapshot {} is not on this node", name, wanted),
              actor.status().has_external_snapshot()
                  ? "torpor revert " + name + " brings its last durable state back"
                  : "its state is lost; torpor delete actor " + name +
                        " --any-state, then create it anew");
    }
  }
  for (const auto& [uid, snapshots] : contents.actors) {
    if (known.count(uid) != 0) continue;
    Advice(out, "records", fmt::format("actors/{} belongs to no actor of the records", uid),
           "nothing: the node agent removes it, unless another control plane used this directory");
  }
  if (out->size() == before) {
    out->push_back({Level::kOk, "records",
                    fmt::format("{} actors agree with the node directory", records.size()), ""});
  }
}

}  // namespace torpor::doctor
