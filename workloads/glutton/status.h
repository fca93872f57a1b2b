#pragma once

// How a glutton operation ended, in the few codes that the protocol knows. Plain data.

#include <string>
#include <utility>

namespace torpor::workloads::glutton {

enum class Code { kOk, kInvalidArgument, kNotFound, kInternal };

struct Status {
  Code code = Code::kOk;
  std::string message;

  bool ok() const { return code == Code::kOk; }
};

inline Status Invalid(std::string message) { return {Code::kInvalidArgument, std::move(message)}; }
inline Status NotFound(std::string message) { return {Code::kNotFound, std::move(message)}; }
inline Status Internal(std::string message) { return {Code::kInternal, std::move(message)}; }

}  // namespace torpor::workloads::glutton
