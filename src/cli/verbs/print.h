#pragma once
// Rows of the tables that several verbs print.

#include <map>
#include <memory>
#include <string>
#include <vector>

#include <google/protobuf/message.h>

#include "cli/session.h"

namespace torpor::cli {

// Prints resources of one kind in the form that -o asks for. One per command: with `watch` each
// Print shows only what is new, changed or gone since the one before, in JSON one object per line.
class ResourcePrinter {
 public:
  explicit ResourcePrinter(const Session& session, bool watch = false)
      : session_(session), watch_(watch) {}

  // `list` says whether a list was asked for: it decides the JSON form. An empty list of atespaced
  // resources (`scoped`) prints which scope was searched, and how to widen it.
  Status Print(const std::vector<const google::protobuf::Message*>& items, bool list,
               bool scoped = true);

 private:
  Status PrintChanges(const std::vector<const google::protobuf::Message*>& items);
  Status PrintRows(const std::vector<const google::protobuf::Message*>& items, bool header);
  std::vector<std::shared_ptr<google::protobuf::Message>> Shown(
      const std::vector<const google::protobuf::Message*>& items) const;
  void PrintNothing(bool scoped) const;

  const Session& session_;
  const bool watch_;
  bool begun_ = false;
  std::map<std::string, std::string> seen_;  // by name, serialized
};

}  // namespace torpor::cli
