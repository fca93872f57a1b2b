#pragma once
// gtest matchers for Status; Debian's abseil has none.

#include <gmock/gmock.h>

#include "base/status.h"

namespace torpor {

inline Status StatusOf(const Status& s) { return s; }
template <typename T>
Status StatusOf(const StatusOr<T>& s) {
  return s.status();
}

MATCHER(IsOk, "is OK") {
  *result_listener << StatusOf(arg).ToString();
  return StatusOf(arg).ok();
}
MATCHER_P(HasCode, code, "has the status code") {
  *result_listener << StatusOf(arg).ToString();
  return StatusOf(arg).code() == code;
}
MATCHER_P2(HasReason, code, reason, "has the status code and reason") {
  Status s = StatusOf(arg);
  *result_listener << s.ToString() << " reason " << ReasonOf(s);
  return s.code() == code && ReasonOf(s) == reason;
}
MATCHER_P(MessageHas, text, "has the text in its message") {
  *result_listener << StatusOf(arg).ToString();
  return std::string(StatusOf(arg).message()).find(text) != std::string::npos;
}

}  // namespace torpor

#define ASSERT_OK(expr) ASSERT_THAT((expr), ::torpor::IsOk())
#define EXPECT_OK(expr) EXPECT_THAT((expr), ::torpor::IsOk())
#define ASSERT_OK_AND_ASSIGN(lhs, expr) \
  ASSERT_OK_AND_ASSIGN_IMPL(TORPOR_CONCAT(torpor_or_, __LINE__), lhs, expr)
#define ASSERT_OK_AND_ASSIGN_IMPL(tmp, lhs, expr) \
  auto tmp = (expr);                              \
  ASSERT_THAT(tmp, ::torpor::IsOk());             \
  lhs = std::move(tmp).value()
