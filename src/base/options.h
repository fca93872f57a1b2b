#pragma once
// Settings of a role: each is a flag, a key of the YAML file given by --config, and an environment
// variable. Flag beats environment beats file beats default.
//
//   Options options("worker");
//   options.String("node-dir", &node_dir, "directory of the node agent");
//   options.DurationFlag("lease-ttl", &ttl, "how long ...", {1s, 1h});
//   RETURN_IF_ERROR(options.Parse(args));
//
// --node-dir is the key `node-dir` in YAML and TORPOR_NODE_DIR in the environment. A YAML file
// holds the keys at its top, or below the role's name, so that one file can serve all roles:
// sections of other roles (kRoles) are skipped. --config-section FILE reads the role's own section
// only; that is how `torpor up` passes its file on. Unknown keys, bad values and missing files are
// INVALID_ARGUMENT with file, line and the allowed values. Not thread-safe; the targets must
// outlive Parse.

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "base/time.h"

namespace torpor {

class Options {
 public:
  explicit Options(std::string_view role) : role_(role) {}

  void String(std::string_view name, std::string* target, std::string_view help);
  // One of `allowed`.
  void Choice(std::string_view name, std::string* target, std::vector<std::string> allowed,
              std::string_view help);
  void Strings(std::string_view name, std::vector<std::string>* target, std::string_view help);
  void Bool(std::string_view name, bool* target, std::string_view help);
  void Int(std::string_view name, int64_t* target, int64_t min, int64_t max, std::string_view help);
  // A quantity in bytes: 512Mi, 2Gi, 1000000.
  void Bytes(std::string_view name, int64_t* target, int64_t min, std::string_view help);
  void DurationFlag(std::string_view name, Duration* target, Duration min, Duration max,
                    std::string_view help);

  // Names that may be sections of a shared file.
  static constexpr std::string_view kRoles[] = {"up",   "apiserver", "router",
                                                "node", "worker",    "mover"};

  // `args` without program and subcommand. Understands --name=value, --name value, --bool,
  // --no-bool, --config FILE, --config-section FILE and --help (then help_asked() is true and Parse
  // returns OK). `environment` is the process's, as NAME=value strings; null reads the real one.
  Status Parse(const std::vector<std::string>& args,
               const std::vector<std::string>* environment = nullptr);
  // The caller prints Answer() and ends with exit code 0.
  bool asked() const { return help_asked_ || print_asked_; }
  // The help below `title`, or the settings in force.
  std::string Answer(std::string_view title) const;
  // The file given by --config or TORPOR_CONFIG; empty when none was.
  const std::string& config_file() const { return config_; }
  std::string Help() const;
  // What is in force, as YAML that Parse would read back, each line with its source as comment.
  std::string Print() const;
  const std::vector<std::string>& positional() const { return positional_; }
  void AllowPositional() { allow_positional_ = true; }
  std::vector<std::string> Names() const;

 private:
  struct Option {
    std::string name;
    std::string help;
    std::string allowed;  // shown in errors: "an integer from 1 to 65535"
    bool is_bool = false;
    bool is_list = false;
    std::function<Status(const std::vector<std::string>&)> set;  // INVALID_ARGUMENT: not allowed
    std::function<std::string()> print;
    std::string source = "default";
  };
  Option* Find(std::string_view name);
  void Add(Option option);
  Status Set(Option& option, const std::vector<std::string>& values, const std::string& source);
  Status ReadFile(const std::string& path, bool section_only);

  std::string role_;
  std::vector<Option> options_;
  std::vector<std::string> positional_;
  bool allow_positional_ = false;
  std::string config_;
  bool help_asked_ = false;
  bool print_asked_ = false;
};

}  // namespace torpor
