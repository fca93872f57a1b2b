#pragma once
// Named network namespaces below /run/netns, in the form `ip netns` understands, beside its own.
//
// A NetNamespace holds a descriptor; the name and the namespace outlive it until
// DeleteNetNamespace. Names are labels. All functions need CAP_SYS_ADMIN, may be called from any
// thread and never change the namespace of the calling thread.

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "base/thread_pool.h"
#include "base/unique_fd.h"

namespace torpor::os {

class NetNamespace {
 public:
  // ALREADY_EXISTS when the name is taken. `set_up` runs in a thread inside the new namespace
  // before the name appears, so a named namespace is a complete one; it may be null.
  static StatusOr<NetNamespace> Create(const std::string& name, std::function<Status()> set_up);
  // NOT_FOUND when there is none.
  static StatusOr<NetNamespace> Open(const std::string& name);

  int fd() const { return fd_.get(); }
  std::string path() const;
  const std::string& name() const { return name_; }

  // Runs `work` in a short-lived thread inside the namespace and returns what it returned.
  Status Run(const std::function<Status()>& work) const;

 private:
  NetNamespace(std::string name, UniqueFd fd) : name_(std::move(name)), fd_(std::move(fd)) {}
  std::string name_;
  UniqueFd fd_;
};

// OK when there is none. Whoever is still inside keeps the namespace itself alive.
Status DeleteNetNamespace(const std::string& name);
// Names that begin with `prefix`, sorted.
StatusOr<std::vector<std::string>> ListNetNamespaces(std::string_view prefix);

// Sets /proc/sys/<key> for the namespace of the calling thread; OK on a read-only /proc when the
// value is already there.
Status SetNetSysctl(const std::string& key, std::string_view value);

// One thread that lives inside a namespace and runs functions in order. Thread-safe. Meant for
// sockets: they keep the namespace they were made in, whoever uses them.
class NetnsThread {
 public:
  static StatusOr<std::unique_ptr<NetnsThread>> Start(const NetNamespace& ns);
  // Runs later, in order of arrival. The destructor runs what is queued.
  void Post(std::function<void()> work) { pool_->Run(std::move(work)); }
  Status Run(const std::function<Status()>& work);

 private:
  NetnsThread() : pool_(std::make_unique<ThreadPool>(1)) {}
  std::unique_ptr<ThreadPool> pool_;
};

}  // namespace torpor::os
