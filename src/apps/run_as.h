#pragma once
// Users of the roles: made when missing, taken on by a role at its start. Not thread-safe; call
// before threads are started.

#include <sys/types.h>

#include <string>

#include "base/status.h"

namespace torpor {

inline constexpr char kControlUser[] = "torpor";      // apiserver and router
inline constexpr char kMoverUser[] = "torpor-mover";  // mover; also in the group of kControlUser

struct UserIds {
  uid_t uid = 0;
  gid_t gid = 0;
};

// NOT_FOUND when there is no such user.
StatusOr<UserIds> LookUpUser(const std::string& name);
// Makes the two users with useradd(8) unless they exist. Needs root.
Status MakeUsers();
// Gives up root for good: groups, gid, uid. Root's own name changes nothing.
Status BecomeUser(const std::string& name);

}  // namespace torpor
