#pragma once

// Command-line flags of the form --name=value, --name value, or -name as the Go flag package also
// accepts, because the public templates were written for Go programs. A flag without a value is
// boolean. Not thread-safe.

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

namespace torpor::workloads {

class Flags {
 public:
  // Declares a flag before Parse; `help` is printed by Usage.
  void Add(std::string name, std::string default_value, std::string help);
  void AddBool(std::string name, std::string help);

  // Returns an empty string or what is wrong with the command line.
  std::string Parse(int argc, char** argv);

  const std::string& Text(std::string_view name) const;
  bool Set(std::string_view name) const { return Text(name) == "true"; }

  // Returns false if the value is not an integer in [min, max].
  bool Integer(std::string_view name, int64_t min, int64_t max, int64_t* value) const;

  std::string Usage() const;

 private:
  struct Flag {
    std::string value;
    std::string help;
    bool is_bool = false;
  };
  std::map<std::string, Flag, std::less<>> flags_;
};

// Decimal digits only; false on anything else or when outside [min, max].
bool ParseInteger(std::string_view text, int64_t min, int64_t max, int64_t* value);

}  // namespace torpor::workloads
